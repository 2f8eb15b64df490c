"""Texts with labels, and the lines and tab-separated rows they are read from.

A file is UTF-8, with or without a byte order mark, and may be gzipped (`.gz`).
TSV is what GLUE means by it: a tab ends a cell, a newline a row, and nothing is
quoted, so that a stray quotation mark is text. (csv.reader(delimiter="\t",
quotechar=None) of google-research/albert run_classifier.py says the same.)
"""

from __future__ import annotations

import dataclasses
import gzip
import sys
import zlib
from typing import BinaryIO, Iterator, NamedTuple, Optional

# A path that means the standard input, which is read once.
STANDARD_INPUT = "-"


@dataclasses.dataclass(frozen=True)
class TextExample:
  """One text, or a pair, as the file has it.

  Attributes:
    guid: the file's own name or number for it, else its number from 0.
    text_a: the text.
    text_b: the second text of a pair.
    label: as written in the file, also of a regression; None if not known.
  """

  guid: str
  text_a: str
  text_b: Optional[str] = None
  label: Optional[str] = None


class Row(NamedTuple):
  """The cells of a row and where it begins.

  Attributes:
    path: of the file.
    line: number of its first line in the file, from 1.
    cells: as written.
  """

  path: str
  line: int
  cells: list[str]

  @property
  def where(self) -> str:
    """File and line, for messages."""
    return f"{self.path}, line {self.line}"


def read_lines(path: str) -> Iterator[tuple[int, str]]:
  """The lines of a file with their numbers from 1, as they end in the file.

  Only a newline ends a line: a lone carriage return or a Unicode line
  separator is text. `STANDARD_INPUT` is read as it comes, unzipped.

  Raises:
    OSError: the file can't be opened.
    ValueError: it is empty, not UTF-8, or a damaged gzip file.
  """
  number = 0
  with _open(path) as file:
    try:
      for number, line in enumerate(file, 1):
        try:
          text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
          raise ValueError(
            f"{path}, line {number} is not UTF-8 (byte 0x"
            f"{error.object[error.start]:02x}): convert the file to UTF-8."
          ) from error
        yield number, text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
      raise ValueError(
        f"{path} is damaged or cut after line {number}, or no gzip file "
        f"({error}): copy it again."
      ) from error
  if number == 0:
    raise ValueError(f"{path} is empty: rows are missing.")


def _open(path: str) -> BinaryIO:
  if path == STANDARD_INPUT:
    return open(sys.stdin.fileno(), "rb", closefd=False)
  opener = gzip.open if path.endswith(".gz") else open
  return opener(path, "rb")


def read_tsv(path: str) -> Iterator[Row]:
  """The rows of a tab-separated file, without any quoting.

  Lines end with a newline or with a carriage return and a newline; the last
  may end without. Empty lines at the end are passed over; elsewhere they are
  rows with one empty cell.

  Raises:
    OSError: the file can't be opened.
    ValueError: it has no row, is not UTF-8, or is a damaged gzip file.
  """
  found = False
  empty: list[int] = []
  for number, line in read_lines(path):
    text = line[:-2] if line.endswith("\r\n") else line.rstrip("\n")
    if not text:
      empty.append(number)
      continue
    for earlier in empty:
      yield Row(path, earlier, [""])
    empty.clear()
    found = True
    yield Row(path, number, text.split("\t"))
  if not found:
    raise ValueError(f"{path} holds empty lines only: rows are missing.")
