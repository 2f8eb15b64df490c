"""Checks pretraining records and their statistics.

A record is `[CLS] A [SEP] B [SEP]` and padding. Predictions are in ascending
order, inside the text and of whole words; with the labels in place, the text
has no [MASK]. Rules check a batch at once.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np

from tools.records import record_survey

# [CLS] A [SEP] B [SEP] with one token each in A and B.
_LEAST = 5
# Sums may have another order, and numbers fewer digits.
_TOLERANCE = 1e-6

# Which rows <bool>[N] break a rule, and a function that describes one.
_Rule = tuple[np.ndarray, Callable[[int], str]]


def find_problem(
  features: Mapping[str, np.ndarray], tokenizer, whole_words: bool = False
) -> Optional[tuple[int, str]]:
  """Finds the first of N records that breaks a rule.

  Args:
    features: from `record_survey.batches`.
    tokenizer: the one that made the records.
    whole_words: whether whole words were masked.

  Returns:
    The row and a description that follows "record 7 ...", or None.
  """
  features = record_survey.with_no_masks(features)
  for rules in (_shape_rules, _mask_rules):
    found = _first(rules(features, tokenizer))
    if found:
      # Later rules use ids and positions as indices, so these must be valid.
      before = {k: v[: found[0]] for k, v in features.items()}
      return (
        find_problem(before, tokenizer, whole_words) if found[0] else None
      ) or found
  return _first(_text_rules(features, tokenizer, whole_words))


def _first(rules: Iterator[_Rule]) -> Optional[tuple[int, str]]:
  found = None
  for broken, describe in rules:
    rows = np.flatnonzero(broken)
    if len(rows) and (found is None or rows[0] < found[0]):
      found = int(rows[0]), describe(int(rows[0]))
  return found


def _rule(bad: np.ndarray, describe: Callable[[int, int], str]) -> _Rule:
  """Makes a rule of cells <bool>[N, columns]; describes the first bad one."""
  return bad.any(axis=1), lambda row: describe(row, int(np.argmax(bad[row])))


def _shape_rules(f: Mapping[str, np.ndarray], tokenizer) -> Iterator[_Rule]:
  ids, mask = f["input_ids"], f["input_mask"]
  lengths = mask.sum(axis=1)
  real = np.arange(ids.shape[1]) < lengths[:, None]
  yield _rule(
    mask != real, lambda row, at: "has an input_mask that is not ones, then 0"
  )
  yield (
    lengths < _LEAST,
    lambda row: f"has {lengths[row]} tokens, too few for [CLS] A [SEP] B [SEP]",
  )
  yield _rule(
    (ids < 0) | (ids >= tokenizer.vocab_size),
    lambda row, at: (
      f"has the id {ids[row, at]} at position {at}, outside the vocabulary of "
      f"{tokenizer.vocab_size} pieces"
    ),
  )
  yield _rule(
    (ids != tokenizer.pad_id) & ~real,
    lambda row, at: f"has the id {ids[row, at]} in its padding, at {at}",
  )
  labels = f["next_sentence_labels"]
  yield _rule(
    (labels != 0) & (labels != 1),
    lambda row, at: (
      f"has next_sentence_labels {labels[row, at]}, which must be 0 or 1"
    ),
  )


def _mask_rules(f: Mapping[str, np.ndarray], tokenizer) -> Iterator[_Rule]:
  positions, labels = f["masked_lm_positions"], f["masked_lm_ids"]
  weights = f["masked_lm_weights"]
  used = weights > 0
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  yield _rule(
    (weights != 0) & (weights != 1),
    lambda row, at: (
      f"has the weight {weights[row, at]:g}, which must be 0 or 1"
    ),
  )
  yield _rule(
    used[:, 1:] & ~used[:, :-1],
    lambda row, at: "has a weight of 1 behind a weight of 0",
  )
  yield _rule(
    ~used & ((positions != 0) | (labels != 0)),
    lambda row, at: f"has something in its unused prediction {at}",
  )
  yield _rule(
    used & ((positions < 1) | (positions >= last)),
    lambda row, at: (
      f"has the masked position {positions[row, at]}, outside its "
      f"{last[row, 0] + 1} tokens or on [CLS] or the last [SEP]"
    ),
  )
  yield _rule(
    used[:, 1:] & (np.diff(positions, axis=1) <= 0),
    lambda row, at: (
      f"has the masked position {positions[row, at + 1]} behind "
      f"{positions[row, at]}: they must ascend"
    ),
  )
  yield _rule(
    (labels < 0) | (labels >= tokenizer.vocab_size),
    lambda row, at: (
      f"has the label {labels[row, at]}, outside the vocabulary of "
      f"{tokenizer.vocab_size} pieces"
    ),
  )


def _text_rules(
  f: Mapping[str, np.ndarray], tokenizer, whole_words: bool
) -> Iterator[_Rule]:
  ids = record_survey.put_labels_back(f)
  count, size = ids.shape
  rows, columns = np.arange(count), np.arange(size)
  last = f["input_mask"].sum(axis=1) - 1
  real = columns <= last[:, None]
  separators = ids == tokenizer.sep_id
  middle = np.argmax(separators, axis=1)
  piece = tokenizer.id_to_piece
  yield (
    ids[:, 0] != tokenizer.cls_id,
    lambda row: f"begins with {piece(ids[row, 0])}, not [CLS]",
  )
  yield (
    ids[rows, last] != tokenizer.sep_id,
    lambda row: f"ends with {piece(ids[row, last[row]])}, not [SEP]",
  )
  yield (
    separators.sum(axis=1) != 2,
    lambda row: f"has {separators[row].sum()} times [SEP], not 2",
  )
  text = real & ~separators & (columns > 0)
  unwanted = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id]
  yield _rule(
    text & np.isin(ids, unwanted),
    lambda row, at: (
      f"has {piece(ids[row, at])} at position {at}, where nothing is to be "
      "predicted, or as a label"
    ),
  )
  yield (
    (middle < 2) | (middle >= last - 1),
    lambda row: "has an empty A or B",
  )
  segments = f["segment_ids"]
  yield _rule(
    segments != (real & (columns > middle[:, None])),
    lambda row, at: (
      f"has segment_ids {segments[row, at]} at position {at}: they must be 0 "
      "up to the first [SEP], 1 up to the second and 0 behind it"
    ),
  )
  starts = expected = real & (tokenizer.word_start_table[ids] | ~text)
  if "token_boundary" in f:
    boundary = f["token_boundary"]
    # The original decides by the text of an unknown piece.
    known = ids != tokenizer.unk_id
    yield _rule(
      (boundary != expected) & (known | (boundary < 0) | (boundary > 1)),
      lambda row, at: (
        f"has token_boundary {boundary[row, at]} at position {at}, "
        f"{piece(ids[row, at])}, but its tokenizer says "
        f"{int(expected[row, at])}"
      ),
    )
    starts = boundary > 0
  if whole_words:
    masked = np.zeros((count, size), bool)
    row, column = np.nonzero(f["masked_lm_weights"] > 0)
    masked[row, f["masked_lm_positions"][row, column]] = True
    # Truncation may cut the first word of a segment.
    within = text[:, 1:] & text[:, :-1] & ~starts[:, 1:]
    yield _rule(
      (masked[:, 1:] != masked[:, :-1]) & within,
      lambda row, at: (
        f"has a word masked in part, between positions {at} and {at + 1}"
      ),
    )


def compare_statistics(
  stated: Mapping[str, Any], counted: Mapping[str, Any]
) -> Optional[str]:
  """Describes where a manifest contradicts the records, or returns None."""
  for name, number in counted.items():
    other = stated.get(name, number)
    if not isinstance(other, (int, float)) or not np.isclose(
      other, number, rtol=_TOLERANCE, atol=_TOLERANCE
    ):
      return f"says {name} {other!r}, but its records have {number!r}"
  return None
