"""Tests of names, precision and what a CPU is asked."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from official_albert.distribution import strategies as distribution

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def restore_policy():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


def test_one_device():
  strategy = distribution.make_strategy("one_device")
  assert strategy.num_replicas_in_sync == 1
  with pytest.raises(ValueError, match="'pmap'; choose one of one_device"):
    distribution.make_strategy("pmap")


@pytest.mark.parametrize("name, count", [("mirrored", -1), ("one_device", 2)])
def test_numbers_of_devices_that_make_no_sense(name, count):
  with pytest.raises(ValueError, match=f"num_devices {count} does not go"):
    distribution.make_strategy(name, count)


@pytest.mark.parametrize(
  "name, address", [("tpu", ""), ("mirrored", "local"), ("one_device", "x")]
)
def test_a_tpu_and_its_address_go_together(name, address):
  with pytest.raises(ValueError, match=f"tpu '{address}' does not go with"):
    distribution.make_strategy(name, 0, address)


def test_a_tpu_has_the_devices_that_it_has():
  with pytest.raises(ValueError, match="num_devices 8 does not go with"):
    distribution.make_strategy("tpu", 8, "local")


def test_the_host_of_a_strategy():
  strategy = distribution.make_strategy("one_device")
  with tf.device(distribution.host_of(strategy)):
    assert tf.zeros([]).device.endswith("/task:0/device:CPU:0")


def test_one_cpu_reads_its_dataset_itself():
  def make_dataset(context):
    assert context.num_input_pipelines == context.num_replicas_in_sync == 1
    return tf.data.Dataset.range(3)

  iterator = distribution.iterate(
    distribution.make_strategy("one_device"), make_dataset
  )
  assert isinstance(iterator, type(iter(tf.data.Dataset.range(1))))
  assert [int(value) for value in iterator] == [0, 1, 2]


def test_logical_devices_must_be_asked_for_first():
  tf.zeros([])
  with pytest.raises(ValueError, match="before TensorFlow's first operation"):
    distribution.make_strategy("mirrored", 3)


def test_precision():
  assert distribution.set_precision("mixed_bfloat16") == "mixed_bfloat16"
  layer = tf.keras.layers.Dense(3)
  assert layer(tf.ones([2, 5])).dtype == tf.bfloat16
  assert layer.kernel.dtype == tf.float32
  with pytest.raises(ValueError, match="'float8'"):
    distribution.set_precision("float8")


def test_a_precision_is_checked_without_being_set():
  distribution.check_precision("mixed_bfloat16")
  assert tf.keras.mixed_precision.global_policy().name == "float32"
  with pytest.raises(ValueError, match="unknown precision 'float8'"):
    distribution.check_precision("float8")


def test_the_compiler_starts_without_a_word():
  program = """
import sys
from official_albert.distribution import strategies as distribution
distribution.start_compiler()
import tensorflow as tf
tf.function(tf.sin, jit_compile=True)(tf.zeros([3]))
print("said", file=sys.stderr)
"""
  result = subprocess.run(
    [sys.executable, "-c", program],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    check=True,
  )
  assert result.stderr == "said\n"


@pytest.mark.parametrize(
  "flags, expected", [("fpu avx512_bf16", True), ("fpu avx512f", False)]
)
def test_bfloat16_is_read_from_the_cpu(tmp_path, flags, expected):
  path = tmp_path / "cpuinfo"
  path.write_text(f"model name : amx_bf16\nflags : {flags}\n")
  assert distribution.multiplies_bfloat16(str(path)) is expected


def test_unknown_cpu_stays_with_float32(tmp_path):
  assert not distribution.multiplies_bfloat16(str(tmp_path / "none"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
