"""What a record of pretraining must be, with masks or without.

A record is `[CLS] A [SEP] B [SEP]` and padding. Predictions are in ascending
order, inside the text, and may have to cover whole words. With the labels put
back, the text has no [MASK].
"""

from __future__ import annotations

from typing import Iterator, Mapping, Optional

import numpy as np

MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# [CLS] A [SEP] B [SEP] with one token each in A and B.
_MIN_LENGTH = 5

_Features = Mapping[str, np.ndarray]


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
  found = None
  for name, bad, rule in _rules(features, tokenizer, whole_words):
    rows = np.flatnonzero(bad.any(axis=1))
    if len(rows) and (found is None or rows[0] < found[0]):
      row, at = int(rows[0]), int(np.argmax(bad[rows[0]]))
      value = features[name][row, at]
      found = row, f"has {name} {value} at position {at}: it must be {rule}"
  return found


def _rules(
  f: _Features, tokenizer, whole_words: bool
) -> Iterator[tuple[str, np.ndarray, str]]:
  """Yields a feature, where it breaks a rule <bool>[N, columns], and the rule.

  The rules of a record's text come last. They clip what an earlier rule
  refuses, so that it can be an index.
  """
  ids, mask, labels = f["input_ids"], f["input_mask"], f["next_sentence_labels"]
  positions, targets, weights = (f[name] for name in MASKED)
  columns = np.arange(ids.shape[1])
  length = mask.sum(axis=1, keepdims=True)
  real = columns < length
  wrong = (mask != real) | (length < _MIN_LENGTH)
  yield "input_mask", wrong, f"at least {_MIN_LENGTH} ones, then 0"
  wrong = (ids < 0) | (ids >= tokenizer.vocab_size)
  wrong |= ~real & (ids != tokenizer.pad_id)
  yield "input_ids", wrong, "a piece of the vocabulary, or [PAD] in the padding"
  yield "next_sentence_labels", (labels != 0) & (labels != 1), "0 or 1"
  count = (weights > 0).sum(axis=1, keepdims=True)
  used = np.arange(weights.shape[1]) < count
  yield "masked_lm_weights", weights != used, "ones, then 0"
  wrong = np.where(
    used, (positions < 1) | (positions >= length - 1), positions != 0
  )
  wrong[:, 1:] |= used[:, 1:] & (np.diff(positions, axis=1) <= 0)
  yield "masked_lm_positions", wrong, "in the text and ascending, then 0"
  unknown = (targets < 0) | (targets >= tokenizer.vocab_size)
  wrong = np.where(used, unknown, targets != 0)
  yield "masked_lm_ids", wrong, "a piece of the vocabulary, then 0"

  places = np.clip(positions, 0, ids.shape[1] - 1)
  ids = put_labels_back({**f, "masked_lm_positions": places})
  ids = np.clip(ids, 0, tokenizer.vocab_size - 1)
  separators = ids == tokenizer.sep_id
  middle, last = np.argmax(separators, axis=1)[:, None], length - 1
  text = real & (columns > 0) & (columns != middle) & (columns != last)
  special = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id)
  wrong = text & (np.isin(ids, special) | separators)
  wrong |= (columns == 0) & (ids != tokenizer.cls_id)
  wrong |= (columns == last) & ~separators
  wrong |= (columns == middle) & ((middle < 2) | (middle >= last - 1))
  form = "a part of [CLS] A [SEP] B [SEP] with the labels put back"
  yield "input_ids", wrong, form
  wrong = f["segment_ids"] != (real & (columns > middle))
  yield "segment_ids", wrong, "1 for B [SEP], otherwise 0"
  starts = real & (tokenizer.word_start_table[ids] | ~text)
  boundary = f.get("token_boundary", starts.astype(np.int64))
  # The original decides by the text of an unknown piece.
  known = ids != tokenizer.unk_id
  wrong = (boundary != starts) & (known | (boundary < 0) | (boundary > 1))
  yield "token_boundary", wrong, "1 where the tokenizer begins a word"
  if whole_words:
    masked = np.zeros(ids.shape, bool)
    row, column = np.nonzero(weights > 0)
    masked[row, places[row, column]] = True
    # Truncation may cut the first word of a segment.
    within = text[:, 1:] & text[:, :-1] & (boundary[:, 1:] <= 0)
    torn = (masked[:, 1:] != masked[:, :-1]) & within
    yield "input_ids", torn, "masked like the rest of its word"
