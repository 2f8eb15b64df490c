"""The folder of a dataset that is built, and of one that is unfinished.

An unfinished build is in the folder `.unfinished` inside the output folder. It
stays there after a kill or a system error such as a full disk, and the same
command resumes it: each of its files gets its final name when it is complete.
It is removed after a ValueError, because the input or the settings are wrong
then. When all shards are there, the manifest is written beside them; they are
moved to the output folder, the manifest last.

For an output folder in a bucket, the unfinished build and its lock are in a
local temporary folder, whose name depends only on the address and the user. So
the same machine resumes a build, and another one starts over, without noticing
the first.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import shutil
import tempfile
from concurrent import futures
from typing import (
  Any,
  Callable,
  Container,
  Iterator,
  Mapping,
  Optional,
  Sequence,
)

from official_albert import files, tfrecords

_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
_STAGING = ".unfinished"
_SETTINGS, _LOCK = "settings.json", ".lock"
_MOST_NAMES = 6  # Of settings in a message.
# Each upload needs disk space for another copy of its file.
_PARALLEL_UPLOADS = 8


def staging_path(output_dir: str) -> str:
  """Returns the folder of the unfinished build of an output folder."""
  return os.path.join(_local_folder(output_dir), _STAGING)


def _local_folder(output_dir: str) -> str:
  """Returns the output folder, or the local one that stands for an address."""
  if not files.is_remote(output_dir):
    return output_dir
  digest = hashlib.sha256(output_dir.rstrip("/").encode()).hexdigest()
  name = f"official-albert-build-{os.getuid()}-{digest[:16]}"
  return os.path.join(tempfile.gettempdir(), name)


@contextlib.contextmanager
def staging_folder(
  output_dir: str, overwrite: bool, wanted: Mapping[str, Any]
) -> Iterator[str]:
  """Opens the folder of an unfinished build, a new one or one to resume.

  Args:
    output_dir: the folder of the dataset. It is created if necessary, and
      removed if it is empty at the end.
    overwrite: whether to replace a dataset or another unfinished build;
      otherwise, these are refused.
    wanted: the settings that must be equal to resume a build, as JSON values.
  """
  files.check_folder(output_dir)
  local, staging = _local_folder(output_dir), staging_path(output_dir)
  if not (overwrite or os.path.exists(staging)):
    refuse_dataset(output_dir)  # Before anything is written.
  is_new = local != output_dir or not os.path.isdir(local)
  # Other users may not read what is in the folder for temporary files.
  os.makedirs(local, 0o777 if local == output_dir else 0o700, exist_ok=True)
  # The folder for temporary files is open to all users.
  if local != output_dir and os.lstat(local).st_uid != os.getuid():
    raise PermissionError(
      f"{local} belongs to another user: remove it, or set TMPDIR to a folder "
      "of your own."
    )
  # A file, because NFS locks nothing that is open for reading only.
  lock = os.path.join(local, _LOCK)
  try:
    with files.lock(
      lock,
      f"another process is building a dataset in {output_dir!r}: wait until it "
      "ends, or choose another output_dir.",
    ):
      try:
        yield from _staged(output_dir, staging, overwrite, wanted)
      finally:
        os.remove(lock)
  finally:
    if is_new and not os.listdir(local):
      os.rmdir(local)


def _staged(
  output_dir: str, staging: str, overwrite: bool, wanted: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the staging folder once; see `staging_folder`."""
  settings = os.path.join(staging, _SETTINGS)
  try:
    found = files.read_json(settings, dict[str, Any], "remove its folder")
  except FileNotFoundError:
    found = None
  if not overwrite and (found != wanted or not read_manifest(staging)):
    # The dataset may be the build's own, half published.
    refuse_dataset(output_dir)
  if found and found != wanted and not overwrite:
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
  try:
    if found != wanted:
      remove(staging)
      os.makedirs(staging)
      files.write_json(settings, wanted)
    pattern = f"{glob.escape(staging)}/**/*.tmp"
    for leftover in glob.glob(pattern, recursive=True):
      os.remove(leftover)
    yield staging
    remove(staging)
  except BaseException as error:
    advice = (
      f", which resumes where this one stopped; or remove {staging} to give up"
    )
    if isinstance(error, ValueError) or not _holds_work(staging):
      remove(staging)
      advice = ""
    full = errno.ENOSPC, errno.EDQUOT
    if isinstance(error, OSError) and error.errno in full:
      raise OSError(
        f"the disk of {os.path.dirname(staging)} is full: free some space and "
        f"run the same command again{advice}."
      ) from error
    raise


def remove(staging: str) -> None:
  """Removes an unfinished build, its settings first: no part is resumed."""
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(staging, _SETTINGS))
  shutil.rmtree(staging, ignore_errors=True)


def _holds_work(staging: str) -> bool:
  """Returns whether any file of a build is finished."""
  return len(os.listdir(staging)) > 1 if os.path.isdir(staging) else False


def refuse_dataset(output_dir: str) -> None:
  """Raises ValueError if a folder holds a dataset."""
  if files.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE)):
    raise ValueError(
      f"{output_dir!r} already holds a dataset ({tfrecords.MANIFEST_FILE}): "
      "choose another output_dir, or replace it with --overwrite."
    )


def read_manifest(
  staging: str, num_shards: Optional[Mapping[str, int]] = None
) -> Optional[tfrecords.Manifest]:
  """Returns the manifest if all shards have been made, else None.

  That of another number of shards, by split, is removed.
  """
  path = os.path.join(staging, tfrecords.MANIFEST_FILE)
  if not os.path.exists(path):
    return None
  manifest = tfrecords.read_manifest(staging)
  found = {name: len(x.shards) for name, x in manifest.splits.items()}
  if num_shards is not None and found != num_shards:
    os.remove(path)
    return None
  return manifest


def publish(
  output_dir: str,
  manifest: tfrecords.Manifest,
  tokenizer_file: str,
  report: Callable[[int, int], None] = lambda *unused: None,
) -> None:
  """Moves the shards of a dataset into its folder, with its tokenizer.

  The old manifest is removed first and the new one is written last, so the
  folder never holds a manifest with shards of another dataset. After a kill,
  the resumed build moves only the remaining files. `report` is called after
  each upload, with the numbers of uploaded and of all files.
  """
  staging = staging_path(output_dir)
  shards = {
    shard.file for split in manifest.splits.values() for shard in split.shards
  }
  if not read_manifest(staging):
    copy = os.path.join(staging, manifest.tokenizer.file)
    if not os.path.exists(copy):
      files.copy(tokenizer_file, copy)
    tfrecords.write_manifest(staging, manifest)
  here = sorted({manifest.tokenizer.file, *shards} & {*os.listdir(staging)})
  remove_dataset(output_dir, {manifest.tokenizer.file, *shards} - {*here})
  moves = [
    (os.path.join(staging, name), os.path.join(output_dir, name))
    for name in here
  ]
  if files.is_remote(output_dir):
    _upload(moves, os.path.join(staging, "uploads"), report)
  else:
    for source, target in moves:
      files.rename(source, target)
  tfrecords.write_manifest(output_dir, manifest)


def _upload(
  moves: Sequence[tuple[str, str]],
  temporary: str,
  report: Callable[[int, int], None],
) -> None:
  """Moves files to a bucket, several at a time.

  TensorFlow first copies each file to TMPDIR. `temporary` is used instead, so
  that the next build finds and removes the copies of a killed process.
  """
  remove(temporary)
  os.mkdir(temporary)

  def move(names: tuple[str, str]) -> None:
    files.copy(*names)
    os.remove(names[0])

  before = os.environ.get("TMPDIR")
  os.environ["TMPDIR"] = temporary
  try:
    with futures.ThreadPoolExecutor(_PARALLEL_UPLOADS) as pool:
      for number, _ in enumerate(pool.map(move, moves), 1):
        report(number, len(moves))
  finally:
    del os.environ["TMPDIR"]
    if before is not None:
      os.environ["TMPDIR"] = before


def remove_dataset(output_dir: str, kept: Container[str] = ()) -> None:
  """Removes the files of a dataset, the manifest first; other files stay."""
  names = files.list_dir(output_dir) if files.is_dir(output_dir) else []
  names.sort(key=lambda name: name != tfrecords.MANIFEST_FILE)
  others = {tfrecords.MANIFEST_FILE, *tfrecords.TOKENIZER_FILES.values()}
  for name in names:
    if name not in kept and (name in others or _SHARD.fullmatch(name)):
      files.remove(os.path.join(output_dir, name))
