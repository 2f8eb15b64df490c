"""Tests of windows: layout, answers, and real questions."""

from __future__ import annotations

import pytest

from official_albert import tokenization
from official_albert.tasks.squad import examples, windows
from official_albert.testing import toy_models

_WORDS = "a b c d e f g h i j k l m n o p q".split()


@pytest.fixture
def tokenizer(tmp_path):
  return toy_models.wordpiece(tmp_path, *_WORDS, "##x", "$")


def example(context: str, *answers, question="q p o", **options):
  return examples.SquadExample("id7", question, context, answers, **options)


def test_layout(tokenizer):
  (window,) = windows.make_windows(
    example("A b  Cx.", ("b  C", 2)), tokenizer, max_seq_length=13
  )
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  query, context = tokenizer.encode("q p o"), tokenizer.encode("a b cx.")
  assert len(query) == 3 and len(context) == 5
  assert window == windows.Window(
    question_id="id7",
    input_ids=[cls, *query, sep, *context, sep],
    segment_ids=[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
    context_start=5,
    first_token=0,
    token_starts=[0, 2, 5, 6, 7],
    token_ends=[1, 3, 6, 7, 8],
    start_position=6,
    end_position=7,
    is_impossible=False,
  )
  assert windows.p_mask(window) == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1]
  assert windows.p_mask(window, 13) == [*windows.p_mask(window), 1, 1]


def test_overlapping_windows(tokenizer):
  # 17 tokens in windows of 8.
  found = windows.make_windows(
    example(" ".join(_WORDS), ("h i", 14)), tokenizer, 14, doc_stride=3
  )
  assert [window.first_token for window in found] == [0, 3, 6, 9]
  assert [window.token_starts[0] for window in found] == [0, 6, 12, 18]
  assert [len(window.token_starts) for window in found] == [8, 8, 8, 8]
  # "h i", tokens 7 and 8, are not both in the first or in the last window.
  assert [w.is_impossible for w in found] == [True, False, False, True]
  assert [(w.start_position, w.end_position) for w in found] == [
    (0, 0),
    (9, 10),
    (6, 7),
    (0, 0),
  ]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 23, 100])
@pytest.mark.parametrize("space,stride", [(8, 3), (8, 8), (5, 70), (1, 1)])
def test_windows_cover_every_token(tokenizer, count, space, stride):
  one = example(" ".join(["a"] * count), question="q")
  found = windows.make_windows(one, tokenizer, space + 4, stride)
  parts = [(w.first_token, w.first_token + len(w.token_starts)) for w in found]
  assert parts[0][0] == 0 and parts[-1][1] == count
  assert all(0 < end - begin <= space for begin, end in parts)
  for (begin, end), (next_begin, _) in zip(parts, parts[1:]):
    assert next_begin == begin + min(space, stride) <= end < count


def test_answer_tokens():
  # Tokens: "a", a space, and "½" in two parts.
  context = tokenization.EncodedText([5, 6, 7, 8], [0, 4, 4, 4], [1, 4, 5, 5])

  def tokens(text, start):
    return windows.answer_tokens(context, text, start)

  assert tokens("a", 0) == (0, 0)
  assert tokens("½", 4) == (2, 3)
  assert tokens("a   ½", 0) == (0, 3)
  assert tokens(" ½ ", 3) == (2, 3)
  # Between tokens and after the last one, the nearest token.
  assert tokens("\u200b", 2) == (1, 1)
  assert tokens("\u200b", 9) == (3, 3)
  empty = tokenization.EncodedText([], [], [])
  assert windows.answer_tokens(empty, "\u200b", 0) is None


def test_questions_without_an_answer(tokenizer):
  for one in (example("a b", is_impossible=True), example("a b")):
    (window,) = windows.make_windows(one, tokenizer, 16)
    assert (window.start_position, window.end_position) == (0, 0)
    assert window.is_impossible
  # Of several answers the first counts.
  several = example("a b c", ("b c", 2), ("b", 2))
  (window,) = windows.make_windows(several, tokenizer, 16)
  assert (window.start_position, window.end_position) == (6, 7)
  # A context without tokens.
  (window,) = windows.make_windows(
    example("\u200b", ("\u200b", 0)), tokenizer, 9
  )
  assert window.input_ids[-2:] == [tokenizer.sep_id] * 2
  assert window.token_starts == [] and window.is_impossible
  assert windows.p_mask(window) == [0, 1, 1, 1, 1, 1]


def test_long_question(tokenizer):
  one = example("a", question="a b c d e f g")
  (window,) = windows.make_windows(one, tokenizer, 8, max_query_length=4)
  assert window.input_ids == [2, 5, 6, 7, 8, 3, 5, 3]
  with pytest.raises(ValueError, match="max_seq_length 7 leaves no .* 4 token"):
    windows.make_windows(one, tokenizer, 7, max_query_length=4)
