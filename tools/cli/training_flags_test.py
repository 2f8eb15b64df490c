"""The flags as settings, phases and depths."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import types

import pytest

from official_albert import AlbertConfig
from official_albert.training import Phase, TrainConfig
from tools.cli import model_depth_flag, training_flags

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = """
import dataclasses, json, sys
from absl import flags
import tensorflow as tf
from tools.cli import training_flags
flags.FLAGS(sys.argv)
try:
  config, lines = training_flags.train_config("folder")
except ValueError as error:
  print(json.dumps({"error": str(error)}))
else:
  strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
  said = training_flags.settings(config, strategy, "mixed_bfloat16")
  print(json.dumps({"settings": said, "lines": lines}))
"""


def _run(*arguments):
  said = subprocess.run(
    [sys.executable, "-c", _PROGRAM, *arguments],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert said.returncode == 0, said.stderr
  return json.loads(said.stdout)


def test_defaults_are_the_papers():
  said = _run()
  settings = said["settings"]
  assert settings["train_batch_size"] == 4096
  assert settings["num_train_steps"] == 125000
  assert settings["num_warmup_steps"] == 3125
  assert settings["learning_rate"] == pytest.approx(0.00176)
  assert settings["optimizer"] == "lamb"
  assert settings["phases"] == [] and settings["model_dir"] == "folder"
  assert settings["num_replicas"] == 1
  assert settings["precision"] == "mixed_bfloat16"
  assert settings["distribution"] == "one_device"
  assert any("0.00176" in line for line in said["lines"])


def test_phases_and_the_rate_of_the_first_batch():
  settings = _run(
    "--phase_steps=90,10",
    "--train_batch_size=1024,256",
    "--gradient_accumulation_steps=4",
    "--num_warmup_steps=5",
  )["settings"]
  assert settings["num_train_steps"] == 100
  sizes = [phase["train_batch_size"] for phase in settings["phases"]]
  assert sizes == [1024, 256]
  assert settings["gradient_accumulation_steps"] == 4
  assert settings["learning_rate"] == pytest.approx(0.00088)  # sqrt(1/4).


def test_the_best_and_when_to_stop():
  settings = _run()["settings"]
  assert (settings["best_metric"], settings["best_is"]) == ("loss", "lowest")
  assert settings["early_stopping_evaluations"] == 0
  settings = _run(
    "--best_metric=accuracy",
    "--best_is=highest",
    "--eval_steps=50",
    "--early_stopping_evaluations=3",
  )["settings"]
  assert (settings["best_metric"], settings["best_is"]) == (
    "accuracy",
    "highest",
  )
  assert settings["early_stopping_evaluations"] == 3


@pytest.mark.parametrize(
  ("flag", "message"),
  [
    ("--train_batch_size=12x", "--train_batch_size has to be whole numbers"),
    ("--train_batch_size=8,4", "but there is 1 phase"),
    (
      ["--phase_steps=9,4", "--num_train_steps=9"],
      "--phase_steps are 13 steps together, but --num_train_steps is 9: leave",
    ),
    ("--clip_norm=0", "clip_norm must be positive"),
    ("--early_stopping_evaluations=-1", "must not be negative, got -1"),
  ],
)
def test_refusals(flag, message):
  given = [flag] if isinstance(flag, str) else flag
  assert message in _run(*given)["error"]


def test_a_tpu_does_not_multiply_in_float16():
  said = _run("--distribution=tpu", "--precision=mixed_float16")
  assert "use --precision=auto or mixed_bfloat16" in said["error"]


def phases_of(steps, batch_size, accumulation):
  lists = {
    "train_batch_size": batch_size,
    "gradient_accumulation_steps": accumulation,
  }
  return training_flags.make_phases(steps, lists)


def test_one_value_or_one_for_each_phase():
  assert phases_of("", [4096], [1]) == ()
  assert phases_of("9,4", [8, 6], [2, 3]) == (Phase(9, 8, 2), Phase(4, 6, 3))
  # A single value stays that of the run.
  assert phases_of("9,4", [8], [1]) == (Phase(9), Phase(4))
  assert phases_of("9", [8], [1]) == (Phase(9),)


@pytest.mark.parametrize(
  "values, message",
  [
    (("9,4", [8, 6, 7], [1]), "train_batch_size has 3 values, .* are 2 phases"),
    (("", [8], [1, 2]), "gradient_accumulation_steps has 2 .* is 1 phase:"),
    (("9,x", [8], [1]), "--phase_steps has to be whole numbers .* '9,x'"),
    (("9,", [8], [1]), "--phase_steps has to be whole numbers"),
    (("9,0", [8], [1]), "steps of a phase must be at least 1, got 0"),
  ],
)
def test_other_phases_are_refused(values, message):
  with pytest.raises(ValueError, match=message):
    phases_of(*values)


def test_folders_of_phases(tmp_path):
  assert training_flags.phase_folders("input_dir", "a,b", 2) == ["a", "b"]
  (tmp_path / "a,b").mkdir()
  there = str(tmp_path / "a,b")
  assert training_flags.phase_folders("input_dir", there, 1) == [there]
  with pytest.raises(ValueError, match="several phases, see --phase_steps"):
    training_flags.phase_folders("input_dir", "a,b", 1)
  for value in ("a", "a,b,c", "a,"):
    with pytest.raises(ValueError, match="--input_dir names .* has 2 phases"):
      training_flags.phase_folders("input_dir", value, 2)


@pytest.fixture
def give(monkeypatch):
  """Sets flags, which nobody parses here; at first there is none."""

  def give(**values):
    for name, value in values.items():
      holder = types.SimpleNamespace(value=value)
      monkeypatch.setattr(training_flags, f"_{name.upper()}", holder)

  give(depth_schedule="", phase_steps="", random_depths="")
  return give


def config(**changes):
  values = dict(
    model_dir="run",
    num_train_steps=9,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
  )
  return TrainConfig(**{**values, **changes})


def test_without_flags_nothing_changes(give):
  given = config(phases=(Phase(4), Phase(5, 6)))
  assert training_flags.with_depth_schedule(given) is given
  assert training_flags.scheduled_depths(given) == ()
  assert training_flags.scheduled_depths(config()) == ()


def test_a_stretch_is_a_phase_that_goes_on_in_the_same_data(give):
  give(depth_schedule="2:1/3,3:1/3,5:1/3")
  scheduled = training_flags.with_depth_schedule(config())
  assert scheduled.phases == (
    Phase(3, num_layers=2),
    Phase(3, num_layers=3, same_data=True),
    Phase(3, num_layers=5, same_data=True),
  )
  assert scheduled.phase_ends == (3, 6, 9)
  assert training_flags.scheduled_depths(scheduled) == (2, 3, 5)


@pytest.mark.parametrize(
  "schedule, changes, message",
  [
    ("2:1", dict(phases=(Phase(9),)), "cannot be used with --phase_steps"),
    ("2:0.5,5", {}, "has to be DEPTH:SHARE.* has the part '5'"),
    (
      "2:0.5,5:0.5",
      dict(early_stopping_evaluations=2),
      "cannot be used with phases or a depth",
    ),
  ],
)
def test_other_schedules_are_refused(give, schedule, changes, message):
  give(depth_schedule=schedule)
  with pytest.raises(ValueError, match=message):
    training_flags.with_depth_schedule(config(**changes))


def test_random_depths(give):
  model = AlbertConfig(num_hidden_layers=5)
  given = config()
  assert training_flags.with_random_depths(given, model) is given
  give(random_depths="2,7,5")
  assert training_flags.with_random_depths(given, model).random_depths == (
    2,
    7,
    5,
  )
  groups = AlbertConfig(num_hidden_layers=5, num_hidden_groups=2)
  with pytest.raises(ValueError, match="2 groups of layers .* cannot have 2"):
    training_flags.with_random_depths(given, groups)
  give(random_depths="2,x")
  with pytest.raises(ValueError, match="random depths have to be whole"):
    training_flags.with_random_depths(given, model)
  give(random_depths="2,5", depth_schedule="2:0.5,5:0.5")
  with pytest.raises(ValueError, match="cannot be used with a depth schedule"):
    training_flags.with_random_depths(
      training_flags.with_depth_schedule(given), model
    )
  with pytest.raises(ValueError, match="--depth_schedule is for pretraining"):
    training_flags.refuse_phases()


def test_a_depth_for_a_model_that_shares_everything(monkeypatch):
  def give_layers(value):
    holder = types.SimpleNamespace(value=value)
    monkeypatch.setattr(model_depth_flag, "NUM_HIDDEN_LAYERS", holder)

  config = AlbertConfig(num_hidden_layers=5)
  give_layers(0)
  assert not model_depth_flag.given()
  assert model_depth_flag.at_depth(config) is config
  give_layers(7)
  assert model_depth_flag.given()
  assert model_depth_flag.at_depth(config).num_hidden_layers == 7
  give_layers(-1)
  with pytest.raises(ValueError, match="num_hidden_layers must be at least 1"):
    model_depth_flag.at_depth(config)
  with pytest.raises(ValueError, match="sharing 'none' .* cannot have -1"):
    model_depth_flag.at_depth(AlbertConfig.from_preset("bert_base"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
