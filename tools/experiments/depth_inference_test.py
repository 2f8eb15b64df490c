"""Tests of depth_inference.py."""

from __future__ import annotations

import json

import pytest

from tools.experiments import depth_inference, jobs, results, scales

_TINY = scales.SCALES["tiny"]


@pytest.fixture
def planned(tmp_path):
  place = jobs.Place(str(tmp_path), "a.txt", "", {"MNLI": "g", "SST-2": "g"})
  return depth_inference.make_plan(_TINY, place, ("MNLI", "SST-2"), (3, 5))


def test_one_model_a_seed_is_measured_at_all_depths(planned):
  seen = set()
  for key, job in planned.jobs.items():
    assert set(job.needs) <= seen
    seen.add(key)
  models = [key for key in planned.jobs if key.startswith("models/")]
  assert len(models) == 2
  # Two tasks, as tuned and after two kinds of more steps, at each depth, for
  # each seed.
  evaluations = [key for key in planned.jobs if "-depth_" in key]
  assert len(evaluations) == 2 * 3 * 2 * len(depth_inference.DEPTHS)
  assert len(planned.cells) == 2 * len(depth_inference.DEPTHS)


def test_results_are_read_where_they_are_written(planned, tmp_path):
  key = next(key for key in planned.jobs if key.endswith("mnli-depth_3"))
  run = key[: -len("-depth_3")]
  assert planned.jobs[key].needs == (run,)
  folder = tmp_path / run / "depth_3"
  folder.mkdir(parents=True)
  results_ = {"dev_matched": {"accuracy": 0.25}}
  (folder / "eval_results.json").write_text(json.dumps(results_))
  assert planned.jobs[key].read() == {"MNLI at 3": 25.0}


def test_flags(planned):
  job = next(
    job
    for key, job in planned.jobs.items()
    if key.endswith("sst2-random_depths-depth_16")
  )
  arguments = job.arguments({})
  for flag in ("--nodo_train", "--num_hidden_layers=16", "--task=sst2"):
    assert flag in arguments
  job = next(
    job for key, job in planned.jobs.items() if key.endswith("random_depths")
  )
  arguments = job.arguments({})
  assert "--num_train_steps=300" in arguments
  assert not [a for a in arguments if a.startswith("--num_train_epochs")]


def test_rows_have_the_numbers_of_their_depth(planned):
  found = {}
  for key in planned.jobs:
    if "-depth_" in key:
      depth = int(key.rsplit("_", 1)[1])
      task = "MNLI" if "mnli" in key else "SST-2"
      more = "random depths" if "random_depths" in key else ""
      more = "own depth" if "own_depth" in key else more
      after = {"": 0, "own depth": 50, "random depths": 100}[more]
      column = depth_inference.column_of(task, more)
      found[key] = {f"{column} at {depth}": depth + after}
  found["data/depth_latency"] = {
    f"ms at {depth}": 0.5 * depth for depth in depth_inference.DEPTHS
  }
  rows = results.collect(
    depth_inference.TABLE, planned.cells, found, ("MNLI", "SST-2")
  )
  by_label = {row.row.label: row.values for row in rows}
  assert by_label["12 layers"] == {
    "ms": [6.0],
    "MNLI": [12, 12],
    "MNLI, own depth": [62, 62],
    "MNLI, random depths": [112, 112],
    "SST-2": [12, 12],
    "SST-2, own depth": [62, 62],
    "SST-2, random depths": [112, 112],
  }


def test_latencies_are_read(planned, tmp_path):
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "depth_latency.json").write_text(json.dumps({"3": 1.5}))
  job = planned.jobs["data/depth_latency"]
  assert job.read() == {"ms at 3": 1.5}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
