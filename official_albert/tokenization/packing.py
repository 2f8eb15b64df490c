"""One or two texts as one sequence: [CLS] A [SEP] B [SEP].

Reference: google-research/albert classifier_utils.py
(convert_single_example, _truncate_seq_pair).
"""

from __future__ import annotations

from typing import Optional, Sequence


def pack_pair(
  ids_a: Sequence[int],
  ids_b: Optional[Sequence[int]],
  max_seq_length: int,
  cls_id: int,
  sep_id: int,
) -> tuple[list[int], list[int]]:
  """Packs one text or two, cut at their ends to what fits.

  What is too long loses tokens from the end of the longer text, of B where
  both are equally long; the lengths that this leads to are computed at once.

  Args:
    ids_a: tokens of A, maybe none.
    ids_b: tokens of B, maybe none; None where there is no second text.
    max_seq_length: tokens of the result at most, the special ones included.
    cls_id: of [CLS].
    sep_id: of [SEP].

  Returns:
    (input_ids, segment_ids), equally long and not padded. Segment 0 ends with
    the first [SEP].

  Raises:
    ValueError: `max_seq_length` leaves no room for one token of each text.
  """
  texts = 1 if ids_b is None else 2
  # [CLS] and one [SEP] a text.
  room = max_seq_length - 1 - texts
  if room < texts:
    raise ValueError(
      f"max_seq_length is {max_seq_length}, but [CLS], {texts} [SEP] and a "
      f"token of each text need {1 + 2 * texts}: give a larger one."
    )
  keep_a, keep_b = _kept(len(ids_a), len(ids_b or ()), room)
  input_ids = [cls_id, *ids_a[:keep_a], sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b is not None:
    input_ids += [*ids_b[:keep_b], sep_id]
    segment_ids += [1] * (keep_b + 1)
  return input_ids, segment_ids


def _kept(length_a: int, length_b: int, room: int) -> tuple[int, int]:
  """How many tokens remain of A and of B."""
  if length_a + length_b <= room:
    return length_a, length_b
  # A keeps what B leaves, but never less than half, rounded up.
  keep_a = min(length_a, max(room - length_b, (room + 1) // 2))
  return keep_a, room - keep_a
