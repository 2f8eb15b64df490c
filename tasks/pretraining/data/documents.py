"""Reads documents, which are lists of sentences, from text files.

Plain text has one sentence on a line and a blank line between documents, as in
google-research/albert create_pretraining_data.py. With `split_sentences` its
lines are paragraphs. JSON lines have one document on a line, in the field
`text`, whose lines are paragraphs. Files named `.jsonl` or `.json`, also with
`.gz`, `.zst` or `.zstd`, are JSON lines; all others are plain text.

`DocumentReader` cuts files into blocks of whole documents, and `parse` turns a
block into documents, which takes longer and can be done by many processes. A
`Tally` adds up the outcomes of the blocks.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import re
from typing import (
  Any,
  Iterable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

from tasks.pretraining.data import input_files

# Sentences are split by sentencex (Wikimedia, MIT). Of nine packages on PyPI it
# was the fastest (37 MB/s on one core) and made the fewest errors on 40 hard
# cases in 15 languages: 34 were right, 31 with pysbd, 20 to 27 with others. It
# needs no data at run time and loses no character. Other releases may cut
# differently, so the manifest of a dataset names the version.
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")


def check_language(language: str) -> None:
  """Raises ValueError for a string that does not look like a language code."""
  if not _LANGUAGE.fullmatch(language):
    raise ValueError(
      f"sentence_language is {language!r}, but must be an ISO code such as en, "
      "de or zh."
    )


@functools.cache
def splitter_name() -> str:
  """Returns, for example, "sentencex 1.0.32"."""
  import importlib.metadata  # Workers start faster without it.

  return f"sentencex {importlib.metadata.version('sentencex')}"


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
  """Splits a paragraph; only space between sentences is removed.

  Args:
    paragraph: text in which line breaks have no meaning.
    language: ISO code of the text, which determines the abbreviations. An
      unknown language is split like a related one or like English.
  """
  import sentencex  # Most text is already split.

  if not paragraph.isascii():
    # Remove unpaired surrogates, which JSON may contain.
    paragraph = paragraph.encode("utf-8", "ignore").decode("utf-8")
  sentences = (part.strip() for part in sentencex.segment(language, paragraph))
  return [sentence for sentence in sentences if sentence]


find_files = input_files.find_files

_JSON_ENDINGS = (".jsonl", ".json")
_MAX_NAMED = 100
_BLOCK_BYTES = 1 << 18  # Enough work to be sent to another process.
_LINE_END = re.compile(rb"\n")
_BLANK_LINE = re.compile(rb"\n[ \t\r\v\f]*\n")


@dataclasses.dataclass(frozen=True)
class ReaderSettings:
  """How files become documents.

  Attributes:
    split_sentences: whether the lines of plain text are paragraphs instead of
      sentences. The lines in JSON always are.
    sentence_language: ISO code of the language of paragraphs.
    skip_bad_documents: whether to skip documents that cannot be read, and files
      without documents. A compressed file that is cut or damaged is always an
      error, because any part of it may be missing.
  """

  split_sentences: bool = False
  sentence_language: str = "en"
  skip_bad_documents: bool = False

  def __post_init__(self):
    check_language(self.sentence_language)

  def content(self, paths: Sequence[str]) -> dict[str, Any]:
    """Returns what determines the sentences of these files, for a manifest."""
    value = dataclasses.asdict(self)
    if self.split_sentences or any(map(_is_json, paths)):
      value["sentence_splitter"] = splitter_name()
    return value


@dataclasses.dataclass
class Skipped:
  """Skipped documents: their number, and descriptions of the first hundred."""

  count: int = 0
  named: list[str] = dataclasses.field(default_factory=list)

  def complain(
    self, settings: ReaderSettings, problem: str, advice: str
  ) -> None:
    """Counts a problem, or raises ValueError if nothing may be skipped."""
    if not settings.skip_bad_documents:
      raise ValueError(f"{problem}: {advice}")
    self.add(problem)

  def add(self, problem: str) -> None:
    self.count += 1
    if len(self.named) < _MAX_NAMED:
      self.named.append(problem)

  def add_all(self, other: Skipped) -> None:
    self.count += other.count
    self.named += other.named[: _MAX_NAMED - len(self.named)]

  def describe(self, max_named: int = 10) -> str:
    """Returns a message for the user; "" if nothing was skipped."""
    if not self.count:
      return ""
    lines = [f"Skipped {self.count:,} bad documents:", *self.named[:max_named]]
    if self.count > max_named:
      lines.append(f"and {self.count - max_named:,} more")
    return "\n  ".join(lines)


class Block(NamedTuple):
  """Some consecutive documents of a file, not parsed.

  Attributes:
    path: path of the file.
    first_line: number of the first line in the file, from 1.
    data: whole lines. A block of plain text ends with a blank line or the file.
    ends_file: whether this is the last block of the file.
  """

  path: str
  first_line: int
  data: bytes
  ends_file: bool


class Outcome(NamedTuple):
  """The outcome of a block; `ended_file` is set if it ends its file."""

  num_documents: int
  skipped: Skipped
  ended_file: Optional[str]


@dataclasses.dataclass
class Tally:
  """The outcome of all blocks so far.

  Attributes:
    finished_files: number of files that have been read to the end.
    skipped: the documents that were skipped.
    is_empty: whether the current file has had no document so far.
  """

  finished_files: int = 0
  skipped: Skipped = dataclasses.field(default_factory=Skipped)
  is_empty: bool = True

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> Tally:
    """Returns the tally that `dataclasses.asdict` was called on."""
    return cls(**{**value, "skipped": Skipped(**value["skipped"])})

  def add(self, outcome: Outcome, settings: ReaderSettings) -> None:
    """Adds the outcome of the next block.

    Raises:
      ValueError: its file has ended without any document.
    """
    self.skipped.add_all(outcome.skipped)
    if outcome.num_documents or outcome.skipped.count:
      self.is_empty = False
    if outcome.ended_file is None:
      return
    self.finished_files += 1
    if self.is_empty:
      self.skipped.complain(
        settings,
        f"{outcome.ended_file} holds no document",
        "use a file with text, or skip it with --skip_bad_documents.",
      )
    self.is_empty = True


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    num_files: number of files.
    total_bytes: size of all files as they are stored.
    skipped: what the latest iteration has skipped.
  """

  def __init__(
    self,
    paths: Sequence[str],
    settings: ReaderSettings = ReaderSettings(),
  ):
    self._sizes = {path: input_files.size_bytes(path) for path in paths}
    self._settings = settings
    self.num_files = len(self._sizes)
    self.total_bytes = sum(self._sizes.values())
    self.skipped = Skipped()
    self._finished_bytes = 0
    self._file: Optional[input_files.InputFile] = None

  @property
  def bytes_read(self) -> int:
    """Bytes that have been read, out of `total_bytes`."""
    if self._file is None:
      return self._finished_bytes
    return self._finished_bytes + self._file.bytes_read

  def blocks(self) -> Iterator[Block]:
    """Yields the blocks of all files; the same blocks in each iteration.

    Raises:
      ValueError: a compressed file is cut or damaged. The blocks before the
        damage have been yielded.
    """
    self._finished_bytes = 0
    for path, size in self._sizes.items():
      end = _LINE_END if _is_json(path) else _BLANK_LINE
      with input_files.InputFile(path) as file:
        self._file = file
        try:
          for line, data, is_last in file.blocks(end, _BLOCK_BYTES):
            yield Block(path, line, data, is_last)
        finally:
          self._file = None
      self._finished_bytes += size

  def batches(self) -> Iterator[list[list[str]]]:
    """Yields the documents of each block as a list; see `parse`.

    Raises:
      ValueError: see `blocks`, `parse` and `Tally.add`.
    """
    tally = Tally()
    self.skipped = tally.skipped
    for block in self.blocks():
      documents, outcome = parse(block, self._settings)
      tally.add(outcome, self._settings)
      yield documents

  def __iter__(self) -> Iterator[list[str]]:
    """Yields the documents of all `batches`."""
    for batch in self.batches():
      yield from batch


def parse(
  block: Block, settings: ReaderSettings
) -> tuple[list[list[str]], Outcome]:
  """Parses a block into documents: non-empty lists of non-blank sentences.

  Raises:
    ValueError: a line is not UTF-8 or not a JSON object with a text, and bad
      documents are not skipped. The message names the file and the line.
  """
  parser = _Parser(block.path, settings)
  read = parser.json_documents if _is_json(block.path) else parser.documents
  # bytes.splitlines would split at other characters too.
  lines = enumerate(io.BytesIO(block.data), block.first_line)
  documents = list(read(lines))
  ended_file = block.path if block.ends_file else None
  return documents, Outcome(len(documents), parser.skipped, ended_file)


class _Parser:
  """Parses lines; `skipped` counts the documents that were skipped."""

  def __init__(self, path: str, settings: ReaderSettings):
    self._path = path
    self._settings = settings
    self.skipped = Skipped()

  def _complain(self, number: int, problem: str, advice: str) -> None:
    self.skipped.complain(
      self._settings, f"{self._path}, line {number}, is {problem}", advice
    )

  def _split(self, paragraph: str) -> list[str]:
    return split_sentences(paragraph, self._settings.sentence_language)

  def _decoded(self, number: int, line: bytes) -> Optional[str]:
    """Returns the text of a line; None if it is skipped."""
    try:
      # "utf-8-sig" removes a byte order mark.
      return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
      self._complain(
        number,
        f"not UTF-8 (byte {error.start + 1} of the line)",
        "convert the file, for example with iconv, or skip such documents with "
        "--skip_bad_documents.",
      )
      return None

  def documents(
    self, lines: Iterable[tuple[int, bytes]]
  ) -> Iterator[list[str]]:
    document: list[str] = []
    # A document is skipped as a whole. Without one of its sentences, the others
    # would seem to be consecutive.
    is_bad = False
    for number, raw in lines:
      if is_bad:
        is_bad = bool(raw.strip())
        continue
      line = self._decoded(number, raw)
      if line is None:
        document, is_bad = [], True
        continue
      line = line.strip()
      if line:
        splits = self._settings.split_sentences
        document += self._split(line) if splits else [line]
      elif document:
        yield document
        document = []
    if document:
      yield document

  def json_documents(
    self, lines: Iterable[tuple[int, bytes]]
  ) -> Iterator[list[str]]:
    for number, raw in lines:
      line = self._decoded(number, raw)
      text = self._json_text(number, line) if line else None
      document = [
        sentence
        for paragraph in (text or "").splitlines()
        for sentence in self._split(paragraph)
      ]
      if document:
        yield document

  def _json_text(self, number: int, line: str) -> Optional[str]:
    """Returns the field `text` of a line; None if there is none."""
    if not line.strip():
      return None
    try:
      value = json.loads(line)
    except (ValueError, RecursionError) as error:
      self._complain(
        number,
        f"not JSON ({error})",
        'each line must be a complete object like {"text": "..."}; skip other '
        "lines with --skip_bad_documents.",
      )
      return None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
      self._complain(
        number,
        'no JSON object with a string in its field "text"',
        "rename the field, or skip such lines with --skip_bad_documents.",
      )
      return None
    return text


def _is_json(path: str) -> bool:
  return input_files.name_without_compression(path).endswith(_JSON_ENDINGS)
