from __future__ import annotations

import sys

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from tools import training_flags


@pytest.fixture(autouse=True)
def parsed():
  with flagsaver.flagsaver():
    flags.FLAGS(sys.argv[:1])
    yield


def _config(**values):
  for name, value in values.items():
    flags.FLAGS[name].parse(value)
  return training_flags.train_config("folder")


def test_defaults_are_the_papers():
  config, lines = _config()
  assert (config.train_batch_size, config.num_train_steps) == (4096, 125000)
  assert config.learning_rate == pytest.approx(0.00176)
  assert (config.optimizer, config.num_warmup_steps) == ("lamb", 3125)
  assert config.phases == () and config.model_dir == "folder"
  assert any("0.00176" in line for line in lines)


def test_phases_and_the_rate_of_the_first_batch():
  config, _ = _config(
    phase_steps="90,10",
    train_batch_size="1024,256",
    gradient_accumulation_steps="4",
    num_warmup_steps="5",
  )
  assert config.num_train_steps == 100
  assert [p.train_batch_size for p in config.phases] == [1024, 256]
  assert config.in_phase(1).gradient_accumulation_steps == 4
  assert config.learning_rate == pytest.approx(0.00088)  # sqrt(1/4).


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"train_batch_size": "12x"}, "--train_batch_size has to be whole numbers"),
    ({"train_batch_size": "8,4"}, "but there is 1 phase"),
    ({"clip_norm": "0"}, "clip_norm must be positive"),
  ],
)
def test_refusals(values, message):
  with pytest.raises(ValueError, match=message):
    _config(**values)


def test_run_json_says_the_devices():
  config, _ = _config(num_train_steps="7", num_warmup_steps="1")
  strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
  settings = training_flags.settings(config, strategy, "mixed_bfloat16")
  assert settings["num_train_steps"] == 7
  assert settings["num_replicas"] == 1
  assert settings["precision"] == "mixed_bfloat16"
  assert settings["distribution"] == "one_device"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
