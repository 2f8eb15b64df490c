"""Text files to documents: lists of sentences.

Plain text holds one sentence a line and a blank line between documents (the
form of google-research/albert create_pretraining_data.py); with
`split_sentences` its lines are paragraphs. JSON lines hold one document a line
in the field `text`, whose lines are paragraphs. The name decides: `.jsonl`,
`.json` and the same with `.gz`, `.zst` or `.zstd` are JSON lines, anything
else is text.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Iterator, Optional, Sequence

from tasks.pretraining import input_files, sentence_splitting

# Those who read want to find the files first.
find_files = input_files.find_files

_JSON_ENDINGS = (".jsonl", ".json")
_MAX_NAMED = 100


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
    sentence_splitting.check_language(self.sentence_language)

  def content(self, paths: Sequence[str]) -> dict[str, Any]:
    """What decides the sentences of these files, for a manifest."""
    value = dataclasses.asdict(self)
    if self.split_sentences or any(map(_is_json, paths)):
      value["sentence_splitter"] = sentence_splitting.splitter_name()
    return value


@dataclasses.dataclass
class Skipped:
  """What was passed over: how many, and the first hundred by name."""

  count: int = 0
  named: list[str] = dataclasses.field(default_factory=list)

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


class DocumentReader:
  """Iterates over the documents of files, one after the other.

  Attributes:
    total_bytes: size of all files, as they are stored.
    skipped: what the latest iteration has passed over.
  """

  def __init__(
    self,
    paths: Sequence[str],
    settings: ReaderSettings = ReaderSettings(),
  ):
    self._sizes = {path: input_files.size_bytes(path) for path in paths}
    self._settings = settings
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

  def __iter__(self) -> Iterator[list[str]]:
    """Yields documents: non-empty lists of non-blank sentences.

    Raises:
      ValueError: a line is not UTF-8, or no JSON object with a text, or a
        file is empty, or not the compressed file that its name says; the
        message has the file and the line.
    """
    self._finished_bytes = 0
    self.skipped = Skipped()
    for path, size in self._sizes.items():
      parse = self._json_documents if _is_json(path) else self._text_documents
      is_empty, skipped_before = True, self.skipped.count
      with input_files.InputFile(path) as file:
        self._file = file
        try:
          for document in parse(path, file.lines()):
            is_empty = False
            yield document
        finally:
          self._file = None
      if is_empty and self.skipped.count == skipped_before:
        self._complain(
          f"{path} holds no document",
          "give a file with text, or pass over it with --skip_bad_documents.",
        )
      self._finished_bytes += size

  def _complain(self, problem: str, advice: str) -> None:
    if not self._settings.skip_bad_documents:
      raise ValueError(f"{problem}: {advice}")
    self.skipped.add(problem)

  def _split(self, paragraph: str) -> list[str]:
    return sentence_splitting.split_sentences(
      paragraph, self._settings.sentence_language
    )

  def _decoded(self, path: str, number: int, line: bytes) -> Optional[str]:
    """The text of a line; None if it is none and to be skipped."""
    try:
      # A byte order mark is no part of the text.
      return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
      self._complain(
        f"{path}, line {number}, is not UTF-8 (byte {error.start + 1} of the "
        "line)",
        "convert the file, for example with iconv, or pass over such "
        "documents with --skip_bad_documents.",
      )
      return None

  def _text_documents(
    self, path: str, lines: Iterator[tuple[int, bytes]]
  ) -> Iterator[list[str]]:
    document: list[str] = []
    # A document is skipped as a whole: without one of its sentences, those
    # around it would be taken for neighbours.
    is_bad = False
    for number, raw in lines:
      if is_bad:
        is_bad = bool(raw.strip())
        continue
      line = self._decoded(path, number, raw)
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

  def _json_documents(
    self, path: str, lines: Iterator[tuple[int, bytes]]
  ) -> Iterator[list[str]]:
    for number, raw in lines:
      line = self._decoded(path, number, raw)
      text = self._json_text(path, number, line) if line else None
      document = [
        sentence
        for paragraph in (text or "").splitlines()
        for sentence in self._split(paragraph)
      ]
      if document:
        yield document

  def _json_text(self, path: str, number: int, line: str) -> Optional[str]:
    """The field `text` of a line; None if there is none."""
    if not line.strip():
      return None
    try:
      value = json.loads(line)
    except (ValueError, RecursionError) as error:
      self._complain(
        f"{path}, line {number}, is not JSON ({error})",
        'each line must be one whole object like {"text": "..."}; pass over '
        "such lines with --skip_bad_documents.",
      )
      return None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
      self._complain(
        f"{path}, line {number}, is no JSON object with a string in its field "
        '"text"',
        "name the text so, or pass over such lines with --skip_bad_documents.",
      )
      return None
    return text


def _is_json(path: str) -> bool:
  return input_files.name_without_compression(path).endswith(_JSON_ENDINGS)
