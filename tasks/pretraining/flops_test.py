"""Checks the count against products that are written out here."""

from __future__ import annotations

import pytest

from official_albert import modeling
from tasks.pretraining import flops

_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=14,
)


def _product(rows, inner, columns):
  return 2 * rows * inner * columns


def test_every_product_is_counted_three_times():
  s, p = 7, 2
  rows = p + 1
  whole = 4 * _product(s, 10, 10) + 2 * 2 * _product(s, 5, s)
  whole += _product(s, 10, 14) + _product(s, 14, 10)
  # Keys and values are of all positions, the rest of the three that are asked.
  last = 2 * _product(s, 10, 10) + 2 * _product(rows, 10, 10)
  last += 2 * 2 * _product(rows, 5, s)
  last += _product(rows, 10, 14) + _product(rows, 14, 10)
  others = _product(s, 6, 10) + _product(1, 10, 10)
  head = _product(p, 10, 6) + _product(p, 6, 97)
  assert flops.training_flops(_CONFIG, s, p) == 3 * (
    whole + last + others + head
  )


def test_no_more_rows_are_counted_than_there_are():
  every = flops.training_flops(_CONFIG, 7, 6)
  more = flops.training_flops(_CONFIG, 7, 8)
  assert more - every == 3 * 2 * (_product(1, 10, 6) + _product(1, 6, 97))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
