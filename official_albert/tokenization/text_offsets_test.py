"""Tests of spans."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tokenization import text_offsets
from official_albert.tokenization.text_offsets import Spans


def form(char: str) -> int:
  """Toy rules: "." is deleted, "'" is a mark, "2" becomes two characters."""
  if char == ".":
    return text_offsets.GONE
  if char == " ":
    return text_offsets.SPACE
  length = {"'": 0, "2": 2, '"': 1}.get(char, 1)
  return text_offsets.visible_form(length, char in "'\"")


def spans_of(text: str) -> list[tuple[int, int]]:
  spans = text_offsets.character_spans(text, text_offsets.FormTable(form))
  return list(zip(spans.starts.tolist(), spans.ends.tolist()))


@pytest.mark.parametrize(
  "text,expected",
  [
    ("", []),
    (" ", []),
    (" . ", []),
    ("ab", [(0, 1), (1, 2)]),
    ("  a   b  ", [(2, 3), (3, 4), (6, 7)]),
    # Deleted characters join the spaces around them and belong to no letter.
    (".a . .b.", [(1, 2), (2, 3), (6, 7)]),
    ("x2y", [(0, 1), (1, 2), (1, 2), (2, 3)]),
    # Marks belong to their letter, also after a deleted character.
    ("a''b", [(0, 3), (3, 4)]),
    ("a.'b", [(0, 3), (3, 4)]),
    ("2'", [(0, 2), (0, 2)]),
    # A mark that stays has the range of its letter.
    ('a"b', [(0, 2), (0, 2), (2, 3)]),
    # Marks without a letter: at the start and after a space.
    ('"a', [(0, 1), (1, 2)]),
    ("a ' b", [(0, 1), (1, 2), (3, 4), (4, 5)]),
    ("'", []),
    ("a\ud800\U0001f600", [(0, 1), (1, 2), (2, 3)]),
  ],
)
def test_character_spans(text, expected):
  assert spans_of(text) == expected


def test_forms_are_cached():
  asked = []
  table = text_offsets.FormTable(lambda char: asked.append(char) or 2)
  for _ in range(3):
    text_offsets.character_spans("abcab", table)
  assert asked == ["a", "b", "c"]


def test_piece_spans():
  ids, spans = text_offsets.piece_spans(
    [7, 8, 9, 5],
    ["▁tea", "▁", "▁▁x", "▁19,"],
    {5: [(3, 1, 3), (4, 3, 4)]},
  )
  assert ids == [7, 8, 9, 3, 4]
  assert spans.starts.tolist() == [1, 5, 7, 9, 11]
  assert spans.ends.tolist() == [4, 5, 8, 11, 12]


def spans(*pairs: tuple[int, int]) -> Spans:
  return Spans(*np.array(pairs).reshape(-1, 2).T)


def test_compose():
  # "x2y z" of the toy rules: x22y z.
  outer = spans((0, 1), (1, 2), (1, 2), (2, 3), (3, 4), (4, 5))
  inner = spans((0, 2), (2, 2), (2, 4), (5, 5), (5, 6), (6, 6))
  starts, ends = text_offsets.compose(inner, outer)
  # The empty span inside "2" gets all of it, like its neighbors.
  assert starts.tolist() == [0, 1, 1, 4, 4, 5]
  assert ends.tolist() == [2, 2, 3, 4, 5, 5]


def test_normalizer_spans():
  # "ab\x01  cd" becomes "▁ab▁e": c and d together become e.
  spans = text_offsets.normalizer_spans(
    [0, 0, 1, 3, 5, 7], [True, True, False, False, False, True, True]
  )
  assert spans.starts.tolist() == [0, 0, 1, 3, 5]
  # b ends before the dropped character, and a space ends where it begins.
  assert spans.ends.tolist() == [1, 1, 2, 3, 7]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
