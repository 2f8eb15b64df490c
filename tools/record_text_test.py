"""Tests of how a record reads."""

from __future__ import annotations

import numpy as np
import pytest

from tools import record_text

_PIECES = "<pad> <unk> [CLS] [SEP] [MASK] ▁the ▁cat s ▁sat ▁ ,".split()


class _Tokenizer:
  special_ids = frozenset(range(5))

  def marked_piece(self, id):
    if id >= len(_PIECES):
      raise ValueError(f"id {id} is outside the vocabulary")
    return _PIECES[id]


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
  return {name: np.array(value) for name, value in record.items()}


def test_masked_random_and_kept_tokens_show():
  assert record_text.describe(_record(), _Tokenizer()).splitlines() == [
    "10 of 12 tokens, 3 to predict, next_sentence_labels 1 (swapped or random)",
    "A: [CLS] the {[MASK]:cat}{sat:s}, [SEP]",
    "B: the <unk> {=sat} [SEP]",
  ]


def test_nothing_masked_in_order():
  record = _record(masked_lm_weights=[0] * 4, next_sentence_labels=[0])
  first, *rest = record_text.describe(record, _Tokenizer()).splitlines()
  assert (
    first == "10 of 12 tokens, 0 to predict, next_sentence_labels 0 (in order)"
  )
  assert rest == ["A: [CLS] the [MASK] sat, [SEP]", "B: the <unk> sat [SEP]"]


def test_a_word_mark_alone_can_be_seen():
  record = _record(masked_lm_ids=[9, 7, 8, 0])
  assert " {[MASK]:▁}{sat:s}" in record_text.describe(record, _Tokenizer())


def test_long_text_is_wrapped():
  record = _record(
    input_ids=[2] + [6] * 60 + [3, 8, 3],
    input_mask=[1] * 64,
    segment_ids=[0] * 62 + [1] * 2,
  )
  lines = record_text.describe(record, _Tokenizer()).splitlines()
  assert len(lines) == 6
  assert max(map(len, lines)) <= 80
  assert lines[2].startswith("   cat cat")


def test_record_of_another_tokenizer():
  with pytest.raises(ValueError, match="id 99 is outside"):
    record_text.describe(_record(input_ids=[99] * 12), _Tokenizer())


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
