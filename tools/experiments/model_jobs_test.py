"""Tests of model_jobs.py: command lines, and what is read of finished runs."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import modeling
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
  assert modeling.AlbertConfig.from_json_file(file) == model.config


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


def test_the_speed_of_a_model_is_measured_alone_and_once(place):
  jobs_ = [
    model_jobs.speed(place, _TINY, _model(seed=seed), f"models/x/seed_{seed}")
    for seed in (7, 8)
  ]
  assert [job.key for job in jobs_] == ["speed/x", "speed/x"]
  assert jobs_[0].uses_all_cores
  arguments = jobs_[0].arguments({})
  # Nothing but steps from the first log line on; the last of a flag counts.
  for flag in ("--steps_per_loop=20", "--eval_steps=0"):
    assert flag in arguments
  saves = [a for a in arguments if a.startswith("--save_checkpoints_steps")]
  assert saves[-1] == "--save_checkpoints_steps=120"


def test_a_step_is_cut_to_fit(place):
  scale = dataclasses.replace(_TINY, device_bytes=1 << 25)
  arguments = model_jobs.pretraining(
    place, scale, _model(), "models/x/seed_7"
  ).arguments({})
  cut = [a for a in arguments if a.startswith("--gradient_accumulation_steps")]
  assert len(cut) == 1
  job = model_jobs.pretraining(
    *(place, dataclasses.replace(_TINY, device_bytes=1000)),
    *(_model(), "models/x/seed_7"),
  )
  assert "does not fit" in job.note
  with pytest.raises(ValueError, match="GiB a device, .* does not fit"):
    job.arguments({})


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
