"""Tests of the way back from changed text to the text before."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tokenization import text_offsets
from official_albert.tokenization.text_offsets import Spans


def form(char: str) -> int:
  """Toy rules: "." goes, "'" is a mark, "2" becomes two characters."""
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
    # What is gone joins the spaces around it, and belongs to no letter.
    (".a . .b.", [(1, 2), (2, 3), (6, 7)]),
    ("x2y", [(0, 1), (1, 2), (1, 2), (2, 3)]),
    # Marks belong to their letter, also across what is gone.
    ("a''b", [(0, 3), (3, 4)]),
    ("a.'b", [(0, 3), (3, 4)]),
    ("2'", [(0, 2), (0, 2)]),
    # A mark that stays shares the letter's place.
    ('a"b', [(0, 2), (0, 2), (2, 3)]),
    # One that has no letter: at the start, and after a space.
    ('"a', [(0, 1), (1, 2)]),
    ("a ' b", [(0, 1), (1, 2), (3, 4), (4, 5)]),
    ("'", []),
  ],
)
def test_character_spans(text, expected):
  assert spans_of(text) == expected


def test_half_a_surrogate_pair_has_a_place():
  codes = text_offsets.code_points("a\ud800\U0001f600")
  assert codes.tolist() == [0x61, 0xD800, 0x1F600]


def test_a_form_is_looked_up_once():
  asked = []
  table = text_offsets.FormTable(lambda char: asked.append(char) or 2)
  for _ in range(3):
    text_offsets.character_spans("abcab", table)
  assert asked == ["a", "b", "c"]


def test_piece_spans_leave_out_spaces_and_cut_pieces():
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
  # The empty span inside of "2" has it to itself no more than its neighbours.
  assert starts.tolist() == [0, 1, 1, 4, 4, 5]
  assert ends.tolist() == [2, 2, 3, 4, 5, 5]


def test_normalizer_spans():
  # Of "ab\x01  cd": "▁ab▁e", where c and d together become e.
  spans = text_offsets.normalizer_spans(
    [0, 0, 1, 3, 5, 7], [True, True, False, False, False, True, True]
  )
  assert spans.starts.tolist() == [0, 0, 1, 3, 5]
  # b ends before what was dropped, and a space ends where it begins.
  assert spans.ends.tolist() == [1, 1, 2, 3, 7]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
