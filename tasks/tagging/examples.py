"""Reads tagged words: CoNLL files, and tables with lists of tags or of spans.

    EU    B-ORG        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}
    rejects  O         {"text": "EU rejects",
                        "spans": [{"start": 0, "end": 2, "label": "ORG"}]}

Tags of all schemes become BIO, which have the same entities; see `tags`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

from official_albert import files, text_files, tokenization
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.common import rows
from official_albert.tasks.tagging import tags as tags_lib

_TEXT, _LABEL = "text", "label"  # The defaults of the flags.
_TAGS, _SPANS = ("tags", "ner_tags"), ("spans", "entities")
_BLANKS = " \t\r\n"


@dataclasses.dataclass(frozen=True)
class TaggedText:
  """A text with its words; tokens of a file are joined by spaces.

  Attributes:
    guid: the number of the text in its file, from 0.
    words: where each word begins and ends.
    tags: the tag of each word, BIO if they make entities; None if unknown.
    where: the place in the file, for messages.
  """

  guid: str
  text: str
  words: tuple[tuple[int, int], ...]
  tags: Optional[tuple[str, ...]] = None
  where: str = dataclasses.field(default="", repr=False, compare=False)

  @property
  def texts(self) -> list[str]:
    """The text."""
    return [self.text]


# The place, the text, its words and its tags.
_Row = tuple[str, str, list[tuple[int, int]], Optional[tuple[str, ...]]]


def read_examples(
  names: str,
  text_column: str = _TEXT,
  label_column: str = _LABEL,
  note: Callable[[str], None] = print,
) -> list[TaggedText]:
  """Reads files; `names` are those of `common.rows.find_tables`.

  Raises:
    ValueError: a file is not in one of the formats, or tags are of several
      schemes.
  """
  found: list[_Row] = []
  inexact: list[str] = []
  for path in rows.find_tables(names):
    if text_files.without_ending(path).endswith((".csv", ".xlsx")):
      raise ValueError(
        f"{path} must be a CoNLL file, JSON lines, Parquet or Arrow."
      )
    if rows.is_table(path):
      found += _read_table(path, text_column, label_column, inexact)
    else:
      found += _read_conll(path, text_column, label_column)
  if not found:
    raise ValueError(f"{names} has no words.")
  if inexact:
    note(
      f"{names}: {len(inexact):,} spans begin or end within a word, which has "
      f"the label as a whole; the first is {inexact[0]}"
    )
  known = {tag for *_, tags in found for tag in tags or ()}
  has_entities = tags_lib.make_entities(known)
  changed: tuple[str, ...] = ()
  examples = []
  for number, (where, text, words, tags) in enumerate(found):
    if tags is not None and has_entities:
      entities = tags_lib.spans(tags)
      bio = tags_lib.to_bio(len(tags), entities)
      changed = changed or next(
        ((a, b) for a, b in zip(tags, bio) if a != b), ()
      )
      tags = bio
    examples.append(TaggedText(str(number), text, (*words,), tags, where))
  marked = {tag for tag in known if tags_lib.make_entities([tag])}
  plain = known - marked
  if has_entities and plain and marked - {tags_lib.OUTSIDE}:
    raise ValueError(
      f"{names} has the tags {files.quote(*sorted(plain)[:3])} without B- or "
      f"I-, and {files.quote(*sorted(marked)[:3])} with one: write all in one "
      "scheme."
    )
  if changed:
    note(
      f"{names}: tags become BIO with the same entities, such as {changed[0]} "
      f"here {changed[1]}"
    )
  return examples


def find_labels(examples: Iterable[TaggedText], path: str) -> tuple[str, ...]:
  """Returns the classes: O, then B- and I- of each name; or all other tags."""
  known = {tag for example in examples for tag in example.tags or ()}
  if not known - {tags_lib.OUTSIDE}:
    raise ValueError(f"{path}: no word of the training data has a tag but O.")
  for tag in known:
    if not labels_lib.fits_cell(tag):
      raise ValueError(f"{path}: the tag {tag!r} has a line break: rename it.")
  if not tags_lib.make_entities(known):
    return tuple(sorted(known))
  names = sorted({tag[2:] for tag in known - {tags_lib.OUTSIDE}})
  marked = (f"{mark}-{name}" for name in names for mark in "BI")
  return (tags_lib.OUTSIDE, *marked)


def _joined(where: str, words: list[str], tags: Optional[list[str]]) -> _Row:
  """Returns the row of words, which are joined by spaces."""
  spans, begin = [], 0
  for word in words:
    spans.append((begin, begin + len(word)))
    begin += len(word) + 1
  return where, " ".join(words), spans, None if tags is None else (*tags,)


def _read_conll(
  path: str, text_column: str, label_column: str
) -> Iterator[_Row]:
  """Yields the sentences of a file with a word on each line.

  A blank line, or -DOCSTART-, ends a sentence. Columns are separated by tabs or
  spaces. In .conllu, comments and the lines of several words (1-2) and of empty
  nodes (1.1) are skipped.
  """
  is_ud = text_files.without_ending(path).endswith(".conllu")
  places: tuple[int, int] = (0, 0)
  width, start = 0, 0
  words: list[str] = []
  tags: list[str] = []

  def sentence() -> Iterator[_Row]:
    if words:
      known = tags if places[1] >= 0 else None
      yield _joined(f"{path}, line {start}", words, known)
    words.clear()
    tags.clear()

  for number, line in rows.read_lines(path):
    where, stripped = f"{path}, line {number}", line.strip(_BLANKS)
    cells = [x.strip(" ") for x in line.rstrip("\r\n").split("\t")]
    if len(cells) == 1:
      cells = re.split(" +", stripped)
    if not stripped or cells[0] == "-DOCSTART-":
      yield from sentence()
      continue
    if is_ud and (line[0] == "#" or not cells[0].isdecimal()):
      continue
    if not width:
      width = len(cells)
      places, has_header = _places(
        where, cells, text_column, label_column, is_ud
      )
      if has_header:
        continue
    if len(cells) != width:
      raise ValueError(
        f"{where} has {len(cells)} columns, but the lines before it have "
        f"{width}: write a word and its tag on each line, and a blank line "
        "after each sentence."
      )
    if not all(cells[place] for place in places if place >= 0):
      raise ValueError(f"{where} lacks the word or its tag: fill it in.")
    start = start if words else number
    words.append(cells[places[0]])
    tags.append(cells[places[1]])
  yield from sentence()


def _places(
  where: str, cells: list[str], text_column: str, label_column: str, is_ud: bool
) -> tuple[tuple[int, int], bool]:
  """Returns the indices of word and tag, -1 if none; and if this is a header.

  Columns are numbers from 1, or names in a header. Otherwise, they are the
  first and the last one; in .conllu FORM and UPOS.
  """
  names = {text_column: 1 if is_ud else 0, label_column: 3 if is_ud else -1}
  given = [x for x in names if x not in (_TEXT, _LABEL) and not x.isdecimal()]
  has_header = bool(given) or {*names} <= {*cells}
  found = []
  for name, default in names.items():
    place = default % len(cells)
    if name.isdecimal():
      place = int(name) - 1
    elif has_header and name in cells:
      place = cells.index(name)
    if name in given and name not in cells or not 0 <= place < len(cells):
      raise ValueError(
        f"{where}: there is no column {name!r}, the columns are "
        f"{files.quote(*cells)}; give a name of this line, or a number from 1."
      )
    found.append(place)
  if len(cells) == 1:  # Only words.
    found[1:] = [-1]
  return (found[0], found[1]), has_header


def _read_table(
  path: str, text_column: str, label_column: str, inexact: list[str]
) -> Iterator[_Row]:
  """Yields the rows of JSON lines, Parquet or Arrow.

  `inexact` gets the places of spans that begin or end within a word.
  """
  header = next(iter(rows.read_table(path, []))).cells
  label = next(
    (x for x in (label_column, *_TAGS, *_SPANS) if x in header), None
  )
  names = [text_column, "tokens"]
  if label in _TAGS and text_column == _TEXT:
    names.reverse()
  text = next((x for x in names if x in header), text_column)
  for record in rows.read_table(path, [text, *([label] if label else [])]):
    where, words = record.where, record.cells[text]
    values = record.cells[label] if label else None
    if values is not None and not isinstance(values, list):
      raise ValueError(f"{where}: {label!r} must be a list of tags or spans.")
    if isinstance(words, list):
      for what, some in ((text, words), (label, values or ())):
        if not all(isinstance(x, str) and x.strip() for x in some):
          raise ValueError(
            f"{where}: {what!r} must be a list of words or of names of tags "
            f"that are not empty, got {files.quote(some)}; numbers have names "
            "in the description of the data set."
          )
      if values is not None and len(values) != len(words):
        raise ValueError(
          f"{where} has {len(words)} words and {len(values)} tags."
        )
      row = _joined(where, words, values)
    else:
      words = common.text_cell(record, text)
      places = tags_lib.split_words(words)
      tags = None
      if values is not None:
        tags = _tags_of(where, words, places, values, inexact)
      row = where, words, places, tags
    rows.refuse_surrogates(row[1], where)
    if row[2]:
      yield row


def _tags_of(
  where: str,
  text: str,
  words: list[tuple[int, int]],
  values: list[Any],
  inexact: list[str],
) -> tuple[str, ...]:
  """Returns the tags of words by spans of characters."""
  found: list[tags_lib.Span] = []
  end_before = (0, 0)  # In characters, and in words.
  spans = [_span(where, text, value) for value in values]
  for start, end, label in sorted(spans):
    shown = files.quote(text[start:end], most=40)
    inside = [i for i, (a, b) in enumerate(words) if a < end and b > start]
    if not inside:
      raise ValueError(f"{where}: the span {shown} has no word.")
    first, last = inside[0], inside[-1]
    if start < end_before[0] or first < end_before[1]:
      raise ValueError(
        f"{where}: the span {shown} from {start} to {end} overlaps another one "
        "or is in the same word, but a word has one tag: leave one out."
      )
    trimmed = text[start:end].strip()
    if len(trimmed) != len(text[words[first][0] : words[last][1]]):
      inexact.append(f"{shown} in {where}")
    end_before = end, last + 1
    found.append(tags_lib.Span(label, first, last + 1))
  return tags_lib.to_bio(len(words), found)


def _span(where: str, text: str, value: Any) -> tuple[int, int, str]:
  """Returns start, end and label of a dict, or of a list of them."""
  if isinstance(value, dict):
    value = [value.get(name) for name in ("start", "end", "label")]
  fits = isinstance(value, list) and list(map(type, value)) == [int, int, str]
  if not fits or not 0 <= value[0] < value[1] <= len(text) or not value[2]:
    raise ValueError(
      f"{where} has the span {files.quote(value)}, which must have a label and "
      f"characters start < end from 0 to {len(text)}."
    )
  return value[0], value[1], value[2]


class Window(NamedTuple):
  """A part of a text as [CLS] pieces [SEP]; each piece is its own in one.

  Attributes:
    example: the index of the text.
    begin: the first piece.
    own: the pieces that are tagged here.
  """

  example: int
  input_ids: list[int]
  begin: int
  own: range


def make_windows(
  encoded: Iterable[tokenization.EncodedText],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
) -> Iterator[Window]:
  """Yields the windows of each text, which overlap by a half.

  So a piece has at least a quarter of a window on both sides, or the end of the
  text. `serving` does the same in the graph.
  """
  space = tokenization.available_tokens(max_seq_length, 1)
  margin, step = overlap(space)
  for number, (ids, _, _) in enumerate(encoded):
    steps = -(-max(len(ids) - space, 0) // step)
    for i in range(steps + 1):
      begin = i * step
      first = begin + margin if i else 0
      end = begin + margin + step if i < steps else len(ids)
      part = ids[begin : begin + space]
      packed = [tokenizer.cls_id, *part, tokenizer.sep_id]
      yield Window(number, packed, begin, range(first, end))


def overlap(space: int) -> tuple[int, int]:
  """Returns the pieces before those of a window's own, and how many these are.

  `space` is the number of pieces in a window.
  """
  return space // 4, space - 2 * (space // 4)
