"""Tests the rules for records: what breaks each, and which record is named."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tools.records import record_survey

_V = 47


class _Tokenizer:
  vocab_size = _V
  pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
  # Of the ids from 5 on, odd ones start a word; <unk> does.
  word_start_table = (np.arange(_V) % 2 > 0) & ~np.isin(np.arange(_V), [3])


def _features(count=1, row=0, **changes):
  """[CLS] 5 6 7 [SEP] 9 11 12 [SEP] _ _ with 6 kept and 11 masked.

  Args:
    count: rows.
    row: the one that `changes` are for.
    changes: a feature's new values, or a dict from place to value.
  """
  record = {
    "input_ids": [2, 5, 6, 7, 3, 9, 4, 12, 3, 0, 0],
    "input_mask": [1] * 9 + [0] * 2,
    "segment_ids": [0] * 5 + [1] * 4 + [0] * 2,
    "token_boundary": [1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0],
    "masked_lm_positions": [2, 6, 0],
    "masked_lm_ids": [6, 11, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": [1],
  }
  features = {
    name: np.tile(np.array(value), (count, 1)) for name, value in record.items()
  }
  for name, change in changes.items():
    if isinstance(change, dict):
      for at, value in change.items():
        features[name][row, at] = value
    else:
      features[name][row] = change
  return features


_NO_MASKS = {
  "masked_lm_weights": [0.0] * 3,
  "masked_lm_positions": [0] * 3,
  "masked_lm_ids": [0] * 3,
}


def _check(features, whole_words=False):
  return record_survey.find_problem(features, _Tokenizer(), whole_words)


def test_records_without_features_for_masks_or_boundaries():
  features = _features(2)
  features["input_ids"][:, 6] = 11
  for name in _NO_MASKS:
    del features[name]
  assert _check(features) is None
  del features["token_boundary"]
  assert _check(features) is None
  features["input_ids"][1, 6] = 4
  message = "has the special id 4 in its text or labels, at 6"
  assert _check(features) == (1, message)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"input_mask": {3: 0}}, "an input_mask that is not ones, then 0"),
    ({"input_mask": [1] * 4 + [0] * 7}, "4 tokens, too few for"),
    ({"input_ids": {1: _V}}, "the unknown id 47 at position 1"),
    ({"input_ids": {10: 5}}, "the id 5 in its padding, at 10"),
    ({"next_sentence_labels": [2]}, "next_sentence_labels 2, which must be 0"),
    ({"masked_lm_weights": {0: 0.5}}, "weights that are not ones, then 0"),
    ({"masked_lm_weights": [0, 1, 0]}, "weights that are not ones, then 0"),
    ({"masked_lm_positions": {2: 1}}, "something in its unused prediction 2"),
    ({"masked_lm_ids": {2: 1}}, "something in its unused prediction 2"),
    ({"masked_lm_positions": {1: 8}}, "position 8, which is not in its text"),
    ({"masked_lm_positions": {0: 0}}, "position 0, which is not in its text"),
    ({"masked_lm_positions": [6, 6, 0]}, "masked position 6 out of order"),
    ({"masked_lm_ids": {1: _V}}, "the unknown label 47"),
    ({"input_ids": {0: 5}}, r"begins with the id 5, not \[CLS\]"),
    ({"input_ids": {8: 12}}, r"ends with the id 12, not \[SEP\]"),
    ({"input_ids": {3: 3}}, r"has 3 times \[SEP\], not 2"),
    ({"masked_lm_ids": {1: 4}}, "the special id 4 in its text or labels, at 6"),
    ({"input_ids": {5: 0}}, "the special id 0 in its text or labels, at 5"),
    ({"input_ids": {4: 9, 7: 3}}, "an empty A or B"),
    ({"segment_ids": {4: 1}}, "segment_ids 1 at position 4: they must be 1"),
    ({"segment_ids": {9: 1}}, "segment_ids 1 at position 9"),
    ({"token_boundary": {7: 1}}, "token_boundary 1 at position 7, which its"),
    ({"token_boundary": {10: 1}}, "token_boundary 1 at position 10"),
    ({}, None),
    ({**_NO_MASKS, "input_ids": {6: 11}}, None),
    # The original decides by the text of an unknown piece.
    ({"input_ids": {7: 1}, "token_boundary": {7: 0}}, None),
    ({"input_ids": {7: 1}, "token_boundary": {7: 1}}, None),
    ({"input_ids": {7: 1}, "token_boundary": {7: 2}}, "token_boundary 2 at"),
  ],
)
@pytest.mark.parametrize("row", [0, 2])
def test_each_rule(changes, message, row):
  found = _check(_features(3, row=row, **changes))
  if message is None:
    assert found is None
  else:
    assert found[0] == row
    assert re.search(message, found[1])


@pytest.mark.parametrize(
  ("positions", "ids", "place"),
  [
    ([2, 6, 7], [6, 11, 12], 1),
    ([1, 2, 6], [5, 6, 11], 6),
    ([1, 2, 3], [5, 6, 7], None),
  ],
)
def test_partly_masked_words_are_wrong_only_with_whole_words(
  positions, ids, place
):
  # 5 6 is a word, and so is 11 12.
  features = _features(
    masked_lm_positions=positions,
    masked_lm_ids=ids,
    masked_lm_weights=[1.0] * 3,
    input_ids={6: 11},
  )
  assert _check(features) is None
  message = f"has a word masked in part, from position {place} on"
  assert _check(features, whole_words=True) == (place and (0, message))


def test_the_first_invalid_record_is_named():
  features = _features(4, row=3, input_ids={1: _V})
  features["masked_lm_weights"][2, 0] = 7
  features["input_ids"][1, 0] = 5
  assert _check(features) == (1, "begins with the id 5, not [CLS]")
  features["input_mask"][0, 2] = 0
  assert _check(features)[0] == 0


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
