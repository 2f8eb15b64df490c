"""What a record of pretraining must be, with masks or without.

A record is `[CLS] A [SEP] B [SEP]` and padding. Predictions are in ascending
order, inside the text, and may have to cover whole words. With the labels put
back, the text has no [MASK].
"""

from __future__ import annotations

import functools
from typing import Iterator, Mapping, Optional

import numpy as np

MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# [CLS] A [SEP] B [SEP] with one token each in A and B.
_MIN_LENGTH = 5

_Features = Mapping[str, np.ndarray]
# Cells <bool>[N, columns] that break a rule, a message, and values [N, columns]
# for it. The message may use the `value` of the cell and the column `at`.
_Rule = tuple[np.ndarray, str, np.ndarray]


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
  """Finds the first of N records that breaks a rule; masks may be missing.

  Returns the row and a description that follows "record 7 ...", or None.
  """
  nothing = np.zeros((len(features["input_ids"]), 0), np.int64)
  features = {**dict.fromkeys(MASKED, nothing), **features}
  text_rules = functools.partial(_text_rules, whole_words=whole_words)
  found = None
  for make_rules in (_shape_rules, _mask_rules, text_rules):
    for bad, message, values in make_rules(features, tokenizer):
      rows = np.flatnonzero(bad.any(axis=1))
      if len(rows) and (found is None or rows[0] < found[0]):
        row, at = int(rows[0]), int(np.argmax(bad[rows[0]]))
        found = row, message.format(value=values[row, at], at=at)
    if found:
      # Later rules use ids and positions as indices, so these must be valid.
      features = {name: value[: found[0]] for name, value in features.items()}
  return found


def _shape_rules(f: _Features, tokenizer) -> Iterator[_Rule]:
  ids, mask, labels = (
    f[name] for name in ("input_ids", "input_mask", "next_sentence_labels")
  )
  lengths = mask.sum(axis=1, keepdims=True)
  real = np.arange(ids.shape[1]) < lengths
  yield mask != real, "has an input_mask that is not ones, then 0", mask
  short = lengths < _MIN_LENGTH
  yield short, "has {value} tokens, too few for [CLS] A [SEP] B [SEP]", lengths
  unknown = (ids < 0) | (ids >= tokenizer.vocab_size)
  yield unknown, "has the unknown id {value} at position {at}", ids
  filled = ~real & (ids != tokenizer.pad_id)
  yield filled, "has the id {value} in its padding, at {at}", ids
  label = "has next_sentence_labels {value}, which must be 0 or 1"
  yield (labels != 0) & (labels != 1), label, labels


def _mask_rules(f: _Features, tokenizer) -> Iterator[_Rule]:
  positions, labels, weights = (f[name] for name in MASKED)
  count = (weights > 0).sum(axis=1, keepdims=True)
  used = np.arange(weights.shape[1]) < count
  weight = "has masked_lm_weights that are not ones, then 0"
  yield weights != used, weight, weights
  filled = ~used & ((positions != 0) | (labels != 0))
  yield filled, "has something in its unused prediction {at}", labels
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  outside = "has the masked position {value}, which is not in its text"
  yield used & ((positions < 1) | (positions >= last)), outside, positions
  descends = used[:, 1:] & (np.diff(positions, axis=1) <= 0)
  order = "has the masked position {value} out of order: they must ascend"
  yield descends, order, positions[:, 1:]
  unknown = (labels < 0) | (labels >= tokenizer.vocab_size)
  yield unknown, "has the unknown label {value}", labels


def _text_rules(f: _Features, tokenizer, whole_words: bool) -> Iterator[_Rule]:
  ids = put_labels_back(f)
  rows, columns = np.arange(len(ids))[:, None], np.arange(ids.shape[1])
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  real = columns <= last
  separators = ids == tokenizer.sep_id
  middle = np.argmax(separators, axis=1)[:, None]
  text = real & ~separators & (columns > 0)
  first_ids, last_ids = ids[:, :1], ids[rows, last]
  begins = first_ids != tokenizer.cls_id
  yield begins, "begins with the id {value}, not [CLS]", first_ids
  ends = last_ids != tokenizer.sep_id
  yield ends, "ends with the id {value}, not [SEP]", last_ids
  count = separators.sum(axis=1, keepdims=True)
  yield count != 2, "has {value} times [SEP], not 2", count
  special = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id]
  unwanted = "has the special id {value} in its text or labels, at {at}"
  yield text & np.isin(ids, special), unwanted, ids
  yield (middle < 2) | (middle >= last - 1), "has an empty A or B", middle
  segments = (
    "has segment_ids {value} at position {at}: they must be 1 for B [SEP], "
    "otherwise 0"
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
