"""The folder of a dataset that is built, and what a restart needs.

Shards get their final names in the output folder, and the manifest is written
last. Everything else, such as tokens, is in the folder `.unfinished` inside. It
stays there after a kill or a system error such as a full disk, and the same
command resumes the build. It is removed with the shards after a ValueError,
because the input or the settings are wrong then.

For an output folder in a bucket, the tokens, the settings and the lock are in a
local temporary folder, whose name depends only on the address and the user. So
the same machine resumes a build, and another one starts over, without noticing
the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import tempfile
from typing import Any, Iterable, Iterator, Mapping

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import build_worker
from official_albert.tasks.pretraining.data.settings import BuildSettings

# A shard, or what a killed process leaves of one.
_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord(\.[0-9a-f]{16}\.tmp)?")
_STAGING = build_worker.UNFINISHED
_SETTINGS, _LOCK = "settings.json", ".lock"


def local_folder(output_dir: str) -> str:
  """Returns the output folder, or the local one that stands for an address."""
  if not files.is_remote(output_dir):
    return output_dir
  digest = hashlib.sha256(output_dir.rstrip("/").encode()).hexdigest()
  name = f"official-albert-build-{os.getuid()}-{digest[:16]}"
  return os.path.join(tempfile.gettempdir(), name)


@contextlib.contextmanager
def unfinished(
  settings: BuildSettings, wanted: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the local folder of an unfinished build, a new one or to resume.

  It is removed at the end, unless the build can be resumed after an error. The
  output folder is created if necessary, and removed if it is empty at the end.
  `wanted` are the values that must be equal to resume a build, for JSON.
  """
  output_dir, overwrite = settings.output_dir, settings.overwrite
  files.check_folder(output_dir)
  if not overwrite and _has_dataset(output_dir):
    raise ValueError(
      f"{output_dir!r} already holds a dataset ({tfrecords.MANIFEST_FILE}): "
      "choose another output_dir, or replace it with --overwrite."
    )
  local = local_folder(output_dir)
  staging, lock = (os.path.join(local, name) for name in (_STAGING, _LOCK))
  is_new = local != output_dir or not os.path.isdir(local)
  # The folder for temporary files is open to all users.
  os.makedirs(local, 0o777 if local == output_dir else 0o700, exist_ok=True)
  if local != output_dir and os.lstat(local).st_uid != os.getuid():
    raise PermissionError(
      f"{local} belongs to another user: remove it, or set TMPDIR to a folder "
      "of your own."
    )
  with contextlib.ExitStack() as stack:
    if is_new:
      stack.callback(_remove_empty, local)
    # A file, because NFS locks nothing that is open for reading only.
    stack.enter_context(
      files.lock(
        lock,
        f"another process is building a dataset in {output_dir!r}: wait until "
        "it ends, or choose another output_dir.",
      )
    )
    stack.callback(os.remove, lock)
    note = os.path.join(staging, _SETTINGS)
    found = {}
    if os.path.exists(note):
      found = files.read_json(note, dict[str, Any], "remove its folder")
    names = {**found, **wanted}
    different = [x for x in names if found.get(x) != wanted.get(x)]
    if found and different and not overwrite:
      raise ValueError(
        f"{staging} holds an unfinished build with other settings "
        f"({', '.join(different)}): repeat its command to resume it, with the "
        "same Python and packages; use --overwrite or remove it to start over."
      )
    if different:
      _remove(output_dir, staging)
      os.makedirs(staging)
      files.write_json(note, wanted)
    try:
      yield staging
    except BaseException as error:
      if isinstance(error, ValueError) or os.listdir(staging) == [_SETTINGS]:
        _remove(output_dir, staging)
        if not _has_dataset(output_dir):  # It may be there from before.
          shards = itertools.chain(*settings.shards.values())
          remove_files(output_dir, shards)
      raise
    _remove(output_dir, staging)


def _remove_empty(folder: str) -> None:
  with contextlib.suppress(OSError):
    os.rmdir(folder)


def _remove(output_dir: str, staging: str) -> None:
  """Removes an unfinished build, its settings first: no part is resumed."""
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(staging, _SETTINGS))
  shutil.rmtree(staging, ignore_errors=True)
  files.remove_tree(os.path.join(output_dir, _STAGING))


def _has_dataset(output_dir: str) -> bool:
  return files.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE))


def list_names(folder: str) -> set[str]:
  """Returns the names in a folder; one in a bucket need not be there."""
  return {*files.list_dir(folder)} if files.is_dir(folder) else set()


def remove_files(output_dir: str, names: Iterable[str]) -> None:
  """Removes files of a folder, as far as they are there."""
  for name in list_names(output_dir) & {*names}:
    files.remove(os.path.join(output_dir, name))


def finish(
  job: build_worker.Job, weights: Mapping[str, float]
) -> tfrecords.Manifest:
  """Completes the folder of a dataset whose shards are made.

  Shards of other datasets are removed, the tokenizer is copied, and the
  manifest is written last. `weights` are those of the input files.
  """
  manifest, output_dir = job.make_manifest(weights), job.settings.output_dir
  shards = [x.file for split in manifest.splits.values() for x in split.shards]
  others = {tfrecords.MANIFEST_FILE, *tfrecords.TOKENIZER_FILES.values()}
  others.update(filter(_SHARD.fullmatch, list_names(output_dir)))
  remove_files(output_dir, others - {manifest.tokenizer.file, *shards})
  target = os.path.join(output_dir, manifest.tokenizer.file)
  files.copy(job.tokenizer.model_file, target)
  tfrecords.write_manifest(output_dir, manifest)
  return manifest
