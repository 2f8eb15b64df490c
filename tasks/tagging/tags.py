"""Words of a text, their pieces, and the entities that tags say.

Tags are BIO (IOB2 and IOB1), BIOES, BILOU or BMES, or names alone with O (IO);
then they make entities. Others, such as parts of speech, are each word's own.
"""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata
from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np

from official_albert.tasks import common

OUTSIDE = "O"
_MARKED = re.compile("([BIESLUM])-(.+)", re.DOTALL)
_LIKE = {"L": "E", "U": "S", "M": "I"}
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


def span_classes(
  gold: Iterable[Sequence[str]],
  predicted: Iterable[Sequence[str]],
  has_entities: bool,
) -> tuple[list[str], np.ndarray, np.ndarray]:
  """Returns the L labels of N spans, and what these are, <bool>[N, L] each.

  They are the spans of the data and of the predictions; the same label with the
  same ends is one span. The first array has True where the data has a span of a
  label, the second where it is predicted.
  """
  right, found = (
    {
      (i, *span)
      for i, tags in enumerate(some)
      for span in spans(tags, has_entities)
    }
    for some in (gold, predicted)
  )
  known = sorted(right | found)
  labels = sorted({label for _, label, *_ in known})
  classes = np.array([labels.index(label) for _, label, *_ in known], np.int64)
  is_label = classes[:, None] == np.arange(len(labels))
  is_right, is_found = (
    np.array([span in some for span in known], bool)[:, None]
    for some in (right, found)
  )
  return labels, is_label & is_right, is_label & is_found


def scores(
  gold: Sequence[Sequence[str]],
  predicted: Sequence[Sequence[str]],
  has_entities: bool,
) -> dict[str, float]:
  """Returns F1, precision and recall of entities, and the words' accuracy.

  A span is right if the label and both ends are. Of other tags, the accuracy
  and the mean F1 of those that occur. 0 / 0 is 0.
  """
  both = zip(gold, predicted, strict=True)
  equal = [a == b for pair in both for a, b in zip(*pair)]
  accuracy = sum(equal) / max(len(equal), 1)
  _, right, found = span_classes(gold, predicted, has_entities)
  hits = right & found
  if not has_entities:
    f1s = 2 * hits.sum(0) / (found.sum(0) + right.sum(0))
    macro = float(f1s.sum()) / max(len(f1s), 1)
    return {"accuracy": accuracy, "macro_f1": macro}
  count, of_found, of_right = (int(x.sum()) for x in (hits, found, right))
  return {
    "f1": 2 * count / max(of_found + of_right, 1),
    "precision": count / max(of_found, 1),
    "recall": count / max(of_right, 1),
    "accuracy": accuracy,
  }
