"""Tests of tables.py."""

from __future__ import annotations

import json

import pytest

from tools.experiments import jobs, results, scales, tables


@pytest.fixture
def planned(tmp_path):
  return tables.plan_configurations(jobs.Place(str(tmp_path), "", "", {}))


def test_models_are_measured_one_after_the_other(planned):
  keys = list(planned.jobs)
  assert len(keys) == 6
  for before, key in zip(keys, keys[1:]):
    assert planned.jobs[key].needs == (before,)
    assert planned.jobs[key].uses_all_cores
  arguments = planned.jobs["configurations/bert_large"].arguments({})
  assert arguments[:3] == ["tools.benchmark", "step", "--preset=bert_large"]


def test_speeds_are_beside_bert_large(planned, tmp_path):
  found = {}
  for rate, (key, job) in enumerate(planned.jobs.items(), 2):
    folder = tmp_path / key
    folder.mkdir(parents=True)
    rates = {"tokens_per_second": [3.0 * rate, 2.0 * rate, 7.0 * rate]}
    (folder / "step.json").write_text(json.dumps(rates))
    found[key] = job.read()
  rows = results.collect(tables.CONFIGURATIONS, planned.cells, found, ())
  by_label = {row.row.label: row for row in rows}
  # The second one has a rate of 3.
  assert by_label["BERT-large"].values["speed"] == [1.0]
  assert by_label["ALBERT-xxlarge"].values["speed"] == [7 / 3]
  assert by_label["ALBERT-xxlarge"].values["tokens/s"] == [21.0]
  # Sharing saves parameters, not operations.
  base = by_label["ALBERT-base"]
  assert base.parameters == 11_683_584
  bert = by_label["BERT-base"].values["MFLOP/token"][0]
  assert base.values["MFLOP/token"][0] == pytest.approx(bert, rel=0.01)


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
