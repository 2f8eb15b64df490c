"""Checks the content of pretraining records.

A record is `[CLS] A [SEP] B [SEP]` and padding. Predictions are in ascending
order, inside the text, and cover whole words. With the labels restored, the
text has no [MASK]. Each rule checks a whole batch.
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional

import numpy as np

MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# [CLS] A [SEP] B [SEP] with one token each in A and B.
_LEAST = 5

_Features = Mapping[str, np.ndarray]
# Cells <bool>[N, columns] that break a rule, a message, and values [N, columns]
# for it. The message may use the `value` of the cell, the `piece` with that id,
# the column `at`, and the `size` of the vocabulary.
_Rule = tuple[np.ndarray, str, np.ndarray]


def with_masks(features: _Features) -> dict[str, np.ndarray]:
  """Returns features with empty masks if there are none."""
  nothing = np.zeros((len(features["input_ids"]), 0), np.int64)
  return {**dict.fromkeys(MASKED, nothing), **features}


def put_labels_back(features: _Features) -> np.ndarray:
  """Returns the ids before masking, <int64>[N, S]."""
  restored = features["input_ids"].copy()
  row, column = np.nonzero(features["masked_lm_weights"] > 0)
  place = features["masked_lm_positions"][row, column]
  restored[row, place] = features["masked_lm_ids"][row, column]
  return restored


def find_problem(
  features: _Features, tokenizer, whole_words: bool = False
) -> Optional[tuple[int, str]]:
  """Finds the first of N records that breaks a rule.

  Args:
    features: <int64> and <float32>[N, ...] by name; masks may be missing.
    tokenizer: the tokenizer of the records.
    whole_words: whether whole words were masked.

  Returns:
    The row and a description that follows "record 7 ...", or None.
  """
  features = with_masks(features)
  found = None
  for make_rules in (_shape_rules, _mask_rules, _text_rules):
    for bad, message, values in make_rules(features, tokenizer, whole_words):
      rows = np.flatnonzero(bad.any(axis=1))
      if len(rows) and (found is None or rows[0] < found[0]):
        row = int(rows[0])
        at = int(np.argmax(bad[row]))
        value = values[row, at]
        piece = ""
        if "{piece}" in message:
          piece = tokenizer.id_to_piece(value)
        found = (
          row,
          message.format(
            value=value, piece=piece, at=at, size=tokenizer.vocab_size
          ),
        )
    if found:
      # Later rules use ids and positions as indices, so these must be valid.
      features = {name: value[: found[0]] for name, value in features.items()}
  return found


def _shape_rules(
  f: _Features, tokenizer, unused_whole_words: bool
) -> Iterator[_Rule]:
  ids, mask, labels = (
    f[name] for name in ("input_ids", "input_mask", "next_sentence_labels")
  )
  lengths = mask.sum(axis=1, keepdims=True)
  real = np.arange(ids.shape[1]) < lengths
  yield mask != real, "has an input_mask that is not ones, then 0", mask
  few = "has {value} tokens, too few for [CLS] A [SEP] B [SEP]"
  yield lengths < _LEAST, few, lengths
  outside = (
    "has the id {value} at position {at}, outside the vocabulary of {size} "
    "pieces"
  )
  yield (ids < 0) | (ids >= tokenizer.vocab_size), outside, ids
  is_padding = ids == tokenizer.pad_id
  yield ~real & ~is_padding, "has the id {value} in its padding, at {at}", ids
  label = "has next_sentence_labels {value}, which must be 0 or 1"
  yield (labels != 0) & (labels != 1), label, labels


def _mask_rules(
  f: _Features, tokenizer, unused_whole_words: bool
) -> Iterator[_Rule]:
  positions, labels, weights = (f[name] for name in MASKED)
  used = weights > 0
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  weight = "has the weight {value:g}, which must be 0 or 1"
  yield (weights != 0) & (weights != 1), weight, weights
  gap = "has a weight of 1 behind a weight of 0"
  yield used[:, 1:] & ~used[:, :-1], gap, weights[:, 1:]
  filled = ~used & ((positions != 0) | (labels != 0))
  yield filled, "has something in its unused prediction {at}", labels
  outside = (
    "has the masked position {value}, outside its text or on [CLS] or the last "
    "[SEP]"
  )
  yield used & ((positions < 1) | (positions >= last)), outside, positions
  descends = used[:, 1:] & (np.diff(positions, axis=1) <= 0)
  order = "has the masked position {value} out of order: they must ascend"
  yield descends, order, positions[:, 1:]
  unknown = "has the label {value}, outside the vocabulary of {size} pieces"
  yield (labels < 0) | (labels >= tokenizer.vocab_size), unknown, labels


def _text_rules(f: _Features, tokenizer, whole_words: bool) -> Iterator[_Rule]:
  ids = put_labels_back(f)
  rows, columns = np.arange(len(ids))[:, None], np.arange(ids.shape[1])
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  real = columns <= last
  separators = ids == tokenizer.sep_id
  middle = np.argmax(separators, axis=1)[:, None]
  text = real & ~separators & (columns > 0)
  first_ids, last_ids = ids[:, :1], ids[rows, last]
  begin = "begins with {piece}, not [CLS]"
  yield first_ids != tokenizer.cls_id, begin, first_ids
  yield last_ids != tokenizer.sep_id, "ends with {piece}, not [SEP]", last_ids
  count = separators.sum(axis=1, keepdims=True)
  yield count != 2, "has {value} times [SEP], not 2", count
  special = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id]
  unwanted = (
    "has {piece} at position {at}, where nothing is to be predicted, or as a "
    "label"
  )
  yield text & np.isin(ids, special), unwanted, ids
  yield (middle < 2) | (middle >= last - 1), "has an empty A or B", middle
  segments = (
    "has segment_ids {value} at position {at}: they must be 0 up to the first "
    "[SEP], 1 up to the second and 0 behind it"
  )
  expected = real & (columns > middle)
  yield f["segment_ids"] != expected, segments, f["segment_ids"]
  starts = real & (tokenizer.word_start_table[ids] | ~text)
  boundary = f.get("token_boundary", starts.astype(np.int64))
  # The original decides by the text of an unknown piece.
  known = ids != tokenizer.unk_id
  wrong = (boundary != starts) & (known | (boundary < 0) | (boundary > 1))
  contradiction = (
    "has token_boundary {value} at position {at}, which its tokenizer "
    "contradicts"
  )
  yield wrong, contradiction, boundary
  if whole_words:
    masked = np.zeros(ids.shape, bool)
    row, column = np.nonzero(f["masked_lm_weights"] > 0)
    masked[row, f["masked_lm_positions"][row, column]] = True
    # Truncation may cut the first word of a segment.
    within = text[:, 1:] & text[:, :-1] & (boundary[:, 1:] <= 0)
    torn = (masked[:, 1:] != masked[:, :-1]) & within
    yield torn, "has a word masked in part, from position {at} on", ids[:, 1:]
