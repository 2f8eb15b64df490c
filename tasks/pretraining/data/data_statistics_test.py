"""Tests of counts and shares on examples counted by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tasks.pretraining.data import data_statistics, sentence_pairs

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


_SUMMARY = {
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
}


def _counts(features):
  counts = data_statistics.count_examples(features, _MASK, 3, [1, 2, 1, 1])
  counts.dropped_chunks, counts.truncated_tokens = 6, 15
  return counts


def test_examples():
  assert data_statistics.summarize_examples(_counts(_features())) == {
    **_SUMMARY,
    "predictions": 5,
    "mean_predictions": 2.5,
    "masked_share_of_tokens": 5 / 11,
    "mask_token_share": 3 / 5,
    "kept_share": 1 / 5,
    "random_share": 1 / 5,
    "ngram_length_share": {"1": 0.75, "2": 0.25, "3": 0.0},
  }


def test_unmasked_examples_have_no_statistics_of_masks():
  features = {
    name: value
    for name, value in _features().items()
    if not name.startswith("masked_lm")
  }
  assert data_statistics.summarize_examples(_counts(features)) == _SUMMARY


def test_counts_add_up_and_come_back_from_json():
  one = _counts(_features())
  one = data_statistics.Counts.from_json(json.loads(json.dumps(one.to_json())))
  total = sum([one, one], data_statistics.Counts())
  expected, summary = map(data_statistics.summarize_examples, (one, total))
  for name, value in expected.items():
    factor = 2 if isinstance(value, int) else 1
    if name != "ngram_length_share":
      assert summary[name] == factor * value, name
  assert summary["ngram_length_share"] == expected["ngram_length_share"]


def test_nothing_counted():
  summary = data_statistics.summarize_examples(data_statistics.Counts())
  assert summary["padding_share"] == summary["kept_share"] == 0.0


def test_documents():
  documents = [
    sentence_pairs.Document(np.array([5, 6, 7, 5]), np.array([0, 1, 4])),
    sentence_pairs.Document(np.array([1, 5, 6, 7, 5]), np.array([0, 2, 3, 5])),
  ]
  counts = data_statistics.count_documents(documents, 9)
  counts += data_statistics.count_documents([], 9)
  summary = data_statistics.summarize_text(counts, range(5), unk_id=1)
  # Of 8 pieces: 1/2, 1/4, 1/4.
  entropy = summary.pop("unigram_entropy_nats")
  assert entropy == pytest.approx(1.5 * np.log(2), rel=1e-12)
  assert summary == {
    "documents": 2,
    "segments": 5,
    "text_tokens": 9,
    "unknown_share": 1 / 9,
  }


@pytest.mark.parametrize("pieces", [[5, 3], [7, 0]])
def test_entropy_of_one_kind_and_of_nothing(pieces):
  counts = data_statistics.Counts(pieces=np.array(pieces))
  summary = data_statistics.summarize_text(counts, [0], unk_id=0)
  assert str(summary["unigram_entropy_nats"]) == "0.0"


def test_table():
  table = data_statistics.format_table(
    {
      "train": {"instances": 12345, "share": 0.5, "ngrams": {"1": 0.75}},
      "heldout": {"instances": 1, "more": 2},
    }
  )
  assert table.splitlines() == [
    "             train    heldout",
    "instances   12,345          1",
    "share       0.5000",
    "ngrams 1    0.7500",
    "more                        2",
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
