"""Text files to documents: lists of sentences.

Plain text holds one sentence a line and a blank line between documents (the
form of google-research/albert create_pretraining_data.py). JSON lines hold one
document a line in the field `text`, whose lines are paragraphs that are split
into sentences here. Either may be gzipped. The name decides: `.jsonl`,
`.json`, `.jsonl.gz` and `.json.gz` are JSON lines, anything else is text.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import zlib
from typing import BinaryIO, Iterator, Sequence

_JSON_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")

# The end of a sentence: its mark, what closes behind it, a space, and
# something that can begin the next. Marks of scripts without spaces need none.
_SENTENCE_END = re.compile(
  r"""[.!?…]+["'”’»)\]]*\s+(?=["'“‘«(\[]*[^\W_a-zß-öø-ÿ])"""
  r"""|[。！？]+[」』”’）]*\s*(?=\S)"""
)
# A full stop after these ends no sentence: titles, references, initials; and
# these if a number follows.
_BEFORE_WORD = r"""(?:^|[\s("'“‘\[])"""
_ABBREVIATION = re.compile(
  _BEFORE_WORD
  + r"(?:[A-Z](?:\.[A-Z])*|Mrs?|Ms|Dr|Prof|Rev|Hon|Gen|Col|Capt|Lt|Sgt|St|Mt"
  r"|Sr|Jr|Messrs|vs|cf|ca|viz|e\.g|i\.e|al|approx)$"
)
_NUMBERED = re.compile(
  _BEFORE_WORD + r"(?:Nos?|Figs?|Eqs?|Secs?|Ch|Art|[Vv]ols?|pp?)$"
)


def find_files(patterns: str) -> list[str]:
  """The files that a comma-separated list of names and globs stands for.

  Returns:
    Paths in the order of the list, sorted within a glob, each once.

  Raises:
    FileNotFoundError: nothing matches one of the patterns.
    ValueError: the list is empty.
  """
  names = [name.strip() for name in patterns.split(",") if name.strip()]
  if not names:
    raise ValueError("input_files is empty: name at least one text file.")
  found = {}
  for name in names:
    matches = [name] if os.path.isfile(name) else sorted(glob.glob(name))
    matches = [path for path in matches if os.path.isfile(path)]
    if not matches:
      hint = ""
      if os.path.isdir(name):
        hint = f", which is a folder; its files are {os.path.join(name, '*')}"
      raise FileNotFoundError(f"no input file matches {name!r}{hint}.")
    found.update(dict.fromkeys(matches))
  return list(found)


def split_sentences(paragraph: str) -> list[str]:
  """Cuts a paragraph by its punctuation; joined again, nothing is lost.

  Simple on purpose: where it errs, a segment is half a sentence or two, which
  masked LM and sentence order hardly feel.
  """
  sentences, start = [], 0
  for match in _SENTENCE_END.finditer(paragraph):
    if match[0].rstrip() == ".":
      before = paragraph[max(start, match.start() - 12) : match.start()]
      number_follows = paragraph[match.end()].isdigit()
      if _ABBREVIATION.search(before) or (
        number_follows and _NUMBERED.search(before)
      ):
        continue
    sentences.append(paragraph[start : match.end()].strip())
    start = match.end()
  sentences.append(paragraph[start:].strip())
  return [sentence for sentence in sentences if sentence]


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    total_bytes: size of all files, as they are on the disk.
  """

  def __init__(self, paths: Sequence[str]):
    self._paths = tuple(paths)
    self.total_bytes = sum(os.path.getsize(path) for path in self._paths)
    self._finished_bytes = 0
    self._file = None

  @property
  def bytes_read(self) -> int:
    """How far reading has come, out of `total_bytes`."""
    if self._file is None:
      return self._finished_bytes
    return self._finished_bytes + self._file.tell()

  def __iter__(self) -> Iterator[list[str]]:
    """Yields documents: non-empty lists of non-blank sentences.

    Raises:
      ValueError: a line is not UTF-8, or no JSON object with a text, or a
        file is not the gzip file that its name says; the message has the
        file and the line.
    """
    self._finished_bytes = 0
    for path in self._paths:
      is_json = path.lower().endswith(_JSON_ENDINGS)
      parse = _json_documents if is_json else _text_documents
      with open(path, "rb") as file:
        self._file = file
        try:
          yield from parse(path, _lines(path, file))
        finally:
          self._file = None
      self._finished_bytes += os.path.getsize(path)


def _lines(path: str, file: BinaryIO) -> Iterator[tuple[int, str]]:
  """Numbered lines, decoded."""
  is_gzip = path.lower().endswith(".gz")
  lines = gzip.GzipFile(fileobj=file) if is_gzip else file
  number = 0
  try:
    for number, line in enumerate(lines, start=1):
      # A byte order mark is no part of the text.
      yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(
      f"{path}, line {number}, is not UTF-8 (byte {error.start + 1} of the "
      "line): convert the file, for example with iconv."
    ) from error
  except (gzip.BadGzipFile, EOFError, zlib.error) as error:
    raise ValueError(
      f"{path} is not a whole gzip file ({error}): copy it again, or take "
      "the .gz off its name if it is not compressed."
    ) from error


def _text_documents(
  path: str, lines: Iterator[tuple[int, str]]
) -> Iterator[list[str]]:
  del path
  document = []
  for _, line in lines:
    line = line.strip()
    if line:
      document.append(line)
    elif document:
      yield document
      document = []
  if document:
    yield document


def _json_documents(
  path: str, lines: Iterator[tuple[int, str]]
) -> Iterator[list[str]]:
  for number, line in lines:
    if not line.strip():
      continue
    try:
      value = json.loads(line)
    except ValueError as error:
      raise ValueError(
        f"{path}, line {number}, is not JSON ({error}): each line must be one "
        'whole object like {"text": "..."}.'
      ) from error
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
      raise ValueError(
        f"{path}, line {number}, is no JSON object with a string in its field "
        '"text".'
      )
    document = [
      sentence
      for paragraph in text.splitlines()
      for sentence in split_sentences(paragraph)
    ]
    if document:
      yield document
