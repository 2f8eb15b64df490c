"""Tests of windows in the graph against those of Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization import in_graph
from tasks.squad import examples, serving_windows, windows

_WORDS = "a b c d e f g h i j k l m n o p q".split()


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, "##x"]
  path.write_text("\n".join(pieces))
  layer = in_graph.make_text_layer("wordpiece", str(path), True)
  return (
    tokenization.WordPieceTokenizer(path),
    in_graph.make_offset_layer(layer),
  )


def _random_words(rng, most):
  words = rng.choice(_WORDS, rng.integers(0, most)).tolist()
  return "".join(word + rng.choice([" ", "  ", "x "]) for word in words)


def _graph_windows(
  layer, questions, contexts, length, stride, query, most=9999
):
  return tf.function(
    lambda q, c: serving_windows.make_windows(
      layer.tokenize(q),
      layer.tokenize_with_offsets(c),
      layer.cls_id,
      layer.sep_id,
      length,
      stride,
      query,
      most,
    )
  )(tf.constant(questions, tf.string), tf.constant(contexts, tf.string))


@pytest.mark.parametrize(
  "length,stride,query",
  [(13, 3, 4), (11, 70, 2), (9, 1, 5), (23, 6, 3)],
)
def test_equals_python(tokenizers, length, stride, query):
  tokenizer, layer = tokenizers
  rng = np.random.default_rng(length)
  questions = ["", *(_random_words(rng, 9) for _ in range(60))]
  contexts = ["", *(_random_words(rng, 50) for _ in range(60))]
  got = _graph_windows(layer, questions, contexts, length, stride, query)
  rows = [
    examples.SquadExample(str(i), *texts)
    for i, texts in enumerate(zip(questions, contexts))
  ]
  expected = list(
    windows.make_all_windows(rows, tokenizer, length, stride, query)
  )
  numbers = [int(window.question_id) for window in expected]
  assert got.question.numpy().tolist() == numbers
  assert got.counts.numpy().tolist() == np.bincount(numbers).tolist()
  assert len(set(got.counts.numpy().tolist())) > 2
  longest = max(len(window.input_ids) for window in expected)
  assert got.features["input_ids"].shape == [len(expected), longest]
  for n, window in enumerate(expected):
    size, first = len(window.input_ids), window.context_start
    there = slice(first, first + len(window.token_starts))
    ids, mask, segments = (
      got.features[name][n].numpy()
      for name in ("input_ids", "input_mask", "segment_ids")
    )
    assert ids[:size].tolist() == window.input_ids and not ids[size:].any()
    assert mask.tolist() == [1] * size + [0] * (longest - size)
    assert segments[:size].tolist() == window.segment_ids
    assert not segments[size:].any()
    inside = np.zeros(longest, bool)
    inside[there] = True
    assert got.is_context[n].numpy().tolist() == inside.tolist()
    best = got.is_max_context[n].numpy()
    assert best[there].tolist() == window.is_max_context
    assert not best[~inside].any()
    assert got.start_chars[n, there].numpy().tolist() == window.token_starts
    assert got.end_chars[n, there].numpy().tolist() == window.token_ends


def test_ties_of_floating_point_are_python_s(tokenizers):
  # 0.01 times a length is not exact: which of two windows is better may hang
  # on the last bit, as of token 260 of 420, 58 + 3.19 or 59 + 2.19.
  tokenizer, layer = tokenizers
  contexts = [" ".join(["a"] * count) for count in range(392, 450, 7)]
  questions = ["b"] * len(contexts)
  got = _graph_windows(layer, questions, contexts, 323, 201, 7)
  rows = [
    examples.SquadExample(str(i), "b", context)
    for i, context in enumerate(contexts)
  ]
  expected = windows.make_all_windows(rows, tokenizer, 323, 201, 7)
  for row, window in zip(got.is_max_context.numpy(), expected):
    found = row[3 : 3 + len(window.token_starts)].tolist()
    assert found == window.is_max_context


def test_no_question(tokenizers):
  got = _graph_windows(tokenizers[1], [], [], 13, 3, 4)
  assert got.question.shape == [0] and got.counts.shape == [0]
  assert got.features["input_ids"].shape == [0, 1]
  assert got.is_max_context.shape == [0, 1]


def test_refusals(tokenizers):
  layer = tokenizers[1]
  with pytest.raises(tf.errors.InvalidArgumentError, match="must leave room"):
    _graph_windows(layer, ["a", "a b c d e"], ["a", "b"], 8, 3, 7)
  _graph_windows(layer, ["a", "a b c d e"], ["a", "b"], 8, 3, 4)
  # Windows of 4 at 0, 3, 6 and so on.
  long = " ".join("a" * 13)
  _graph_windows(layer, ["a", "b"], [long, "c"], 8, 3, 4, most=5)
  with pytest.raises(tf.errors.InvalidArgumentError, match="4 windows in all"):
    _graph_windows(layer, ["a", "b"], [long, "c"], 8, 3, 4, most=4)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
