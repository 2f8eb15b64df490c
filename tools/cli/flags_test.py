"""Tests of the flags of training and recipes."""

from __future__ import annotations

import dataclasses
import os
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from official_albert import AlbertConfig, distribution, machine
from official_albert.tasks.pretraining import data, recipes
from official_albert.tools import run_pretraining
from official_albert.tools.cli import device_flags, training_flags
from official_albert.tools.testing import many_commands


@pytest.fixture
def evaluate(own_flags, monkeypatch):
  """Returns the answers of a function, or its errors, to lists of flags."""
  own_flags(run_pretraining, training_flags, device_flags)
  monkeypatch.setattr(machine, "prepare_tpu", lambda address: None)

  def run(answer, *lines):
    found = []
    for line in lines:
      with flagsaver.flagsaver():
        try:
          flags.FLAGS(["program", *line])
          found.append(answer())
        except (ValueError, OSError, flags.Error) as error:
          found.append(str(error))
    return found

  return run


def _training():
  config, line = training_flags.train_config("folder")
  model = AlbertConfig(num_hidden_layers=5)
  config = training_flags.with_random_depths(config, model)
  strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
  return {
    **training_flags.settings(config, strategy, "mixed_bfloat16"),
    "line": line,
  }


_PHASE = {"train_batch_size": None, "gradient_accumulation_steps": None}


def phase(steps, **changes):
  return {**_PHASE, "steps": steps, **changes}


def test_training(evaluate):
  default, phases, one_value, random = evaluate(
    _training,
    [],
    [
      *("--phase_steps=90,10", "--train_batch_size=1024,256"),
      *("--gradient_accumulation_steps=4", "--num_warmup_steps=5"),
    ],
    ["--phase_steps=9,4", "--num_warmup_steps=5"],
    ["--random_depths=2,7,5"],
  )
  expected = {
    "train_batch_size": 4096,
    "num_train_steps": 125000,
    "num_warmup_steps": 3125,
    "learning_rate": pytest.approx(0.00176),
    "optimizer": "lamb",
    "phases": (),
    "model_dir": "folder",
    "num_replicas": 1,
    "precision": "mixed_bfloat16",
    "distribution": "one_device",
  }
  assert {name: default[name] for name in expected} == expected
  assert "0.00176" in default["line"]
  assert phases["num_train_steps"] == 100
  assert phases["phases"] == (
    phase(90, train_batch_size=1024),
    phase(10, train_batch_size=256),
  )
  assert phases["gradient_accumulation_steps"] == 4
  # The rate is for the first batch size: sqrt(1/4) of the default.
  assert phases["learning_rate"] == pytest.approx(0.00088)
  assert one_value["phases"] == (phase(9), phase(4))
  assert default["random_depths"] == ()
  assert random["random_depths"] == (2, 7, 5)


_ALL = list(recipes.RECIPES.values())


def _recipe():
  recipe = run_pretraining.apply_recipe()
  return {name: flags.FLAGS[name].value for name in recipe.flags}


def test_recipes_set_the_flags_that_are_not_given(evaluate):
  folders = ["--input_dir=in", "--model_dir=out"]
  lines = [[f"--recipe={name}"] for name in recipes.RECIPES]
  lines += [
    ["--train_batch_size=64", "--recipe=base_cpu", "--num_train_steps=7"],
    ["--recipe=base_cpu", "--albert_config_file=own.json"],
    # A given value may be the default of the flag.
    ["--recipe=base_gpu", "--precision=float32", "--random_seed=12345"],
  ]
  *found, given, own_model, default = evaluate(
    _recipe, *[[*folders, *line] for line in lines]
  )
  settings = (data.ExampleSettings, data.BuildSettings)
  known = {f.name for kind in settings for f in dataclasses.fields(kind)}
  for recipe, values in zip(_ALL, found, strict=True):
    assert set(recipe.data) <= known
    # As a flag of its type, or as text.
    assert {name: str(value) for name, value in values.items()} == {
      name: str(value) for name, value in recipe.flags.items()
    }
  assert (given["train_batch_size"], given["num_train_steps"]) == ("64", 7)
  assert given["eval_steps"] == 1000  # Of the recipe.
  assert own_model["preset"] is None
  assert own_model["num_train_steps"] == 10_000
  assert default["precision"] == "float32"


_VARIABLES = (
  "NEXT_PLUGGABLE_DEVICE_USE_C_API",
  "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
  "TPU_LOAD_LIBRARY",
)


@pytest.mark.parametrize(
  "line, expected",
  [
    (["--distribution=tpu", "--tpu=local"], ("true", "LIBTPU", None)),
    (["--recipe=base_v5e_8"], ("true", "LIBTPU", None)),
    (["--distribution=tpu", "--tpu=my-slice"], (None, None, "0")),
    (["--distribution=mirrored"], (None, "", "0")),
    (["--recipe=base_gpu"], (None, "", "0")),
  ],
)
def test_the_environment_of_a_tpu_is_set_before_tensorflow(
  tmp_path, line, expected
):
  # A machine that has this file is one with a `-pjrt` image.
  library = tmp_path / "libtpu.so"
  library.touch()
  # It is imported instead of the package.
  (tmp_path / "tensorflow.py").write_text(
    f"import os\nprint([os.environ.get(x) for x in {_VARIABLES}], flush=True)\n"
    "os._exit(0)\n"
  )
  program = f"""
import runpy, sys
from official_albert import machine

machine._LIBTPU = {str(library)!r}
folders = ["--input_dir=gs://b/records", "--model_dir=gs://b/run"]
sys.argv = ["run_pretraining", *folders, *{line}]
runpy.run_module("official_albert.tools.run_pretraining", run_name="__main__")
"""
  environment = {k: v for k, v in os.environ.items() if k not in _VARIABLES}
  environment["PYTHONPATH"] = str(tmp_path)
  done = many_commands.start("-c", program, env=environment)
  values = [str(library) if x == "LIBTPU" else x for x in expected]
  assert (done.code, done.out) == (0, f"{values}\n"), done.err


def test_paths_that_the_hosts_of_a_tpu_cannot_see_are_refused(
  evaluate, monkeypatch
):
  connect = mock.Mock(side_effect=OSError("it connects"))
  monkeypatch.setattr(distribution, "make_strategy", connect)
  tpu = ["--distribution=tpu", "--tpu=my-slice"]
  remote = ["--input_dir=gs://b/short,gs://b/long", "--model_dir=gs://b/run"]
  local = ["--input_dir=gs://b/short,long", "--model_dir=gs://b/run"]
  cases = (
    (
      [*tpu, *remote, "--model_dir=run"],
      "--model_dir run is on this machine, where the hosts of the TPU my-slice "
      "cannot read or write: use a gs:// address",
    ),
    ([*tpu, *local], "--input_dir long is on this machine"),
    ([*tpu, *local, "--tpu=grpc://h:1"], "of the TPU grpc://h:1 cannot"),
    ([*tpu, *remote, "--eval_input_dir=x"], "--eval_input_dir x is on"),
    ([*tpu, *remote], "it connects"),
    ([*tpu, *local, "--tpu=local"], "it connects"),
    (local, "it connects"),
  )
  found = evaluate(device_flags.start_devices, *[line for line, _ in cases])
  for error, (line, message) in zip(found, cases, strict=True):
    assert message in error, line
