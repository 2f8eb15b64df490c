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
import io
import json
import re
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from tasks.pretraining.data import input_files

find_files = input_files.find_files

_JSON_ENDINGS = (".jsonl", ".json")
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")
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
    if not _LANGUAGE.fullmatch(self.sentence_language):
      raise ValueError(
        f"sentence_language is {self.sentence_language!r}, but must be an ISO "
        "code such as en, de or zh."
      )

  def content(self, paths: Sequence[str]) -> dict[str, Any]:
    """Returns what determines the sentences of these files, for a manifest."""
    value = dataclasses.asdict(self)
    if self.split_sentences or any(map(_is_json, paths)):
      import importlib.metadata  # Workers start faster without it.

      version = importlib.metadata.version("sentencex")
      value["sentence_splitter"] = f"sentencex {version}"
    return value


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


@dataclasses.dataclass
class Skipped:
  """Skipped documents: their number, and descriptions of the first hundred."""

  count: int = 0
  named: list[str] = dataclasses.field(default_factory=list)

  def add(self, *problems: str) -> None:
    """Counts skipped documents, given their descriptions."""
    self.add_all(Skipped(len(problems), list(problems)))

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


class Outcome(NamedTuple):
  """The outcome of a block; `ended_file` is "" if it does not end its file."""

  num_documents: int
  skipped: Skipped
  ended_file: str


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
    if not outcome.ended_file:
      return
    self.finished_files += 1
    if self.is_empty:
      problem = f"{outcome.ended_file} holds no document"
      if not settings.skip_bad_documents:
        raise ValueError(
          f"{problem}: use a file with text, or skip it with "
          "--skip_bad_documents."
        )
      self.skipped.add(problem)
    self.is_empty = True


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    num_files: number of files.
    total_bytes: size of all files as they are stored.
    bytes_read: how many of them the latest iteration has read.
    skipped: what the latest iteration has skipped.
  """

  def __init__(
    self,
    paths: Sequence[str],
    settings: ReaderSettings = ReaderSettings(),
  ):
    self._sizes = {path: input_files.size_and_time(path)[0] for path in paths}
    self._settings = settings
    self.num_files = len(self._sizes)
    self.total_bytes = sum(self._sizes.values())
    self.bytes_read = 0
    self.skipped = Skipped()

  def blocks(self) -> Iterator[Block]:
    """Yields the blocks of all files; the same blocks in each iteration.

    Raises:
      ValueError: a compressed file is cut or damaged. The blocks before the
        damage have been yielded.
    """
    finished = 0
    for path, size in self._sizes.items():
      end = _LINE_END if _is_json(path) else _BLANK_LINE
      blocks = input_files.read_blocks(path, end, _BLOCK_BYTES)
      for line, data, is_last, bytes_read in blocks:
        self.bytes_read = finished + bytes_read
        yield Block(path, line, data, is_last)
      finished += size
    self.bytes_read = finished

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


class _BadLineError(ValueError):
  """A line that cannot be read; its arguments are the problem and advice."""


def parse(
  block: Block, settings: ReaderSettings
) -> tuple[list[list[str]], Outcome]:
  """Parses a block into documents: non-empty lists of non-blank sentences.

  Raises:
    ValueError: a line is not UTF-8 or not a JSON object with a text, and bad
      documents are not skipped. The message names the file and the line.
  """
  skipped = Skipped()
  is_json = _is_json(block.path)
  documents: list[list[str]] = [[]]
  # A document is skipped as a whole. Without one of its sentences, the others
  # would seem to be consecutive.
  is_bad = False
  # bytes.splitlines would split at other characters too.
  for number, raw in enumerate(io.BytesIO(block.data), block.first_line):
    if is_json or not raw.strip():
      is_bad = False
      _end_document(documents)
    if is_bad:
      continue
    try:
      line = _decode(raw, number)
      paragraphs = _json_text(line).splitlines() if is_json else [line.strip()]
    except _BadLineError as error:
      problem, advice = error.args
      problem = f"{block.path}, line {number}, is {problem}"
      if not settings.skip_bad_documents:
        raise ValueError(f"{problem}: {advice}") from None
      skipped.add(problem)
      documents[-1] = []
      is_bad = True
      continue
    if not any(paragraphs):  # Unicode has more kinds of space than ASCII.
      _end_document(documents)
    elif is_json or settings.split_sentences:
      for paragraph in paragraphs:
        documents[-1] += split_sentences(paragraph, settings.sentence_language)
    else:
      documents[-1] += paragraphs
  if not documents[-1]:
    documents.pop()
  ended_file = block.path if block.ends_file else ""
  return documents, Outcome(len(documents), skipped, ended_file)


def _end_document(documents: list[list[str]]) -> None:
  if documents[-1]:
    documents.append([])


def _decode(raw: bytes, number: int) -> str:
  try:
    # "utf-8-sig" removes a byte order mark.
    return raw.decode("utf-8-sig" if number == 1 else "utf-8")
  except UnicodeDecodeError as error:
    raise _BadLineError(
      f"not UTF-8 (byte {error.start + 1} of the line)",
      "convert the file, for example with iconv, or skip such documents with "
      "--skip_bad_documents.",
    ) from error


def _json_text(line: str) -> str:
  """Returns the field `text` of a line; "" for a blank line."""
  if not line.strip():
    return ""
  try:
    value = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise _BadLineError(
      f"not JSON ({error})",
      'each line must be a complete object like {"text": "..."}; skip other '
      "lines with --skip_bad_documents.",
    ) from error
  text = value.get("text") if isinstance(value, dict) else None
  if not isinstance(text, str):
    raise _BadLineError(
      'no JSON object with a string in its field "text"',
      "rename the field, or skip such lines with --skip_bad_documents.",
    )
  return text


def split_sentences(paragraph: str, language: str) -> list[str]:
  """Splits a paragraph; only space between sentences is removed.

  Sentences are split by sentencex (Wikimedia, MIT). Of nine packages on PyPI it
  was the fastest (37 MB/s on one core) and made the fewest errors on 40 hard
  cases in 15 languages: 34 were right, 31 with pysbd, 20 to 27 with others. It
  needs no data at run time and loses no character. Other releases may cut
  differently, so the manifest of a dataset names the version.

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


def _is_json(path: str) -> bool:
  return input_files.name_without_compression(path).endswith(_JSON_ENDINGS)
