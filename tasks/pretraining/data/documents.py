"""Text files to documents: lists of sentences.

Plain text holds one sentence a line and a blank line between documents (the
form of google-research/albert create_pretraining_data.py); with
`split_sentences` its lines are paragraphs. JSON lines hold one document a line
in the field `text`, whose lines are paragraphs. The name decides: `.jsonl`,
`.json` and the same with `.gz`, `.zst` or `.zstd` are JSON lines, anything
else is text.

Reading is in two steps, so that many processes can do the second, the long
one: `DocumentReader` cuts files into blocks of whole documents, `parse` makes
documents of a block, and a `Tally` adds up what has come of the blocks.
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

# Sentences are split by sentencex (Wikimedia, MIT): of what is on PyPI it is
# the fastest, and the one that errs least on 40 hard cases in 15 languages
# (abbreviations, initials, decimals, quotes, ellipses, full stops of other
# scripts). It needs no data at run time and loses no character. Releases cut
# differently, so the manifest of a dataset names the version.
#
#     newest release       right of 40   MB/s on one core
#     sentencex 1.0.32              34   37    30 with language "en" throughout
#     pysbd 0.3.4                   31   0.25  23 with language "en" throughout
#     sentence-splitter 1.4         27   1.5   LGPL
#     blingfire 0.1.8               26   12    cuts before closing quotes
#     mwtokenizer 0.2.0             25   5.4
#     a regular expression          24   23    what was used before
#     syntok 1.4.4                  23   1.2   changes characters
#     razdel 0.5.0                  21   8.1   made for Russian
#     segtok 1.5.11                 20   2.6
#
# Not measured: NLTK's punkt, which downloads data, and wtpsplit, a neural
# network.
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")


def check_language(language: str) -> None:
  """Complains about what is no language code.

  Raises:
    ValueError: it is not of the form of one.
  """
  if not _LANGUAGE.fullmatch(language):
    raise ValueError(
      f"sentence_language is {language!r}, but must be an ISO code such as en, "
      "de or zh."
    )


@functools.cache
def splitter_name() -> str:
  """For example "sentencex 1.0.32"; another version may cut differently."""
  import importlib.metadata  # Here, for workers start faster without it.

  return f"sentencex {importlib.metadata.version('sentencex')}"


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
  """Cuts a paragraph; but for space between sentences, nothing is lost.

  Args:
    paragraph: text without line breaks that would mean anything.
    language: ISO code; it decides what is an abbreviation. A language that
      sentencex does not know is cut like a related one, or like English.
  """
  import sentencex  # Here, for most text comes in sentences.

  if not paragraph.isascii():
    # Half a surrogate pair, which JSON can hold, is no character.
    paragraph = paragraph.encode("utf-8", "ignore").decode("utf-8")
  sentences = (part.strip() for part in sentencex.segment(language, paragraph))
  return [sentence for sentence in sentences if sentence]


# Those who read want to find the files first.
find_files = input_files.find_files

_JSON_ENDINGS = (".jsonl", ".json")
_MAX_NAMED = 100
_BLOCK_BYTES = 1 << 18  # What is worth a worker's while.
_LINE_END = re.compile(rb"\n")
_BLANK_LINE = re.compile(rb"\n[ \t\r\v\f]*\n")


@dataclasses.dataclass(frozen=True)
class ReaderSettings:
  """How files become documents.

  Attributes:
    split_sentences: the lines of plain text are paragraphs, not sentences.
      (Those of JSON lines always are.)
    sentence_language: ISO code of the text, for what is split.
    skip_bad_documents: pass over documents that can't be read, and over files
      without any; a compressed file that is cut or damaged stays an error, for
      nobody knows how much of it is lost.
  """

  split_sentences: bool = False
  sentence_language: str = "en"
  skip_bad_documents: bool = False

  def __post_init__(self):
    check_language(self.sentence_language)

  def content(self, paths: Sequence[str]) -> dict[str, Any]:
    """What decides the sentences of these files, for a manifest."""
    value = dataclasses.asdict(self)
    if self.split_sentences or any(map(_is_json, paths)):
      value["sentence_splitter"] = splitter_name()
    return value


@dataclasses.dataclass
class Skipped:
  """What was passed over: how many, and the first hundred by name."""

  count: int = 0
  named: list[str] = dataclasses.field(default_factory=list)

  def complain(
    self, settings: ReaderSettings, problem: str, advice: str
  ) -> None:
    """Counts what is to be passed over; else raises a ValueError."""
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
    """Lines for a person; nothing if nothing was skipped."""
    if not self.count:
      return ""
    lines = [f"Skipped {self.count:,} bad documents:", *self.named[:max_named]]
    if self.count > max_named:
      lines.append(f"and {self.count - max_named:,} more")
    return "\n  ".join(lines)


class Block(NamedTuple):
  """Some neighbouring documents of a file as they are stored.

  Attributes:
    path: of the file.
    first_line: its number in the file, from 1.
    data: whole lines; with plain text it ends at a blank one, or the file does.
    ends_file: whether the file has no more.
  """

  path: str
  first_line: int
  data: bytes
  ends_file: bool


class Outcome(NamedTuple):
  """What has come of a block; `ended_file` is the file that it ends, if any."""

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
        "give a file with text, or pass over it with --skip_bad_documents.",
      )
    self.is_empty = True


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    num_files: number of files.
    total_bytes: size of all files as they are stored.
    skipped: what the latest iteration has passed over.
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
    """How far reading has come, out of `total_bytes`."""
    if self._file is None:
      return self._finished_bytes
    return self._finished_bytes + self._file.bytes_read

  def blocks(self) -> Iterator[Block]:
    """Yields all files in blocks; the same whenever it is called.

    Raises:
      ValueError: a file is not the compressed file that its name says; what
        comes before the damage has been yielded.
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
    """Yields the documents of a block at once; see `parse`.

    Raises:
      ValueError: as `blocks`, `parse` and `Tally.add` say.
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
  """The documents of a block: non-empty lists of non-blank sentences.

  Raises:
    ValueError: a line is not UTF-8, or no JSON object with a text, and bad
      documents are not to be skipped; the message has the file and the line.
  """
  parser = _Parser(block.path, settings)
  read = parser.json_documents if _is_json(block.path) else parser.documents
  # Not bytes.splitlines, which knows other ends of lines too.
  lines = enumerate(io.BytesIO(block.data), block.first_line)
  documents = list(read(lines))
  ended_file = block.path if block.ends_file else None
  return documents, Outcome(len(documents), parser.skipped, ended_file)


class _Parser:
  """Lines to documents; `skipped` is what it has passed over."""

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
    """The text of a line; None if it is none and to be skipped."""
    try:
      # A byte order mark is no part of the text.
      return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
      self._complain(
        number,
        f"not UTF-8 (byte {error.start + 1} of the line)",
        "convert the file, for example with iconv, or pass over such "
        "documents with --skip_bad_documents.",
      )
      return None

  def documents(
    self, lines: Iterable[tuple[int, bytes]]
  ) -> Iterator[list[str]]:
    document: list[str] = []
    # A document is skipped as a whole: without one of its sentences, those
    # around it would be taken for neighbours.
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
    """The field `text` of a line; None if there is none."""
    if not line.strip():
      return None
    try:
      value = json.loads(line)
    except (ValueError, RecursionError) as error:
      self._complain(
        number,
        f"not JSON ({error})",
        'each line must be one whole object like {"text": "..."}; pass over '
        "such lines with --skip_bad_documents.",
      )
      return None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
      self._complain(
        number,
        'no JSON object with a string in its field "text"',
        "name the text so, or pass over such lines with --skip_bad_documents.",
      )
      return None
    return text


def _is_json(path: str) -> bool:
  return input_files.name_without_compression(path).endswith(_JSON_ENDINGS)
