"""The folder of a dataset, which appears complete or not at all.

An unfinished build is in the folder `.unfinished` inside the output folder. It
stays there after a kill, an interruption or an error of the system such as a
full disk, and the same command resumes it. It is removed when the dataset is
published, and after a ValueError: the input or the settings are wrong then,
and a build with other ones cannot resume it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import re
import shutil
from typing import Any, BinaryIO, Iterator, Mapping, Sequence

import numpy as np

import tfrecords
from official_albert import files
from tasks.pretraining.data import pieces

_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
_STAGING = ".unfinished"
_LOCK_FILE = "lock"
# Notes in the folder of the unfinished build.
_FINGERPRINT = "progress"
_PUBLISHING = "publishing"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Must increase when other pieces or records are made of the same settings: an
# older unfinished build cannot be resumed then.
_FORMAT = 4


def staging_path(output_dir: str) -> str:
  """Returns the folder of the unfinished build of an output folder."""
  return os.path.join(output_dir, _STAGING)


def fingerprint(
  settings: Mapping[str, Any], paths: Sequence[str], tokenizer_sha256: str
) -> dict[str, Any]:
  """Returns what must be the same for a build to be resumed, as JSON values.

  Files are identified by their size and modification time. Reading a corpus
  twice for a checksum would take longer than most resumed builds save.

  Args:
    settings: all settings that shape the records, by name.
    paths: the input files, in order.
    tokenizer_sha256: SHA-256 of the tokenizer.

  Raises:
    OSError: an input file cannot be read.
  """
  value = {
    "format": _FORMAT,
    # Its generators may give other numbers in another release.
    "numpy": np.__version__,
    "tokenizer": tokenizer_sha256,
    "input_files": [[path, *_size_and_time(path)] for path in paths],
    **settings,
  }
  return json.loads(json.dumps(value))


def _size_and_time(path: str) -> tuple[int, int]:
  if "://" in path:
    import tensorflow as tf  # Workers do not need it.

    found = tf.io.gfile.stat(path)
    return int(found.length), int(found.mtime_nsec)
  found = os.stat(path)
  return found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def staging_folder(
  output_dir: str, overwrite: bool, fingerprint: Mapping[str, Any]
) -> Iterator[str]:
  """Opens the folder of an unfinished build, a new one or one to resume.

  Args:
    output_dir: folder of the dataset. It is created if it does not exist, and
      removed if it is empty in the end.
    overwrite: whether a dataset or another unfinished build is replaced.
    fingerprint: see `fingerprint`.

  Yields:
    `staging_path(output_dir)`.

  Raises:
    ValueError: the folder holds a dataset or another unfinished build, and
      `overwrite` is false.
    OSError: it is a file, it cannot be written, another process is writing it,
      or its disk is full.
  """
  files.check_folder(output_dir)
  staging = staging_path(output_dir)
  if not (overwrite or os.path.exists(staging)):
    _refuse_dataset(output_dir)  # Before anything is written.
  is_new = not os.path.isdir(output_dir)
  lock = _lock(staging)
  try:
    for leftover in glob.glob(f"{glob.escape(staging)}-*"):
      shutil.rmtree(leftover)
    is_ours = False
    try:
      _start(staging, output_dir, overwrite, fingerprint)
      is_ours = True
      yield staging
    except BaseException as error:
      is_bad_input = is_ours and isinstance(error, ValueError)
      if is_bad_input or not _holds_work(staging):
        _remove(staging)
      if isinstance(error, OSError) and error.errno in _DISK_FULL:
        raise OSError(_disk_full_advice(staging)) from error
      raise
    _remove(staging)
  finally:
    lock.close()
    if is_new and os.path.isdir(output_dir) and not os.listdir(output_dir):
      os.rmdir(output_dir)


def _disk_full_advice(staging: str) -> str:
  advice = "free some space and run the same command again"
  if os.path.exists(staging):
    advice += (
      f", which resumes where this one stopped; or remove {staging} to give up"
    )
  return f"the disk of {os.path.dirname(staging)} is full: {advice}."


def holds_dataset(output_dir: str) -> str:
  """Returns the error message for a folder that holds a dataset."""
  return (
    f"{output_dir!r} already holds a dataset ({tfrecords.MANIFEST_FILE}): "
    "choose another output_dir, or replace it with --overwrite."
  )


def is_shard(name: str) -> bool:
  """Returns whether a file has the name of a shard."""
  return bool(_SHARD.fullmatch(name))


def _refuse_dataset(output_dir: str) -> None:
  if os.path.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE)):
    raise ValueError(holds_dataset(output_dir))


def _lock(staging: str) -> BinaryIO:
  """Locks the folder until the file is closed or the process has ended."""
  path = os.path.join(staging, _LOCK_FILE)
  refusal = (
    f"another process is building a dataset in {os.path.dirname(staging)!r}: "
    "wait until it ends, or choose another output_dir."
  )
  while True:
    os.makedirs(staging, exist_ok=True)
    try:
      file = files.lock(path, refusal)
      if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
        return file
      file.close()
    except FileNotFoundError:
      pass  # The previous owner has just removed the folder: try again.


def _start(
  staging: str,
  output_dir: str,
  overwrite: bool,
  wanted: Mapping[str, Any],
) -> None:
  """Prepares to resume a build or to start one, or refuses to."""
  note = os.path.join(staging, _FINGERPRINT)
  found = pieces.read_note(note)
  differences = _differences(found or {}, wanted)
  if not overwrite and (differences or not _is_publishing(staging)):
    # A build that was killed while it was published may resume: the dataset
    # is its own.
    _refuse_dataset(output_dir)
  if not differences:
    for leftover in glob.glob(
      f"{glob.escape(staging)}/**/*.tmp", recursive=True
    ):
      os.remove(leftover)
    return
  if found and not overwrite and _holds_work(staging):
    raise ValueError(
      f"{staging} holds an unfinished build with other settings "
      f"({', '.join(differences)}): repeat its command to resume it; use "
      "--overwrite or remove it to start over."
    )
  if found is None and os.listdir(staging) != [_LOCK_FILE]:
    pieces.report_damage(f"the unfinished build in {staging}")
  for entry in list(os.scandir(staging)):
    if entry.is_dir(follow_symlinks=False):
      shutil.rmtree(entry.path)
    elif entry.name != _LOCK_FILE:
      os.remove(entry.path)
  pieces.write_note(note, dict(wanted))


def _differences(
  found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> list[str]:
  """Returns the names of the settings that differ."""
  names = {**found, **wanted}
  return [name for name in names if found.get(name) != wanted.get(name)]


def _holds_work(staging: str) -> bool:
  """Returns whether any piece of a build is finished."""
  notes = glob.iglob(f"{glob.escape(staging)}/**/*.json", recursive=True)
  return any(os.path.basename(path) != f"{_FINGERPRINT}.json" for path in notes)


def _is_publishing(staging: str) -> bool:
  return pieces.read_note(os.path.join(staging, _PUBLISHING)) is not None


def _remove(staging: str) -> None:
  # Rename it first: a process that creates the folder again in the meantime
  # must not lose its lock.
  aside = f"{staging}-{os.getpid()}"
  os.replace(staging, aside)  # noqa: TID251
  shutil.rmtree(aside)


def publish(output_dir: str, manifest: tfrecords.Manifest) -> None:
  """Moves the shards and the tokenizer of a dataset into its folder.

  The old manifest is removed first and the new one is written last, so the
  folder never holds a manifest with shards of another dataset. After a kill,
  files that have been moved stay, and the others follow.
  """
  staging = staging_path(output_dir)
  names = [manifest.tokenizer.file]
  for split in manifest.splits.values():
    names += [shard.file for shard in split.shards]
  pieces.write_note(os.path.join(staging, _PUBLISHING), {})
  manifest_path = os.path.join(output_dir, tfrecords.MANIFEST_FILE)
  if os.path.exists(manifest_path):
    os.remove(manifest_path)
  for name in {*os.listdir(output_dir)} - {*names}:
    if is_shard(name) or name in tfrecords.TOKENIZER_FILES.values():
      os.remove(os.path.join(output_dir, name))
  for name in {*os.listdir(staging)} & {*names}:
    os.replace(  # noqa: TID251
      os.path.join(staging, name), os.path.join(output_dir, name)
    )
  tfrecords.write_manifest(output_dir, manifest)
