"""Tests of counts and shares on examples counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.pretraining.data import data_statistics, examples, sentence_pairs

_MASK = 4


def _features():
  """Two examples, S = 7, P = 3; [MASK] 4."""
  return {
    "input_ids": np.array([[2, 4, 3, 9, 4, 3, 0], [2, 8, 3, 4, 3, 0, 0]]),
    "input_mask": np.array([[1] * 6 + [0], [1] * 5 + [0] * 2]),
    "segment_ids": np.array(
      [[0] * 3 + [1] * 3 + [0], [0] * 3 + [1] * 2 + [0] * 2]
    ),
    "masked_lm_positions": np.array([[1, 3, 4], [1, 3, 0]]),
    # Row 0: masked, random, masked. Row 1: kept, masked.
    "masked_lm_ids": np.array([[7, 8, 9], [8, 5, 0]]),
    "masked_lm_weights": np.float32([[1, 1, 1], [1, 1, 0]]),
    "next_sentence_labels": np.array([[1], [0]]),
  }


def test_examples():
  counts = data_statistics.count_examples(
    _features(), _MASK, 3, [1, 2, 1, 1], 6, 15
  )
  assert data_statistics.summarize_examples(counts) == {
    "instances": 2,
    "dropped_chunks": 6,
    "truncated_tokens": 15,
    # The examples have 11 tokens, 6 of which are [CLS] and [SEP].
    "truncated_share": 15 / (15 + 5),
    "tokens": 11,
    "mean_length": 5.5,
    "padding_share": 3 / 14,
    "segment_a_share": 6 / 11,
    "label_1_share": 0.5,
    "predictions": 5,
    "mean_predictions": 2.5,
    "masked_share_of_tokens": 5 / 11,
    "mask_token_share": 3 / 5,
    "kept_share": 1 / 5,
    "random_share": 1 / 5,
    "ngram_length_share": {"1": 0.75, "2": 0.25, "3": 0.0},
  }


def test_counts_add_up():
  one = data_statistics.count_examples(_features(), _MASK, 3, [1, 2, 1, 1])
  total = one + one
  expected, summary = map(data_statistics.summarize_examples, (one, total))
  assert summary.pop("instances") == 2 * expected.pop("instances")
  assert summary.pop("tokens") == 2 * expected.pop("tokens")
  assert summary.pop("predictions") == 2 * expected.pop("predictions")
  assert summary == expected


def test_unmasked_examples_have_no_statistics_of_masks():
  features = {
    name: value
    for name, value in _features().items()
    if not name.startswith("masked_lm")
  }
  counts = data_statistics.count_examples(features, _MASK, 3, [], 6)
  assert data_statistics.summarize_examples(counts) == {
    "instances": 2,
    "dropped_chunks": 6,
    "truncated_tokens": 0,
    "truncated_share": 0.0,
    "tokens": 11,
    "mean_length": 5.5,
    "padding_share": 3 / 14,
    "segment_a_share": 6 / 11,
    "label_1_share": 0.5,
  }


def test_nothing_counted():
  counts = data_statistics.ExampleCounts(np.zeros(2, np.int64))
  summary = data_statistics.summarize_examples(counts)
  assert summary["padding_share"] == 0.0
  assert summary["ngram_length_share"] == {"1": 0.0, "2": 0.0}


def test_text():
  vocabulary = examples.Vocabulary(np.ones(9, bool), frozenset(range(5)))
  pieces = np.array([0, 1, 0, 0, 0, 4, 2, 2, 0])
  text = data_statistics.TextCounts(3, 5, pieces)
  summary = data_statistics.summarize_text(text, vocabulary, unk_id=1)
  # Of 8 pieces: 1/2, 1/4, 1/4.
  entropy = summary.pop("unigram_entropy_nats")
  assert entropy == pytest.approx(1.5 * np.log(2), rel=1e-12)
  assert summary == {
    "documents": 3,
    "segments": 5,
    "text_tokens": 9,
    "unknown_share": 1 / 9,
  }


def test_entropy_of_one_kind_and_of_nothing():
  assert data_statistics.TextCounts(1, 1, np.array([5, 3])).unigram_entropy(
    [0]
  ) == pytest.approx(0)
  assert data_statistics.TextCounts.of([], 7).unigram_entropy([0]) == 0


def test_text_counts_are_added_and_subtracted():
  whole = data_statistics.TextCounts(2, 5, np.array([0, 4, 3, 2]))
  document = sentence_pairs.Document(np.array([1, 2, 2]), np.array([0, 1, 3]))
  part = data_statistics.TextCounts.of([document], 4)
  assert (part.documents, part.segments, *part.pieces) == (1, 2, 0, 1, 2, 0)
  rest = whole - part
  assert (rest.documents, rest.segments, *rest.pieces) == (1, 3, 0, 3, 1, 2)
  again = rest + part
  assert (again.documents, again.segments, *again.pieces) == (2, 5, 0, 4, 3, 2)


def test_table():
  table = data_statistics.format_table(
    {
      "train": {"instances": 12345, "share": 0.5, "ngrams": {"1": 0.75}},
      "heldout": {"instances": 1, "more": 2},
    }
  )
  assert table.splitlines() == [
    "            train  heldout",
    "instances  12,345        1",
    "share      0.5000",
    "ngrams 1   0.7500",
    "more                     2",
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
