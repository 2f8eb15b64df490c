"""Packs one or two texts into a sequence: [CLS] A [SEP] B [SEP].

Reference: google-research/albert classifier_utils.py
(convert_single_example, _truncate_seq_pair).
"""

from __future__ import annotations

from typing import Optional, Sequence


def available_tokens(max_seq_length: int, texts: int) -> int:
  """Returns how many tokens fit besides [CLS] and the [SEP] of each text."""
  available = max_seq_length - 1 - texts
  if available < texts:
    raise ValueError(
      f"max_seq_length is {max_seq_length}, but [CLS], {texts} [SEP] and a "
      f"token of each text need {1 + 2 * texts}: increase it."
    )
  return available


def pack_pair(
  ids_a: Sequence[int],
  ids_b: Optional[Sequence[int]],
  max_seq_length: int,
  cls_id: int,
  sep_id: int,
) -> tuple[list[int], list[int]]:
  """Packs one or two texts and truncates them to the maximum length.

  Truncation removes tokens one by one from the end of the longer text, or from
  B if both are equally long.

  Args:
    ids_a: the tokens of A, possibly empty.
    ids_b: the tokens of B, possibly empty; None if there is no second text.
    max_seq_length: the maximum length of the result, special tokens included.
    cls_id: the id of [CLS].
    sep_id: the id of [SEP].

  Returns:
    (input_ids, segment_ids) of equal length, not padded. Segment 0 ends with
    the first [SEP].
  """
  available = available_tokens(max_seq_length, 1 if ids_b is None else 2)
  length_b = len(ids_b or ())
  # A keeps what B does not need, but always half, rounded up, if it is longer.
  keep_a = min(len(ids_a), max(available - length_b, (available + 1) // 2))
  keep_b = min(length_b, available - keep_a)
  input_ids = [cls_id, *ids_a[:keep_a], sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b is not None:
    input_ids += [*ids_b[:keep_b], sep_id]
    segment_ids += [1] * (keep_b + 1)
  return input_ids, segment_ids
