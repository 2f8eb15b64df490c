"""Tests of windows: layout, answers, maximum context, and real questions."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from official_albert import tokenization
from tasks.squad import examples, windows

_SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
_RELEASED = _SHARED / "data" / "tokenizer" / "30k-clean.model"
_DEV = _SHARED / "data" / "squad" / "dev-v1.1.json"

_WORDS = "a b c d e f g h i j k l m n o p q".split()


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, "##x", "$"]
  path.write_text("\n".join(pieces))
  return tokenization.WordPieceTokenizer(path)


def example(context: str, *answers, question="q p o", **options):
  return examples.SquadExample("id7", question, context, answers, **options)


def test_layout(tokenizer):
  (window,) = windows.make_windows(
    example("A b  Cx.", ("b  C", 2)), tokenizer, max_seq_length=13
  )
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  query, context = tokenizer.encode("q p o"), tokenizer.encode("a b cx.")
  assert len(query) == 3 and len(context) == 5
  assert window.question_id == "id7"
  assert window.input_ids == [cls, *query, sep, *context, sep]
  assert window.segment_ids == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
  assert window.context_start == 5
  assert window.token_starts == [0, 2, 5, 6, 7]
  assert window.token_ends == [1, 3, 6, 7, 8]
  assert window.is_max_context == [True] * 5
  assert (window.start_position, window.end_position) == (6, 7)
  assert not window.is_impossible
  assert windows.p_mask(window) == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1]
  assert windows.p_mask(window, 13) == [*windows.p_mask(window), 1, 1]


def test_overlapping_windows(
  tokenizer,
):
  # 17 tokens in windows of 8: at 0, 3, 6 and 9.
  found = windows.make_windows(
    example(" ".join(_WORDS), ("h i", 14)), tokenizer, 14, doc_stride=3
  )
  starts = [window.token_starts[0] // 2 for window in found]
  assert starts == [0, 3, 6, 9]
  assert [len(window.token_starts) for window in found] == [8, 8, 8, 8]
  shown = [
    [start + i for i, best in enumerate(window.is_max_context) if best]
    for start, window in zip(starts, found)
  ]
  # Token 5 has 2 tokens after it in the first window and 2 before it in the
  # second; ties go to the first.
  assert shown == [
    [0, 1, 2, 3, 4, 5],
    [6, 7, 8],
    [9, 10, 11],
    list(range(12, 17)),
  ]
  # "h i", tokens 7 and 8, are not both in the first or in the last window.
  assert [w.is_impossible for w in found] == [True, False, False, True]
  assert [(w.start_position, w.end_position) for w in found] == [
    (0, 0),
    (9, 10),
    (6, 7),
    (0, 0),
  ]


def slow_best(position, parts):
  """Computes the best window of one token."""
  scores = [
    min(position - begin, end - 1 - position) + 0.01 * (end - begin)
    if begin <= position < end
    else -1
    for begin, end in parts
  ]
  return scores.index(max(scores))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 23, 100])
@pytest.mark.parametrize("room,stride", [(8, 3), (8, 8), (5, 70), (1, 1)])
def test_parts_cover_every_token(count, room, stride):
  parts = windows._parts(count, room, stride)
  assert parts[0][0] == 0 and parts[-1][1] == count
  assert all(0 < end - begin <= room for begin, end in parts)
  for (begin, end), (next_begin, _) in zip(parts, parts[1:]):
    assert next_begin == begin + min(room, stride) <= end
  best = windows._best_window(count, parts)
  assert best.tolist() == [slow_best(i, parts) for i in range(count)]


def test_max_context_prefers_longer_windows():
  # Token 8 has a margin of 2 in [3, 11) and in [6, 13), which is shorter.
  best = windows._best_window(13, [(0, 8), (3, 11), (6, 13)])
  assert best[8] == slow_best(8, [(0, 8), (3, 11), (6, 13)]) == 1


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
  assert (
    windows.answer_tokens(tokenization.EncodedText([], [], []), "\u200b", 0)
    is None
  )


def test_questions_without_an_answer_and_training(tokenizer):
  (window,) = windows.make_windows(
    example("a b", is_impossible=True), tokenizer, 16, is_training=True
  )
  assert (window.start_position, window.end_position) == (0, 0)
  assert window.is_impossible
  (window,) = windows.make_windows(example("a b"), tokenizer, 16)
  assert window.is_impossible and window.start_position == 0
  # Of several answers the first counts; training refuses them.
  several = example("a b c", ("b c", 2), ("b", 2))
  (window,) = windows.make_windows(several, tokenizer, 16)
  assert (window.start_position, window.end_position) == (6, 7)
  for wrong in (several, example("a b")):
    with pytest.raises(ValueError, match="'id7' has [20] answers"):
      windows.make_windows(wrong, tokenizer, 16, is_training=True)


def test_context_without_tokens(tokenizer):
  (window,) = windows.make_windows(
    example("\u200b", ("\u200b", 0)), tokenizer, 9, is_training=True
  )
  assert window.input_ids[-2:] == [tokenizer.sep_id] * 2
  assert window.token_starts == [] and window.is_impossible
  assert windows.p_mask(window) == [0, 1, 1, 1, 1, 1]


def test_long_question(tokenizer):
  (window,) = windows.make_windows(
    example("a", question="a b c d e f g"), tokenizer, 8, max_query_length=4
  )
  assert window.input_ids == [2, 5, 6, 7, 8, 3, 5, 3]
  with pytest.raises(
    ValueError, match="max_seq_length 7 leaves no space.* 4 t"
  ):
    windows.make_windows(
      example("a", question="a b c d e f g"), tokenizer, 7, max_query_length=4
    )
  for options in ({"doc_stride": 0}, {"max_query_length": 0}):
    with pytest.raises(ValueError, match="at least 1"):
      windows.make_windows(example("a"), tokenizer, 9, **options)


def test_each_context_is_tokenized_once(tokenizer, monkeypatch):
  shared, other = "a b c d e f g h", "a x"
  many = [example(shared), example(other), example(shared, question="q")]
  cut = []
  real = tokenizer.encode_with_offsets

  def counting(text):
    cut.append(text)
    return real(text)

  monkeypatch.setattr(tokenizer, "encode_with_offsets", counting)
  found = list(windows.make_all_windows(many, tokenizer, 11, doc_stride=2))
  assert cut == [shared, other]
  expected = [
    w for e in many for w in windows.make_windows(e, tokenizer, 11, 2)
  ]
  assert found == expected and len(found) > 4


@pytest.mark.skipif(
  not (_RELEASED.exists() and _DEV.exists()),
  reason="SQuAD and the released vocabulary are not on this machine",
)
def test_every_answer_of_the_dev_file_is_found():
  tokenizer = tokenization.SentencePieceTokenizer(str(_RELEASED))
  found = examples.read_examples(str(_DEV))
  made = list(windows.make_all_windows(found, tokenizer, 384))
  assert len(found) == 10570
  assert {w.question_id for w in made} == {e.question_id for e in found}
  held = {w.question_id for w in made if not w.is_impossible}
  assert held == {e.question_id for e in found}
  by_id = {e.question_id: e for e in found}
  exact = 0
  for window in made:
    question = by_id[window.question_id]
    if window.is_impossible:
      continue
    first = window.start_position - window.context_start
    last = window.end_position - window.context_start
    begin, end = window.token_starts[first], window.token_ends[last]
    text = question.context[begin:end].strip()
    # A piece may extend beyond the answer.
    assert question.answers[0][0].strip() in text
    exact += text == question.answers[0][0]
  # The share of first answers that tokens match exactly.
  assert exact / len(found) > 0.99
  assert np.mean([len(w.input_ids) for w in made]) < 384


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
