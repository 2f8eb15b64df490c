"""Tests of configurations.py."""

from __future__ import annotations

import json

import pytest

from tools.experiments import configurations, jobs, results


@pytest.fixture
def planned(tmp_path):
  return configurations.make_plan(jobs.Place(str(tmp_path), "", "", {}))


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
  rows = results.collect(configurations.TABLE, planned.cells, found, ())
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


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
