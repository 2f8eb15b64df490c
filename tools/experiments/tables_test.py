"""Tests of tables.py."""

from __future__ import annotations

import pytest

from tools.experiments import jobs, scales, tables

# Planning writes nothing, so nothing can be written there.
_PLACE = jobs.Place("/dev/null/out", "a.txt", "b.txt", {"MNLI": "glue"})


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_is_planned(name):
  planned = tables.make_plan(
    tables.TABLES[name], scales.SCALES["tiny"], _PLACE, ("MNLI",), (1, 2)
  )
  labels = {cell.label for cell in planned.cells}
  assert labels == {row.label for row in tables.TABLES[name].rows}


@pytest.mark.parametrize("scale", ["tiny", "base"])
def test_what_is_the_same_model_in_two_tables_is_trained_once(scale):
  models = {}
  for name in ("2", "6", "8", "13", "figure_1", "figure_2"):
    planned = tables.make_plan(
      tables.TABLES[name], scales.SCALES[scale], _PLACE, (), (1,)
    )
    models[name] = {cell.label: cell.model for cell in planned.cells}
  xxlarge = models["2"]["ALBERT-xxlarge"]
  assert models["6"]["ALBERT-xxlarge"] == models["13"]["12 layers"] == xxlarge
  large, bert = models["2"]["ALBERT-large"], models["2"]["BERT-large"]
  deep = models["13"]["24 layers"]
  assert deep == models["figure_1"]["ALBERT, H 4096"] != xxlarge
  assert models["figure_1"]["ALBERT, H 1024"] == large
  assert models["figure_1"]["BERT, H 1024"] == bert
  assert set(models["figure_2"].values()) == {large, bert}
  without = models["8"]["without dropout"]
  assert (without == xxlarge) == (scale == "tiny")  # base has dropout.


def test_the_papers_tables_are_there():
  names = {*"12345678", "11", "12", "13", "figure_1", "figure_2"}
  assert names <= set(tables.TABLES)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
