"""Where RACE's passages lie: a folder or an archive, one file each or all.txt.

    RACE/{train,dev,test}/{middle,high}/1234.txt   one JSON object, as released
    RACE/{train,dev,test}/{middle,high}/all.txt    one JSON object a line

Where all.txt stands beside the files that it was made from, it alone is read:
with both, each question would count twice.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from typing import Iterator, NamedTuple

LEVELS = ("middle", "high")
SPLITS = ("train", "dev", "test")
_ALL = "all.txt"
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_BLOCK_BYTES = 1 << 20


class Passage(NamedTuple):
  """One passage, not parsed yet.

  Attributes:
    where: its file, and for all.txt the line, as a message names it.
    name: the file's name, or the line's number.
    level: "middle" or "high".
    data: JSON.
  """

  where: str
  name: str
  level: str
  data: bytes


def read(data_dir: str, split: str, level: str = "all") -> Iterator[Passage]:
  """The passages of a split in a fixed order; see `examples.read_examples`.

  Raises:
    FileNotFoundError: no such data, or no passage in it.
    ValueError: a damaged archive, an unknown split or level.
  """
  if split not in SPLITS:
    raise ValueError(f"the split {split!r} is none of {', '.join(SPLITS)}.")
  if level not in ("all", *LEVELS):
    raise ValueError(
      f"the level {level!r} is none of all, {', '.join(LEVELS)}."
    )
  levels = LEVELS if level == "all" else (level,)
  root = _find(data_dir)
  contents = _read_archive if os.path.isfile(root) else _read_folders
  files = contents(root, split, levels)
  found = False
  for one in levels:
    for passage in _passages(root, split, one, files[one]):
      found = True
      yield passage
  if not found:
    raise FileNotFoundError(
      f"{root} has no passage of {split} ({' and '.join(levels)}): there "
      f"should be files such as {split}/{levels[0]}/1.txt, or "
      f"{split}/{levels[0]}/{_ALL} with one JSON object a line."
    )


def _find(data_dir: str) -> str:
  """The folder that holds the splits, or the archive.

  Raises:
    FileNotFoundError: neither is there.
  """
  if os.path.isfile(data_dir):
    return data_dir
  for folder in (data_dir, os.path.join(data_dir, "RACE")):
    if any(os.path.isdir(os.path.join(folder, split)) for split in SPLITS):
      return folder
  for ending in _ARCHIVES:
    archive = os.path.join(data_dir, f"RACE{ending}")
    if os.path.isfile(archive):
      return archive
  raise FileNotFoundError(
    f"no RACE in {data_dir!r}: name the folder with train, dev and test, the "
    "folder that holds it, or RACE.tar.gz."
  )


def _read_folders(
  root: str, split: str, levels: tuple[str, ...]
) -> dict[str, dict[str, bytes]]:
  """Content by level and file name."""
  files: dict[str, dict[str, bytes]] = {level: {} for level in levels}
  for level in levels:
    folder = os.path.join(root, split, level)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in [_ALL] if _ALL in names else names:
      if _is_passage(name):
        with open(os.path.join(folder, name), "rb") as file:
          files[level][name] = file.read()
  return files


def _read_archive(
  root: str, split: str, levels: tuple[str, ...]
) -> dict[str, dict[str, bytes]]:
  """Content by level and file name, in one pass over the archive."""
  files: dict[str, dict[str, bytes]] = {level: {} for level in levels}
  try:
    with tarfile.open(root) as archive:
      for member in archive:
        *_, above, level, name = ["", "", *member.name.split("/")]
        is_wanted = above == split and level in levels and _is_passage(name)
        if is_wanted and member.isfile():
          files[level][name] = archive.extractfile(member).read()
      # To the end, where gzip's checksum of the whole is.
      while archive.fileobj.read(_BLOCK_BYTES):
        pass
  except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ValueError(
      f"{root} is not a whole tar archive ({error}): download it again."
    ) from error
  return files


def _is_passage(name: str) -> bool:
  # Some systems put "._1.txt" beside "1.txt" into archives.
  return name.endswith(".txt") and not name.startswith(".")


def _passages(
  root: str, split: str, level: str, files: dict[str, bytes]
) -> Iterator[Passage]:
  folder = os.path.join(root, split, level)
  if _ALL in files:
    for number, line in enumerate(files[_ALL].split(b"\n"), 1):
      if line.strip():
        where = f"{os.path.join(folder, _ALL)} line {number}"
        yield Passage(where, str(number), level, line)
    return
  for name in sorted(files, key=_by_number):
    yield Passage(os.path.join(folder, name), name, level, files[name])


def _by_number(name: str) -> tuple[bool, int, str]:
  """2.txt before 10.txt, and what has no number last, by name."""
  stem = name[: -len(".txt")]
  is_number = stem.isascii() and stem.isdigit()
  return not is_number, int(stem) if is_number else 0, name
