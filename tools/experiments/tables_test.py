"""Tests of tables and scales: the numbers agree."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import modeling
from official_albert.tools.experiments import scales, tables

_TINY, _BASE = scales.SCALES["tiny"], scales.SCALES["base"]
_ROWS = [
  pytest.param(table, row, id=f"{table.name}-{row.label}")
  for table in tables.TABLES.values()
  for row in table.rows
]


@pytest.mark.parametrize("table, row", _ROWS)
def test_rows_agree_with_the_paper(table, row):
  assert row.compared_with in (None, *(other.label for other in table.rows))
  average = row.paper_average(list(tables.TASKS))
  if average is not None:
    # Both are rounded to one decimal.
    assert average == pytest.approx(row.paper["Avg"], abs=0.06)
  if row.paper_parameters and row.runs and not row.preset:
    count = _BASE.config(row.model).parameter_count() / 1e6
    printed = float(row.paper_parameters.rstrip("M"))
    # xxlarge is 235M in table 6 and 225M in table 12; it has 222.6M.
    assert count == pytest.approx(printed, rel=0.06)


def test_steps_are_split_as_far_as_memory_requires():
  assert _TINY.fit(_TINY.config({})) == ({}, "")
  flags, note = _BASE.fit(_BASE.config({}))
  assert flags == {} and note.startswith("about ")
  xlarge = modeling.AlbertConfig.from_preset("albert_xlarge_v1")
  few, _ = dataclasses.replace(_BASE, num_devices=64).fit(xlarge)
  many, _ = _BASE.fit(xlarge)
  count = "gradient_accumulation_steps"
  assert few[count] > many.get(count, 1) >= 1
  split, note = _BASE.fit(_BASE.config({"hidden_size": 4096, "depth": 12}))
  assert set(split) == {count}
  # A v3 core has 15.48 GiB, of which 90% are used.
  assert float(note.split()[1]) <= 0.9 * 15.48
  assert f"{count}={split[count]}" in note
  # A step of one sequence is the smallest.
  one = dataclasses.replace(_BASE, num_devices=4096, device_bytes=500 << 20)
  assert one.fit(one.config({}))[0] == {"recompute_activations": True}
  bert = _BASE.config(
    dict(hidden_size=4096, depth=24, embedding_size="H", sharing="none")
  )
  flags, note = _BASE.fit(bert)
  assert flags is None and "does not fit" in note
  # Weights, gradients and two moments alone.
  gib = 16 * bert.parameter_count() / 2**30
  assert float(note.split()[1]) > gib > 15.48
