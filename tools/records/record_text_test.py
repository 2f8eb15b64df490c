"""Tests of records as text, with marks."""

from __future__ import annotations

import numpy as np

from official_albert.tools.records import record_text

_PIECES = "<pad> <unk> [CLS] [SEP] [MASK] ▁the ▁cat s ▁sat ▁ ,".split()


class _Tokenizer:
  special_ids = frozenset(range(5))
  mask_id = 4

  def marked_piece(self, id):
    return _PIECES[id]

  def decode(self, ids):
    pieces = [self.marked_piece(id) for id in ids if id not in (2, 3)]
    return "".join(pieces).replace("▁", " ").strip()


def _record(**changes):
  record = {
    # [CLS] the cats , [SEP] the <unk> sat [SEP]
    "input_ids": [2, 5, 4, 8, 10, 3, 5, 1, 8, 3, 0, 0],
    "input_mask": [1] * 10 + [0] * 2,
    "segment_ids": [0] * 6 + [1] * 4 + [0] * 2,
    "masked_lm_positions": [2, 3, 8, 0],
    "masked_lm_ids": [6, 7, 8, 0],
    "masked_lm_weights": [1, 1, 1, 0],
    "next_sentence_labels": [1],
    **changes,
  }
  return {
    name: np.array(value) for name, value in record.items() if value is not None
  }


def test_masked_random_and_kept_tokens_are_marked():
  plain = record_text.describe(_record(), _Tokenizer()).splitlines()
  assert plain == [
    "10 of 12 tokens, 3 to predict, next_sentence_labels 1 (swapped or random)",
    "A: [CLS] the {[MASK]:cat}{sat:s}, [SEP]",
    "B: the <unk> {=sat} [SEP]",
    "text A: the cats,",
    "text B: the<unk> sat",
  ]
  record = _record(masked_lm_ids=[9, 7, 8, 0])  # 9 is the word mark alone.
  assert " {[MASK]:▁}{sat:s}" in record_text.describe(record, _Tokenizer())
