"""Tests of names, precision and what a CPU is asked."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from official_albert.distribution import strategies as distribution
from official_albert.testing import toy_job

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
  with pytest.raises(ValueError, match=f"num_devices {count} cannot be used"):
    distribution.make_strategy(name, count)


@pytest.mark.parametrize(
  "name, address", [("tpu", ""), ("mirrored", "local"), ("one_device", "x")]
)
def test_a_tpu_and_its_address_go_together(name, address):
  with pytest.raises(ValueError, match=f"tpu '{address}' cannot be used with"):
    distribution.make_strategy(name, 0, address)


def test_a_tpu_has_the_devices_that_it_has():
  with pytest.raises(ValueError, match="num_devices 8 cannot be used with"):
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


_SERVER = """
import sys, time
import tensorflow as tf
server = tf.distribute.Server(
  {"worker": [sys.argv[1]]}, job_name="worker", task_index=0
)
print("up", flush=True)
time.sleep(100)
"""
_PROGRAM = """
import sys, time
import tensorflow as tf
from official_albert.distribution import strategies
begun = time.monotonic()
try:
  strategies.make_tpu_strategy(sys.argv[1])
except (OSError, ValueError) as error:
  print(f"{time.monotonic() - begun} {type(error).__name__}: {error}")
"""


def _failure(address):
  """The seconds that it took to fail, and how."""
  result = subprocess.run(
    [sys.executable, "-c", _PROGRAM, address],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert len(result.stdout.splitlines()) == 1, result.stderr
  seconds, message = result.stdout.split(" ", 1)
  return float(seconds), message


def test_a_wheel_from_pypi_has_no_tpu_runtime():
  seconds, message = _failure("local")
  assert "OSError: this TensorFlow (2.15.1) has no TPU runtime" in message
  assert 'the README\'s section "TPU" says how' in message
  assert seconds < 20


def test_an_address_where_nobody_listens():
  (address,) = toy_job.free_addresses(1)
  seconds, message = _failure(f"grpc://{address}")
  assert f"OSError: no TensorFlow server answers at {address}" in message
  assert seconds < 20


def test_an_address_where_something_else_listens():
  with socket.create_server(("127.0.0.1", 0)) as silent:
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    seconds, message = _failure(f"grpc://{address}")
  assert f"no TensorFlow server answers at {address}" in message
  assert seconds < 20


def test_a_server_without_a_tpu():
  (address,) = toy_job.free_addresses(1)
  with contextlib.ExitStack() as stack:
    server = stack.enter_context(
      subprocess.Popen(
        [sys.executable, "-c", _SERVER, address],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
      )
    )
    stack.callback(server.kill)
    assert server.stdout.readline() == "up\n"
    begun = time.monotonic()
    _, message = _failure(f"grpc://{address}")
  assert f"the TPU grpc://{address} cannot be started (TPUs not" in message
  assert time.monotonic() - begun < 60


@pytest.mark.parametrize("address", ["grpc://host", "grpc://host:0x1"])
def test_malformed_addresses(address):
  with pytest.raises(ValueError, match="write HOST:PORT"):
    distribution.make_tpu_strategy(address)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
