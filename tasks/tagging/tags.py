"""Words of a text, their pieces, and the entities that tags say.

Tags are BIO (IOB2 and IOB1), BIOES or BILOU, or names alone with O (IO); then
they make entities. Others, such as parts of speech, are each word's own.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import re
import unicodedata
from typing import Any, Iterable, NamedTuple, Sequence

from official_albert.tasks import common

OUTSIDE = "O"
_MARKED = re.compile("([BIESLU])-(.+)", re.DOTALL)
_LIKE = {"L": "E", "U": "S"}
_PART = re.compile(f"[{common.NO_SPACES}]|[^{common.NO_SPACES}\\s]+")
_POSSESSIVE = re.compile("(.+)(['\u2019][sS])")
# Punctuation that begins a word of its own kind: @user, #topic.
_IN_WORDS = "@#&%_"


class Span(NamedTuple):
  """Words that are an entity, or a word with its tag: first, and end."""

  label: str
  first: int
  end: int


def split_words(text: str) -> list[tuple[int, int]]:
  """Returns where the words of a text begin and end.

  They are separated by spaces. Punctuation at either end of a word is a word,
  as is the 's of a possessive, and each character of scripts without spaces.
  """
  words = []
  for match in _PART.finditer(text):
    begin, end = match.span()
    first, last = begin, end
    while first < end and _is_punctuation(text[first]):
      first += 1
    while last > first and _is_punctuation(text[last - 1]):
      last -= 1
    bounds = [begin, first, last, end]
    if found := _POSSESSIVE.fullmatch(text, first, last):
      bounds.insert(2, found.start(2))
    words += [(a, b) for a, b in itertools.pairwise(bounds) if a < b]
  return words


def _is_punctuation(character: str) -> bool:
  category = unicodedata.category(character)
  return category[0] == "P" and character not in _IN_WORDS


def first_pieces(
  starts: Sequence[int], ends: Sequence[int], words: Iterable[tuple[int, int]]
) -> list[tuple[int, bool]]:
  """Returns the piece that each word is tagged by, and if it begins there.

  This is the first piece of the word, which may be a bare "▁". A word that
  begins within a piece, as in an unknown run of characters, has this piece;
  characters that the tokenizer deletes have none, which is -1.
  """
  found = []
  for start, end in words:
    piece = bisect.bisect_left(starts, start)
    is_own = piece < len(starts) and starts[piece] < end
    if not is_own:
      piece -= 1
      if piece >= 0 and ends[piece] <= start:
        piece = -1
    found.append((piece, is_own))
  return found


def of_words(
  pieces: Iterable[tuple[int, bool]],
  tags: Sequence[str],
  probabilities: Sequence[float],
) -> tuple[list[str], list[float]]:
  """Returns the tag of each word and its probability by those of all pieces.

  Words within a piece (see `first_pieces`) continue its entity; words without
  one are outside.
  """
  found: tuple[list[str], list[float]] = ([], [])
  for piece, is_own in pieces:
    tag = tags[piece] if piece >= 0 else OUTSIDE
    marked = None if is_own else _MARKED.fullmatch(tag)
    found[0].append(f"I-{marked[2]}" if marked else tag)
    found[1].append(probabilities[piece] if piece >= 0 else 1.0)
  return found


def make_entities(labels: Iterable[str]) -> bool:
  """Returns whether tags make entities."""
  names = {*labels}
  return OUTSIDE in names or bool(names) and all(map(_MARKED.fullmatch, names))


def spans(tags: Sequence[str], has_entities: bool = True) -> list[Span]:
  """Returns the entities as seqeval does by default, or a span for each word.

  A tag begins an entity if it is B or S, or comes after E or S, after O, or
  after another name.
  """
  found: list[Span] = []
  before = ("", "")
  for i, tag in enumerate(tags):
    marked = _MARKED.fullmatch(tag) if has_entities else None
    mark, name = marked.groups() if marked else ("I", tag)
    mark = _LIKE.get(mark, mark)
    if tag == OUTSIDE:
      mark = name = ""
    elif (
      not has_entities
      or mark in ("B", "S")
      or before[0] in ("", "E", "S")
      or name != before[1]
    ):
      found.append(Span(name, i, i + 1))
    else:
      found[-1] = found[-1]._replace(end=i + 1)
    before = mark, name
  return found


def to_bio(count: int, entities: Iterable[Span]) -> tuple[str, ...]:
  """Returns the BIO tags of `count` words."""
  tags = [OUTSIDE] * count
  for label, first, end in entities:
    tags[first:end] = [f"I-{label}"] * (end - first)
    tags[first] = f"B-{label}"
  return tuple(tags)


def find_spans(
  text: str,
  words: Sequence[tuple[int, int]],
  tags: Sequence[str],
  probabilities: Sequence[float],
  has_entities: bool,
) -> list[dict[str, Any]]:
  """Returns the text, start, end, label and probability of each span.

  The probability is the mean of those of its words.
  """
  found = []
  for label, first, end in spans(tags, has_entities):
    start, stop = words[first][0], words[end - 1][1]
    found.append(
      {
        "text": text[start:stop],
        "start": start,
        "end": stop,
        "label": label,
        "probability": sum(probabilities[first:end]) / (end - first),
      }
    )
  return found


# Of a label: precision, recall, F1, and the number of its spans in the data.
Row = tuple[float, float, float, int]


def report(
  gold: Iterable[Sequence[str]],
  predicted: Iterable[Sequence[str]],
  has_entities: bool,
) -> dict[str, Row]:
  """Returns the scores of each label that occurs, and of "" for all spans.

  A span is right if the label and both ends are. 0 / 0 is 0.
  """
  counts: Any = [collections.Counter() for _ in range(3)]
  for pair in zip(gold, predicted, strict=True):
    right, found = ({*spans(tags, has_entities)} for tags in pair)
    for counter, some in zip(counts, (right, found, right & found)):
      counter.update(span.label for span in some)
      counter[""] += len(some)
  rows_of = {}
  for label in sorted({*counts[0], *counts[1], ""}):
    total, found, hits = (counter[label] for counter in counts)
    rows_of[label] = (
      hits / max(found, 1),
      hits / max(total, 1),
      2 * hits / max(found + total, 1),
      total,
    )
  return rows_of


def scores(
  gold: Sequence[Sequence[str]],
  predicted: Sequence[Sequence[str]],
  has_entities: bool,
) -> dict[str, float]:
  """Returns F1, precision and recall of entities, and the words' accuracy.

  Of other tags, the accuracy and the mean F1 of those that occur.
  """
  pairs = [pair for both in zip(gold, predicted) for pair in zip(*both)]
  accuracy = sum(a == b for a, b in pairs) / max(len(pairs), 1)
  found = report(gold, predicted, has_entities)
  precision, recall, f1, _ = found.pop("")
  if has_entities:
    values = {"f1": f1, "precision": precision, "recall": recall}
    return {**values, "accuracy": accuracy}
  macro = sum(row[2] for row in found.values()) / max(len(found), 1)
  return {"accuracy": accuracy, "macro_f1": macro}
