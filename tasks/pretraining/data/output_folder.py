"""The folder of a dataset that is built, and what a restart needs.

Shards get their final names in the output folder, and the manifest is written
last. Everything else, such as tokens, is in the folder `.unfinished` inside. It
stays there after a kill or a system error such as a full disk, and the same
command resumes the build. It is removed with the shards after a ValueError,
because the input or the settings are wrong then.

For an output folder in a bucket, the unfinished build and its lock are in a
local temporary folder, whose name depends only on the address and the user. So
the same machine resumes a build, and another one starts over, without noticing
the first.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
from concurrent import futures
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from official_albert import files, tfrecords

# A shard, or what a killed process leaves of one.
_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord(\.[0-9a-f]{16}\.tmp)?")
_STAGING, _SETTINGS, _LOCK = ".unfinished", "settings.json", ".lock"
_MOST_NAMES = 6  # Of settings in a message.
# Each upload needs disk space for another copy of its file.
_PARALLEL_UPLOADS = 8


def local_folder(output_dir: str) -> str:
  """Returns the output folder, or the local one that stands for an address."""
  if not files.is_remote(output_dir):
    return output_dir
  digest = hashlib.sha256(output_dir.rstrip("/").encode()).hexdigest()
  name = f"official-albert-build-{os.getuid()}-{digest[:16]}"
  return os.path.join(tempfile.gettempdir(), name)


@contextlib.contextmanager
def unfinished(
  output_dir: str,
  overwrite: bool,
  wanted: Mapping[str, Any],
  shards: Sequence[str] = (),
) -> Iterator[str]:
  """Yields the folder of an unfinished build, a new one or one to resume.

  It is removed at the end, unless the build can be resumed after an error.

  Args:
    output_dir: the folder of the dataset. It is created if necessary, and
      removed if it is empty at the end.
    overwrite: whether to replace a dataset or another unfinished build;
      otherwise, these are refused.
    wanted: the settings that must be equal to resume a build, as JSON values.
    shards: the names of the shards.
  """
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
    _prepare(staging, overwrite, wanted)
    try:
      yield staging
      _remove(staging)
    except BaseException as error:
      notes = {name for name in os.listdir(staging) if name.endswith(".json")}
      if isinstance(error, ValueError) or notes == {_SETTINGS}:
        _remove(staging)
        if not _has_dataset(output_dir):  # It may be there from before.
          remove_files(output_dir, shards)
      full = errno.ENOSPC, errno.EDQUOT
      if isinstance(error, OSError) and error.errno in full:
        raise OSError(
          f"the disk of {local} is full: free some space and run the same "
          "command again, which resumes what is done."
        ) from error
      raise


def _remove_empty(folder: str) -> None:
  with contextlib.suppress(OSError):
    os.rmdir(folder)


def _prepare(staging: str, overwrite: bool, wanted: Mapping[str, Any]) -> None:
  """Makes the folder, or leaves that of the same build as it is."""
  settings = os.path.join(staging, _SETTINGS)
  found: dict[str, Any] = {}
  with contextlib.suppress(FileNotFoundError):
    found = files.read_json(settings, dict[str, Any], "remove its folder")
  if found == wanted:
    return
  if found and not overwrite:
    names = {**found, **wanted}
    different = [n for n in names if found.get(n) != wanted.get(n)]
    if len(different) > _MOST_NAMES:
      different[_MOST_NAMES:] = ["..."]
    raise ValueError(
      f"{staging} holds an unfinished build with other settings "
      f"({', '.join(different)}): repeat its command to resume it, with "
      "the same Python and packages; use --overwrite or remove it to start "
      "over."
    )
  _remove(staging)
  os.makedirs(staging)
  files.write_json(settings, wanted)


def _remove(staging: str) -> None:
  """Removes an unfinished build, its settings first: no part is resumed."""
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(staging, _SETTINGS))
  shutil.rmtree(staging, ignore_errors=True)


def _has_dataset(output_dir: str) -> bool:
  return files.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE))


def _list(output_dir: str) -> set[str]:
  is_there = files.is_dir(output_dir)  # A folder in a bucket need not be.
  return {*files.list_dir(output_dir)} if is_there else set()


def remove_files(output_dir: str, names: Iterable[str]) -> None:
  """Removes files of a folder, as far as they are there."""
  for name in _list(output_dir) & {*names}:
    files.remove(os.path.join(output_dir, name))


def finish(
  output_dir: str,
  staging: str,
  manifest: tfrecords.Manifest,
  report: Callable[[str, float, int, str], None] = lambda *unused: None,
) -> None:
  """Completes the folder of a dataset whose shards are made.

  Shards and the tokenizer are moved from `staging`, as far as they are there.
  Shards of other datasets are removed, and the manifest is written last.
  `report` is called after each upload; see `dataset_builder`.
  """
  shards = [x.file for split in manifest.splits.values() for x in split.shards]
  own = {manifest.tokenizer.file, *shards}
  others = {tfrecords.MANIFEST_FILE, *tfrecords.TOKENIZER_FILES.values()}
  others.update(filter(_SHARD.fullmatch, _list(output_dir)))
  remove_files(output_dir, others - own)
  here = own & {*os.listdir(staging)}

  def move(name: str) -> None:
    files.copy(os.path.join(staging, name), os.path.join(output_dir, name))
    os.remove(os.path.join(staging, name))

  with futures.ThreadPoolExecutor(_PARALLEL_UPLOADS) as pool:
    for number, _ in enumerate(pool.map(move, sorted(here)), 1):
      progress = f"{number:,} of {len(here):,} files"
      report("uploading", number / len(here), 0, progress)
  tfrecords.write_manifest(output_dir, manifest)
