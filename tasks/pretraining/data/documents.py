"""Finds text files and reads documents, which are lists of sentences.

Plain text has one sentence per line and a blank line between documents, as in
google-research/albert create_pretraining_data.py. With `split_sentences`, its
lines are paragraphs. JSON lines have one document per line, whose lines are
paragraphs. Files of Parquet and Arrow (also those of the library datasets) have
a document in each row, in a column of strings.

`DocumentReader` cuts files into blocks of whole documents, and `parse`, which
takes longer, turns a block into documents.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any, Iterator, Mapping, NamedTuple

from official_albert import files, text_files
from official_albert.tasks.pretraining.data.settings import ReaderSettings

BLOCK_BYTES = 1 << 19  # Enough work for one call to another process.
_MAX_DOCUMENT_BYTES = 1 << 26  # Of plain text, which is kept in memory.
_TABLES_OF_TEXT = (".csv", ".tsv", ".conllu")
_END_OF_TEXT = b"<|endoftext|>"  # Of GPT-2, as in TinyStories.
_NUMBERED = re.compile(rb"(?:\xef\xbb\xbf)?\d+\t[^\n]*\n\d+\t")
_MAX_WEIGHT = 1000
_WEIGHT = re.compile(r"(.+):(\d+(?:\.\d+)?)")


class Block(NamedTuple):
  """Some consecutive documents of a file, not parsed.

  Attributes:
    first_line: the number of the first line in the file, from 1.
    data: whole lines. A block of plain text ends with a blank line or the file.
    kind: "text", "json" or "rows"; those of a table are JSON lines here.
  """

  path: str
  first_line: int
  data: bytes
  kind: str = "text"
  weight: float = 1


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    weights: the weight of each file, from `find_files`.
    stats: the size as stored in bytes and the modification time in ns of each.
    total_bytes: the size of all files as stored.
    bytes_read: how many of these bytes the latest iteration has read.
  """

  def __init__(self, weights: Mapping[str, float], settings: ReaderSettings):
    """Checks that the files are text."""
    self.weights, self._settings = weights, settings
    # Threads would not help: `gfile.stat` holds Python's global lock.
    self.stats = {path: files.stat(path) for path in weights}
    # Refuses what is no text before any work.
    self._kinds = {path: _kind(path, settings.text_column) for path in weights}
    self.total_bytes = sum(size for size, _ in self.stats.values())
    self.bytes_read = 0

  def blocks(self) -> Iterator[Block]:
    """Yields the blocks of all files; the same blocks in each iteration."""
    finished = 0
    for path, (size, _) in self.stats.items():
      with files.open(path, "rb") as file:
        first = Block(path, 1, b"", self._kinds[path], self.weights[path])
        for block in _read_blocks(first, file, self._settings.text_column):
          self.bytes_read = finished + file.tell()
          yield block
      finished += size
    self.bytes_read = finished

  def __iter__(self) -> Iterator[list[str]]:
    for block in self.blocks():
      yield from parse(block, self._settings)


def _kind(path: str, column: str) -> str:
  """Returns the kind of a `Block` of a file; ValueError if it is no text."""
  head = text_files.read_head(path)
  if head.startswith(text_files.TABLE_HEADS):
    with files.open(path, "rb") as file:
      next(_table_rows(path, file, column), None)
    return "rows"
  text_files.check_head(path, head)
  if _NUMBERED.match(head):
    raise ValueError(
      f"{path} is a table with numbers before its texts, as of the Leipzig "
      "Corpora: leave them out, for example with cut -f 2-."
    )
  if text_files.is_json_lines(path, head):
    return "json"
  if _END_OF_TEXT in head:
    raise ValueError(
      f"{path} has {_END_OF_TEXT.decode()} between its documents, which would "
      "be taken for text: write a blank line instead, and none within them."
    )
  return "text"


def _read_blocks(block: Block, file: Any, column: str) -> Iterator[Block]:
  """Yields the blocks of an open file, given an empty one of it."""
  path, is_text, is_empty = block.path, block.kind == "text", True
  if block.kind == "rows":
    content = _table_rows(path, file, column)
  else:
    content = text_files.lines(path, file)
  lines, size = list[bytes](), 0
  for line in content:
    lines.append(line)
    size += len(line)
    is_empty = is_empty and not line.strip()
    # Documents of plain text end with a blank line.
    if size >= BLOCK_BYTES and not (is_text and line.strip()):
      yield block._replace(data=b"".join(lines))
      block = block._replace(first_line=block.first_line + len(lines))
      lines, size = [], 0
    if is_text and size > _MAX_DOCUMENT_BYTES:
      raise ValueError(
        f"{path}, from line {block.first_line} on, has {size >> 20} MB without "
        "a blank line, so that all this is one document: write a blank line "
        "between documents."
      )
  if is_empty:
    raise ValueError(f"{path} holds no document: use a file with text.")
  yield block._replace(data=b"".join(lines))


def _table_rows(path: str, file: Any, column: str) -> Iterator[bytes]:
  """Yields the rows of an open table as JSON lines."""
  for row in text_files.table_rows(path, file, [column]):
    # Bytes, numbers and nulls are no texts.
    text = row[column] if isinstance(row[column], str) else None
    yield json.dumps({column: text}).encode() + b"\n"


def parse(block: Block, settings: ReaderSettings) -> list[list[str]]:
  """Parses a block into documents: non-empty lists of non-blank sentences."""
  is_text = block.kind == "text"
  place = "row" if block.kind == "rows" else "line"
  found: list[list[str]] = [[]]
  # bytes.splitlines would split at other characters too.
  for number, raw in enumerate(io.BytesIO(block.data), block.first_line):
    where = f"{block.path}, {place} {number}"
    try:
      # "utf-8-sig" removes a byte order mark.
      line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
      raise ValueError(
        f"{where}, is not UTF-8: convert the file, for example with iconv."
      ) from error
    if not is_text or not line:
      found.append([])
    if not line:
      continue
    if is_text and not settings.split_sentences:
      found[-1].append(line)
      continue
    paragraphs = [line]
    if not is_text:
      paragraphs = _json_text(line, settings.text_column, where).splitlines()
    for paragraph in paragraphs:
      found[-1] += split_sentences(paragraph, settings.sentence_language)
  return [document for document in found if document]


def _json_text(line: str, column: str, where: str) -> str:
  """Returns the text of a JSON line."""
  try:
    value = json.loads(line, object_pairs_hook=files.unique_keys)
    if isinstance(value, dict) and isinstance(value.get(column), str):
      return value[column]
    problem = "it is another value"
  except (ValueError, RecursionError) as error:
    problem = str(error)
  raise ValueError(
    f'{where}, must be a JSON object with a string in its field "{column}", '
    f"but {problem}: name the field by --text_column, or remove such documents."
  )


def split_sentences(paragraph: str, language: str) -> list[str]:
  """Splits a paragraph; only space between sentences is removed.

  Of nine packages on PyPI, sentencex (Wikimedia, MIT) was the fastest (37 MB/s
  on one core) and the most accurate on 40 hard cases in 15 languages: 34
  correct, against 31 with pysbd and 20 to 27 with others. It splits an unknown
  language like a related one or like English.
  """
  import sentencex  # Most text is already split.

  if not paragraph.isascii():
    # Remove unpaired surrogates, which JSON may contain.
    paragraph = paragraph.encode("utf-8", "ignore").decode("utf-8")
  sentences = (part.strip() for part in sentencex.segment(language, paragraph))
  return [sentence for sentence in sentences if sentence]


def find_files(patterns: str, takes_weights: bool = True) -> dict[str, float]:
  """Finds the files of a comma-separated list of names and globs.

  Returns the weight of each file, which a name or glob may end with, such as
  `wiki/*:2`; it is 1 by default. A name or glob without a file is an error, and
  so is a weight without `takes_weights`.
  """
  names = [name.strip() for name in patterns.split(",") if name.strip()]
  if not names:
    raise ValueError("input_files is empty: name at least one text file.")
  found: dict[str, float] = {}
  for name in names:
    weight = 1.0
    weighted = _WEIGHT.fullmatch(name)
    if weighted and not files.exists(name):
      if not takes_weights:
        raise ValueError(
          f"{name}: each file is read once here: leave out its weight."
        )
      name, weight = weighted[1], float(weighted[2])
      if not 0 < weight <= _MAX_WEIGHT:
        raise ValueError(
          f"the weight of {name} is {weight:g}, but must be above 0 and at "
          f"most {_MAX_WEIGHT:,}."
        )
    matches = [name] if files.exists(name) else files.glob(name)
    matches = [path for path in matches if not files.is_dir(path)]
    if not matches:
      raise FileNotFoundError(
        f"no input file matches {name!r}: name files, or those in a folder by "
        "FOLDER/*."
      )
    for path in matches:
      if found.setdefault(path, weight) != weight:
        raise ValueError(f"{path} has two weights: name it once.")
      if text_files.without_ending(path).lower().endswith(_TABLES_OF_TEXT):
        raise ValueError(
          f"{path} is a table, whose separators and quotes would be taken for "
          "text: write its texts to JSON lines, as the key text."
        )
  return found
