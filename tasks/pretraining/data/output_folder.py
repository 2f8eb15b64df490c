"""Writes the folder of a dataset atomically, and resumes unfinished builds.

An unfinished build is in the folder `.unfinished` inside the output folder. It
stays there after a kill or a system error such as a full disk, and the same
command resumes it. It is removed when the dataset is published, and after a
ValueError, because the input or the settings are wrong then.

For an output folder in a bucket, the unfinished build and its lock are in a
local temporary folder, whose name depends only on the address and the user. So
the same machine resumes a build, and another one starts over, without noticing
the first.

A build consists of pieces: chunks of tokens, runs of examples, shards. Each
piece is a file that gets its final name when it is complete. `NAME.note` beside
it has a checksum and values that the build needs. A resumed build calls
`find_piece` for each piece and makes only those that are missing or damaged.
The checksum of a note depends on its place and the settings of the build, so
that a piece of another build or place counts as damaged.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import sys
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

import google_crc32c

from official_albert import files, tfrecords

_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
_STAGING = ".unfinished"
# Notes in that folder.
_FINGERPRINT = "progress"
_PUBLISHING = "publishing"
_LOCK = ".lock"
_READ_BYTES = 1 << 20
_MOST_NAMES = 6  # Of settings in a message.
# Each upload needs disk space for another copy of its file.
_PARALLEL_UPLOADS = 8


def finish_piece(path: str, value: dict[str, Any]) -> None:
  """Writes the note of a complete file, which marks it as finished."""
  _write_note(path, {"value": value, "checksum": _checksum(path)})


def find_piece(path: str, moved_to: str = "") -> Optional[dict[str, Any]]:
  """Returns the `value` of `finish_piece`; None if the piece must be made.

  Reports a damaged piece on stderr. The file may have been moved to another
  folder, but its note stays at `path`.
  """
  if not has_note(path):
    return None
  note = _read_note(path)
  moved = os.path.join(moved_to, os.path.basename(path))
  location = path if os.path.exists(path) else moved
  is_there = note is not None and os.path.isfile(location)
  if is_there and note["checksum"] == _checksum(location):
    return note["value"]
  report_damage(path)
  os.remove(note_path(path))
  return None


def report_damage(path: str) -> None:
  """Reports on stderr that a part of an unfinished build is made again."""
  message = f"{path} is damaged or incomplete: it is made again."
  print(message, file=sys.stderr, flush=True)


def note_path(path: str) -> str:
  """Returns the path of the note of a piece."""
  return f"{path}.note"


def has_note(path: str) -> bool:
  """Returns whether a piece has a note, intact or not."""
  return os.path.exists(note_path(path))


def _write_note(path: str, value: Mapping[str, Any]) -> None:
  """Writes the checksum of the value and the value."""
  content = json.dumps(value)
  checksum = _note_checksum(path, content.encode())
  files.write_text(note_path(path), f"{checksum} {content}")


def _read_note(path: str) -> Optional[dict[str, Any]]:
  """Returns None if the note is missing or damaged."""
  try:
    with open(note_path(path), "rb") as file:
      checksum, _, content = file.read().partition(b" ")
    is_intact = checksum == str(_note_checksum(path, content)).encode()
  except FileNotFoundError:
    return None
  return json.loads(content) if is_intact else None


def _note_checksum(path: str, content: bytes) -> int:
  """Returns the CRC-32C of a note's place, its build and its content."""
  folder, _, name = path.rpartition(f"{_STAGING}{os.sep}")
  if name == _FINGERPRINT:  # The build's own note.
    return google_crc32c.value(content)
  fingerprint = os.path.join(folder, _STAGING, note_path(_FINGERPRINT))
  with open(fingerprint, "rb") as file:
    return google_crc32c.value(name.encode() + file.read() + content)


def _checksum(path: str) -> str:
  """Returns the CRC-32C of a file in hexadecimal."""
  checksum = google_crc32c.Checksum()
  with open(path, "rb") as file:
    while data := file.read(_READ_BYTES):
      checksum.update(data)
  return checksum.hexdigest().decode()


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
  local = _local_folder(output_dir)
  staging = staging_path(output_dir)
  shutil.rmtree(_finished(staging), ignore_errors=True)
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
  try:
    # A file, because NFS locks nothing that is open for reading only.
    lock = os.path.join(local, _LOCK)
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
  resumes = _can_resume(staging, output_dir, overwrite, wanted)
  try:
    if not resumes:
      if os.path.exists(staging):
        shutil.rmtree(staging)
      os.makedirs(staging)
      _write_note(os.path.join(staging, _FINGERPRINT), wanted)
    pattern = f"{glob.escape(staging)}/**/*.tmp"
    for leftover in glob.glob(pattern, recursive=True):
      os.remove(leftover)
    yield staging
    # Renamed first, because a half-removed folder might seem to be resumable.
    os.replace(staging, _finished(staging))
    shutil.rmtree(_finished(staging), ignore_errors=True)
  except BaseException as error:
    advice = (
      f", which resumes where this one stopped; or remove {staging} to give up"
    )
    if isinstance(error, ValueError) or not _holds_work(staging):
      shutil.rmtree(staging, ignore_errors=True)
      advice = ""
    full = errno.ENOSPC, errno.EDQUOT
    if isinstance(error, OSError) and error.errno in full:
      raise OSError(
        f"the disk of {os.path.dirname(staging)} is full: free some space and "
        f"run the same command again{advice}."
      ) from error
    raise


def _finished(staging: str) -> str:
  return f"{staging}-finished"


def refuse_dataset(output_dir: str) -> None:
  """Raises ValueError if a folder holds a dataset."""
  if files.exists(os.path.join(output_dir, tfrecords.MANIFEST_FILE)):
    raise ValueError(
      f"{output_dir!r} already holds a dataset ({tfrecords.MANIFEST_FILE}): "
      "choose another output_dir, or replace it with --overwrite."
    )


def _can_resume(
  staging: str, output_dir: str, overwrite: bool, wanted: Mapping[str, Any]
) -> bool:
  """Returns whether to resume an unfinished build, or to start over."""
  found = _read_note(os.path.join(staging, _FINGERPRINT))
  is_publishing = _read_note(os.path.join(staging, _PUBLISHING)) is not None
  if not overwrite and (found != wanted or not is_publishing):
    # A build that was killed while it was published may resume: the dataset
    # is its own.
    refuse_dataset(output_dir)
  if found and found != wanted and not overwrite and _holds_work(staging):
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
  if not found and os.path.exists(staging):
    report_damage(f"the unfinished build in {staging}")
  return found == wanted


def _holds_work(staging: str) -> bool:
  """Returns whether any piece of a build is finished."""
  notes = glob.iglob(f"{glob.escape(staging)}/**/*.note", recursive=True)
  return any(
    os.path.basename(path) != note_path(_FINGERPRINT) for path in notes
  )


def publish(
  output_dir: str,
  manifest: tfrecords.Manifest,
  tokenizer_file: str,
  report: Callable[[int, int], None] = lambda *unused: None,
) -> None:
  """Moves the shards of a dataset into its folder, with its tokenizer.

  The old manifest is removed first and the new one is written last, so the
  folder never holds a manifest with shards of another dataset. After a kill,
  the resumed build moves only the remaining files. Files are uploaded to a
  bucket again, because their local copies stay until all of them are there.
  `report` is called after each upload, with the numbers of uploaded and of all
  files.
  """
  staging = staging_path(output_dir)
  files.copy(tokenizer_file, os.path.join(staging, manifest.tokenizer.file))
  names = {manifest.tokenizer.file}
  for split in manifest.splits.values():
    names |= {shard.file for shard in split.shards}
  _write_note(os.path.join(staging, _PUBLISHING), {})
  remove_dataset(output_dir, kept=names)
  moves = [
    (os.path.join(staging, name), os.path.join(output_dir, name))
    for name in sorted(names & {*os.listdir(staging)})
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
  """Copies files to a bucket, several at a time.

  TensorFlow first copies each file to TMPDIR. `temporary` is used instead, so
  that the next build finds and removes the copies of a killed process.
  """
  shutil.rmtree(temporary, ignore_errors=True)
  os.mkdir(temporary)
  with (
    environment_variable("TMPDIR", temporary),
    futures.ThreadPoolExecutor(_PARALLEL_UPLOADS) as pool,
  ):
    for number, _ in enumerate(pool.map(files.copy, *zip(*moves)), 1):
      report(number, len(moves))


@contextlib.contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
  """Sets a variable of this process and its children during the body."""
  before = os.environ.get(name)
  os.environ[name] = value
  try:
    yield
  finally:
    del os.environ[name]
    if before is not None:
      os.environ[name] = before


def remove_dataset(output_dir: str, kept: Container[str] = ()) -> None:
  """Removes the files of a dataset, the manifest first; other files stay."""
  names = files.list_dir(output_dir) if files.is_dir(output_dir) else []
  names.sort(key=lambda name: name != tfrecords.MANIFEST_FILE)
  others = {tfrecords.MANIFEST_FILE, *tfrecords.TOKENIZER_FILES.values()}
  for name in names:
    if name not in kept and (name in others or _SHARD.fullmatch(name)):
      files.remove(os.path.join(output_dir, name))
