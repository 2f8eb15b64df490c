"""Tests of records as text, with and without colors."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from tools.records import record_text

_PIECES = "<pad> <unk> [CLS] [SEP] [MASK] ▁the ▁cat s ▁sat ▁ ,".split()


class _Tokenizer:
  special_ids = frozenset(range(5))
  mask_id = 4

  def marked_piece(self, id):
    if id >= len(_PIECES):
      raise ValueError(f"id {id} is outside the vocabulary")
    return _PIECES[id]

  def decode(self, ids):
    pieces = [self.marked_piece(id) for id in ids if id not in (2, 3)]
    return "".join(pieces).replace("▁", " ").strip()


class _Terminal(io.StringIO):
  def isatty(self):
    return True


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
  assert record_text.describe(_record(), _Tokenizer()).splitlines() == [
    "10 of 12 tokens, 3 to predict, next_sentence_labels 1 (swapped or random)",
    "A: [CLS] the {[MASK]:cat}{sat:s}, [SEP]",
    "B: the <unk> {=sat} [SEP]",
    "text A: the cats,",
    "text B: the<unk> sat",
  ]


def test_three_colors():
  lines = record_text.describe(_record(), _Tokenizer(), True).splitlines()
  assert lines[1:3] == [
    "A: [CLS] the \x1b[33m[MASK]\x1b[0m\x1b[2m(cat)\x1b[0m"
    "\x1b[31msat\x1b[0m\x1b[2m(s)\x1b[0m, [SEP]",
    "B: the <unk> \x1b[32msat\x1b[0m [SEP]",
  ]
  legend = record_text.legend(True)
  assert re.findall(r"\x1b\[(3\d)m([^\x1b]*)", legend) == [
    ("33", "[MASK]"),
    ("31", "random"),
    ("32", "kept"),
  ]
  assert record_text.legend(False) == (
    "To predict: {[MASK]:masked}, {random:replaced}, {=kept}"
  )


def test_colors_do_not_change_line_breaks():
  record = _record(
    input_ids=[2] + [4] * 60 + [3, 8, 3],
    input_mask=[1] * 64,
    segment_ids=[0] * 62 + [1] * 2,
    masked_lm_positions=range(1, 61),
    masked_lm_ids=[6] * 60,
    masked_lm_weights=[1] * 60,
  )
  colored = record_text.describe(record, _Tokenizer(), True).splitlines()
  plain = record_text.describe(record, _Tokenizer()).splitlines()
  assert len(colored) == len(plain) > 10
  bare = [re.sub("\x1b\\[\\d+m", "", line) for line in colored]
  assert max(map(len, bare + plain)) <= 80
  assert plain[2].startswith("   {[MASK]:cat}")


@pytest.mark.parametrize(
  ("color", "terminal", "environment", "expected"),
  [
    ("auto", True, {}, True),
    ("auto", False, {}, False),
    ("auto", True, {"NO_COLOR": "1"}, False),
    ("auto", True, {"NO_COLOR": ""}, True),  # As no-color.org has it.
    ("always", False, {"NO_COLOR": "1"}, True),
    ("never", True, {}, False),
  ],
)
def test_when_colors_are_used(
  monkeypatch, color, terminal, environment, expected
):
  monkeypatch.delenv("NO_COLOR", raising=False)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  stream = _Terminal() if terminal else io.StringIO()
  assert record_text.use_color(color, stream) == expected


def test_record_for_masking_while_training():
  record = _record(
    input_ids=[2, 5, 6, 7, 10, 3, 5, 9, 10, 3, 0, 0],
    masked_lm_positions=None,
    masked_lm_ids=None,
    masked_lm_weights=None,
    next_sentence_labels=[0],
  )
  assert record_text.describe(record, _Tokenizer()).splitlines() == [
    "10 of 12 tokens, 0 to predict (not masked), next_sentence_labels 0 "
    "(in order)",
    "A: [CLS] the cats, [SEP]",
    "B: the , [SEP]",
    "text A: the cats,",
    "text B: the ,",
  ]


def test_word_mark_alone_is_shown():
  record = _record(masked_lm_ids=[9, 7, 8, 0])
  assert " {[MASK]:▁}{sat:s}" in record_text.describe(record, _Tokenizer())


def test_record_of_another_tokenizer():
  with pytest.raises(ValueError, match="id 99 is outside"):
    record_text.describe(_record(input_ids=[99] * 12), _Tokenizer())


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
