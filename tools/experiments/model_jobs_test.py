"""Tests of model_jobs.py: command lines, and what is read of finished runs."""

from __future__ import annotations

import json

import pytest

from official_albert import config as config_lib
from tools.experiments import jobs, model_jobs, scales

_TINY = scales.SCALES["tiny"]


@pytest.fixture
def place(tmp_path) -> jobs.Place:
  return jobs.Place(str(tmp_path), "a.txt,b.txt", "c.txt", {"RACE": "race"})


def _model(**changes) -> model_jobs.Model:
  values = dict(
    config=_TINY.config({}),
    pair="sop",
    more_data=False,
    training=(("depth_schedule", "3:0.5,4:0.5"), ("bias_correction", False)),
    steps=50,
    seed=7,
  )
  return model_jobs.Model(**{**values, **changes})


def test_pretraining(place):
  model = _model(starts_from="models/other/seed_7")
  job = model_jobs.pretraining(place, _TINY, model, "models/x/seed_7")
  assert job.needs == ("data/records-sop", "models/other/seed_7")
  arguments = job.arguments({})
  assert arguments[0] == "tools.run_pretraining"
  for flag in (
    f"--init_checkpoint={place.path('models/other/seed_7')}",
    "--num_train_steps=50",
    "--num_warmup_steps=5",
    "--random_seed=7",
    "--eval_steps=7",
    # A row's own flags win.
    "--nobias_correction",
    "--depth_schedule=3:0.5,4:0.5",
    "--learning_rate=0.003",
  ):
    assert flag in arguments
  file = place.path("models/x/seed_7.albert_config.json")
  assert f"--albert_config_file={file}" in arguments
  assert config_lib.AlbertConfig.from_json_file(file) == model.config


def test_cost_is_that_of_the_products(place):
  config = _TINY.config({})
  # Forward and twice that backward, 50 updates of 32 sequences.
  flops = 3 * 50 * 32 * config.forward_flops(64)
  assert model_jobs.pretraining_cost(_TINY, _model(), 50) == flops


def test_finetuning_has_the_flags_of_scale_and_task(place):
  job = model_jobs.finetuning(place, _TINY, _model(), "models/x/seed_7", "RACE")
  arguments = job.arguments({})
  for flag in (
    "--task=race",
    "--data_dir=race",
    f"--init_checkpoint={place.path('models/x/seed_7')}",
    "--max_seq_length=128",
    "--max_qa_length=48",
    "--nodo_predict",
    "--random_seed=7",
  ):
    assert flag in arguments
  assert job.needs == ("models/x/seed_7",)
  assert job.key == "tasks/x-seed_7-race"


def _write(folder, name, value) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).write_text(json.dumps(value))


@pytest.mark.parametrize(
  "column, metrics, value",
  [
    ("MNLI", {"accuracy": 0.25}, 25.0),
    ("SQuAD1.1", {"exact_match": 50.0, "f1": 60.0}, 55.0),
    ("SQuAD2.0", {"exact": 40.0, "f1": 50.0, "best_f1": 70.0}, 45.0),
  ],
)
def test_results_of_tasks_are_percent(tmp_path, column, metrics, value):
  results = {"dev_matched": metrics, "other": {}}
  _write(tmp_path, "eval_results.json", results)
  assert model_jobs.read_finetuning(str(tmp_path), column) == {column: value}


def test_a_run_is_read_at_its_end(tmp_path):
  records = [
    {"kind": "eval", "step": 0, "unix_time_seconds": 10.0},
    {"kind": "start", "step": 0, "unix_time_seconds": 11.0},
    {"kind": "train", "step": 5, "unix_time_seconds": 21.0, "loss": 5.0},
    {"kind": "eval", "step": 5, "unix_time_seconds": 22.0},
  ]
  records[0].update(loss=9.0, masked_lm_loss=8.0, masked_lm_accuracy=0.0)
  records[3].update(loss=6.0, masked_lm_loss=5.0, masked_lm_accuracy=0.25)
  records[3]["sentence_order_accuracy"] = 0.75
  for name in (
    *("sequences_per_second", "tokens_per_second"),
    *("model_flops_per_second", "data_wait_share"),
  ):
    records[2][name] = 3.0
  lines = "".join(json.dumps(record) + "\n" for record in records)
  (tmp_path / "metrics.jsonl").write_text(lines)
  config = _TINY.config({})
  assert model_jobs.read_pretraining(str(tmp_path), config) == {
    "parameters": config.parameter_count(),
    "steps": 5,
    "training_seconds": 10.0,
    "tokens_per_second": 3.0,
    "masked_lm_loss": 5.0,
    "masked_lm_accuracy": 25.0,
    "sentence_pair_accuracy": 75.0,
    "curve": [[0, 10.0, 8.0], [5, 22.0, 5.0]],
  }


def _at(kind: str, step: int, time: float) -> dict:
  return {"kind": kind, "step": step, "unix_time_seconds": time}


def test_a_killed_run_counts_as_one_that_was_not():
  # Killed before the first step, after step 30, whose checkpoint was that of
  # step 20, and at step 40.
  records = [
    *(_at("eval", 0, 9.0), _at("eval", 0, 99.0), _at("start", 0, 100.0)),
    *(_at("train", 10, 110.0), _at("train", 20, 120.0), _at("eval", 20, 121.0)),
    *(_at("train", 30, 131.0), _at("eval", 30, 132.0)),
    *(_at("eval", 20, 999.0), _at("start", 20, 1000.0)),
    *(_at("train", 30, 1010.0), _at("train", 40, 1020.0)),
    *(_at("eval", 40, 4999.0), _at("start", 40, 5000.0)),
    *(_at("train", 50, 5010.0), _at("eval", 50, 5011.0)),
  ]
  kept = model_jobs.without_pauses(records)
  assert [(r["kind"], r["step"], r["unix_time_seconds"]) for r in kept] == [
    *(("eval", 0, 99.0), ("start", 0, 100.0)),
    *(("train", 10, 110.0), ("train", 20, 120.0), ("eval", 20, 121.0)),
    *(("train", 30, 131.0), ("train", 40, 141.0)),
    *(("train", 50, 151.0), ("eval", 50, 152.0)),
  ]


def test_speed_is_without_the_loop_that_compiles(place, tmp_path):
  job = model_jobs.speed(place, _TINY, _model(), "models/x/seed_7")
  assert "--steps_per_loop=20" in job.arguments({})
  folder = tmp_path / "speed" / "x-seed_7"
  folder.mkdir(parents=True)
  records = [_at("start", 0, 0.0)]
  for step, speed in ((20, 1.0), (40, 7.0), (60, 9.0), (80, 8.0)):
    record = {**_at("train", step, float(step)), "loss": 5.0}
    record["sequences_per_second"] = record["tokens_per_second"] = speed
    records.append(record)
  lines = "".join(json.dumps(record) + "\n" for record in records)
  (folder / "metrics.jsonl").write_text(lines)
  assert job.read() == {"tokens_per_second": 8.0}


def test_evaluations_are_where_the_training_was(place):
  def flags(scale):
    job = model_jobs.pair_evaluation(
      place, scales.SCALES[scale], _model(), "models/x/seed_7", "nsp"
    )
    return job.arguments({})

  assert "--distribution=tpu" in flags("base")
  assert not [f for f in flags("tiny") if f.startswith("--distribution")]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
