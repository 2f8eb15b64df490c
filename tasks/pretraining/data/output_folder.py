"""A dataset's folder: built aside, put in place whole, or not at all.

An unfinished build is in `.unfinished` inside the output folder. It stays
there after a kill, an interruption or an error of the system (a full disk),
and the same command goes on with it. It is removed when the dataset is in
place, and after a ValueError: that says that the input or the settings are of
no use, and a build with others could not go on with it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
from typing import Any, BinaryIO, Iterator, Mapping

import tfrecords
from official_albert import files
from tasks.pretraining.data import build_journal

_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
_STAGING = ".unfinished"
_LOCK_FILE = "lock"
_PUBLISHING = "publishing"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def staging_path(output_dir: str) -> str:
  """Where the unfinished build of an output folder is."""
  return os.path.join(output_dir, _STAGING)


@contextlib.contextmanager
def staging_folder(
  output_dir: str, overwrite: bool, fingerprint: Mapping[str, Any]
) -> Iterator[build_journal.Journal]:
  """The folder of an unfinished build, a new one or one to go on with.

  Args:
    output_dir: is made if need be, and removed if it is empty in the end.
    overwrite: replace a dataset, and an unfinished build that is another.
    fingerprint: see `build_journal.fingerprint`.

  Yields:
    The journal in `staging_path(output_dir)`.

  Raises:
    ValueError: the folder holds a dataset or another unfinished build and
      `overwrite` is not given.
    OSError: it is a file, it can't be written, another process is writing it,
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
    journal = build_journal.Journal(staging)
    is_ours = False
    try:
      _start(journal, output_dir, overwrite, fingerprint)
      is_ours = True
      yield journal
    except BaseException as error:
      is_of_no_use = is_ours and isinstance(error, ValueError)
      if is_of_no_use or not journal.holds_work:
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
  what = "the same command starts again"
  if os.path.exists(staging):
    what = (
      "the same command goes on where this one stopped; or remove "
      f"{staging} to give up"
    )
  return (
    f"the disk of {os.path.dirname(staging)} is full: make room and {what}."
  )


def holds_dataset(output_dir: str) -> str:
  """What to say of a folder that is not to be written over."""
  return (
    f"{output_dir!r} holds a dataset already ({tfrecords.MANIFEST_FILE}): "
    "name another output_dir, or replace it with --overwrite."
  )


def is_shard(name: str) -> bool:
  """Whether a file has the name of a shard."""
  return bool(_SHARD.fullmatch(name))


def _refuse_dataset(output_dir: str) -> None:
  if os.path.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE)):
    raise ValueError(holds_dataset(output_dir))


def _lock(staging: str) -> BinaryIO:
  """Makes the folder ours until the file is closed or the process is gone."""
  path = os.path.join(staging, _LOCK_FILE)
  refusal = (
    f"another process is building a dataset in {os.path.dirname(staging)!r}: "
    "wait for its end, or name another output_dir."
  )
  while True:
    os.makedirs(staging, exist_ok=True)
    try:
      file = files.lock(path, refusal)
      if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
        return file
      file.close()
    except FileNotFoundError:
      pass  # Whoever had the lock has just removed the folder: try again.


def _start(
  journal: build_journal.Journal,
  output_dir: str,
  overwrite: bool,
  fingerprint: Mapping[str, Any],
) -> None:
  """Goes on, starts anew, or refuses."""
  differences = journal.differences(fingerprint)
  goes_on = not differences
  if not (goes_on and journal.get(_PUBLISHING)) and not overwrite:
    # One that was killed while it was being put in place may go on: the
    # dataset is its own.
    _refuse_dataset(output_dir)
  if goes_on:
    for leftover in glob.glob(f"{glob.escape(journal.folder)}/*.tmp"):
      os.remove(leftover)  # Of a shard that was not finished.
    return
  if journal.holds_work and not overwrite:
    raise ValueError(
      f"{journal.folder} holds an unfinished build with other settings "
      f"({', '.join(differences)}): repeat its command to go on with it; "
      "give --overwrite or remove it to start anew."
    )
  if journal.fingerprint is None and os.listdir(journal.folder) != [_LOCK_FILE]:
    build_journal.report_damage(f"the unfinished build in {journal.folder}")
  _empty(journal.folder)
  journal.start(fingerprint)


def _empty(staging: str) -> None:
  for entry in list(os.scandir(staging)):
    if entry.is_dir(follow_symlinks=False):
      shutil.rmtree(entry.path)
    elif entry.name != _LOCK_FILE:
      os.remove(entry.path)


def _remove(staging: str) -> None:
  # Under another name first: a process that makes the folder anew in the
  # meantime must not lose its lock.
  aside = f"{staging}-{os.getpid()}"
  os.replace(staging, aside)  # noqa: TID251
  shutil.rmtree(aside)


def find(journal: build_journal.Journal, output_dir: str, name: str) -> str:
  """Where a finished file of the build is: aside, or in place already."""
  path = os.path.join(journal.folder, name)
  if journal.get(_PUBLISHING) and not os.path.exists(path):
    return os.path.join(output_dir, name)
  return path


def publish(
  journal: build_journal.Journal,
  output_dir: str,
  manifest: tfrecords.Manifest,
) -> None:
  """Moves the shards and the tokenizer of a dataset into its folder.

  The old manifest goes first and the new one comes last, so that the folder
  never holds a manifest with shards of another dataset. After a kill, what
  has been moved stays where it is, and the rest follows.
  """
  names = [manifest.tokenizer.file]
  for split in manifest.splits.values():
    names += [shard.file for shard in split.shards]
  journal.put(_PUBLISHING, True)
  in_place = {
    name
    for name in names
    if not os.path.exists(os.path.join(journal.folder, name))
  }
  old = os.path.join(output_dir, tfrecords.MANIFEST_FILE)
  if os.path.exists(old):
    os.remove(old)
  for name in os.listdir(output_dir):
    if is_shard(name) and name not in in_place:
      os.remove(os.path.join(output_dir, name))
  for name in set(tfrecords.TOKENIZER_FILES.values()) - {*names}:
    if os.path.exists(os.path.join(output_dir, name)):
      os.remove(os.path.join(output_dir, name))
  for name in names:
    if name not in in_place:
      os.replace(  # noqa: TID251
        os.path.join(journal.folder, name), os.path.join(output_dir, name)
      )
  tfrecords.write_manifest(output_dir, manifest)
