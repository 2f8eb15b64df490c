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


_BASE = scales.SCALES["base"]


def test_a_scale_without_a_device_is_left_alone():
  tiny = scales.SCALES["tiny"]
  found = model_jobs.fit(tiny, tiny.config({}))
  assert found == ({}, 0, True)
  assert found.describe() == ""


def test_small_models_are_not_cut():
  found = model_jobs.fit(_BASE, _BASE.config({}))
  assert found.fits and not found.flags
  assert found.describe().startswith("about ")


def test_large_models_are_cut_first_and_then_computed_twice():
  config = _BASE.config({"hidden_size": 4096, "depth": 12})
  whole = model_jobs.fit(_BASE, config)
  assert set(whole.flags) == {"gradient_accumulation_steps"}
  limit = int(0.9 * _BASE.device_bytes)
  assert whole.fits and whole.bytes <= limit
  assert "gradient_accumulation_steps=" in whole.describe()
  # A step of one sequence is the smallest.
  one = dataclasses.replace(_BASE, num_devices=4096)
  deep = one.config({"hidden_size": 4096, "num_hidden_layers": 96})
  assert model_jobs.fit(one, deep).flags == {"recompute_activations": True}


def test_what_never_fits_is_told():
  bert = _BASE.config(
    {
      "hidden_size": 4096,
      "depth": 24,
      "embedding_size": "H",
      "sharing": "none",
    }
  )
  found = model_jobs.fit(_BASE, bert)
  # Weights, gradients and two moments alone.
  assert found.bytes > 16 * bert.parameter_count() > _BASE.device_bytes
  assert not found.fits and "does not fit" in found.describe()


def test_more_devices_need_fewer_cuts():
  config = modeling.AlbertConfig.from_preset("albert_xlarge_v1")

  def cuts(devices):
    scale = dataclasses.replace(_BASE, num_devices=devices)
    flags = model_jobs.fit(scale, config).flags
    return flags.get("gradient_accumulation_steps", 1)

  assert cuts(64) > cuts(512) >= 1


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
