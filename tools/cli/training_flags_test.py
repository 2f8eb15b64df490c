"""The flags as settings; each case in a process, as flags belong to one."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

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
    ("--clip_norm=0", "clip_norm must be positive"),
    ("--early_stopping_evaluations=-1", "must not be negative, got -1"),
  ],
)
def test_refusals(flag, message):
  assert message in _run(flag)["error"]


def test_a_tpu_does_not_multiply_in_float16():
  said = _run("--distribution=tpu", "--precision=mixed_float16")
  assert "use --precision=auto or mixed_bfloat16" in said["error"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
