"""Devices, precision, cores, and failures before any work."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from official_albert.distribution import strategies
from official_albert.testing import toy_job

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.fixture(autouse=True)
def restore_policy():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
  "arguments, message",
  [
    (("pmap",), "'pmap'; choose one of one_device"),
    (("mirrored", -1), "num_devices -1 cannot be used"),
    (("one_device", 2), "num_devices 2 cannot be used"),
    (("tpu", 8, "local"), "num_devices 8 cannot be used with"),
    (("tpu", 0, ""), "tpu '' cannot be used with"),
    (("mirrored", 0, "local"), "tpu 'local' cannot be used with"),
    (("tpu", 0, "grpc://host"), "write HOST:PORT"),
    (("tpu", 0, "grpc://host:0x1"), "write HOST:PORT"),
    # TensorFlow has started.
    (("mirrored", 3), "before TensorFlow's first operation"),
  ],
)
def test_wrong_devices_are_refused(arguments, message):
  tf.zeros([])
  with pytest.raises(ValueError, match=message):
    strategies.make_strategy(*arguments)


def test_one_device_reads_its_dataset_itself():
  def make_dataset(context):
    assert context.num_input_pipelines == context.num_replicas_in_sync == 1
    return tf.data.Dataset.range(3)

  strategy = strategies.make_strategy("one_device")
  assert strategy.num_replicas_in_sync == 1
  with tf.device(strategies.host_of(strategy)):
    assert tf.zeros([]).device.endswith("/task:0/device:CPU:0")
  iterator = strategies.iterate(strategy, make_dataset)
  assert isinstance(iterator, type(iter(tf.data.Dataset.range(1))))
  assert [int(value) for value in iterator] == [0, 1, 2]


def test_precision():
  strategies.check_precision("mixed_bfloat16")
  assert tf.keras.mixed_precision.global_policy().name == "float32"
  assert strategies.set_precision("mixed_bfloat16") == "mixed_bfloat16"
  layer = tf.keras.layers.Dense(3)
  assert layer(tf.ones([2, 5])).dtype == tf.bfloat16
  assert layer.kernel.dtype == tf.float32
  with pytest.raises(ValueError, match="unknown precision 'float8'"):
    strategies.set_precision("float8")


@pytest.mark.parametrize(
  "flags, expected", [("fpu avx512_bf16", True), ("fpu avx512f", False)]
)
def test_bfloat16_is_read_from_the_cpu(tmp_path, flags, expected):
  path = tmp_path / "cpuinfo"
  assert not strategies.multiplies_bfloat16(str(path))
  path.write_text(f"model name : amx_bf16\nflags : {flags}\n")
  assert strategies.multiplies_bfloat16(str(path)) is expected


def test_the_compiler_starts_silently():
  program = """
import sys
from official_albert.distribution import strategies
strategies.start_compiler()
import tensorflow as tf
tf.function(tf.sin, jit_compile=True)(tf.zeros([3]))
print("end", file=sys.stderr)
"""
  result = subprocess.run(
    [sys.executable, "-c", program],
    cwd=_ROOT,
    env=_QUIET,
    capture_output=True,
    text=True,
    check=True,
  )
  assert result.stderr == "end\n"


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
import sys
import tensorflow as tf
from official_albert.distribution import strategies
for address in sys.argv[1:]:
  try:
    strategies.make_tpu_strategy(address)
  except OSError as error:
    print(error)
"""


def test_tpus_that_cannot_be_used_are_refused_within_a_minute():
  silent, server = toy_job.free_addresses(2)
  with subprocess.Popen(
    [sys.executable, "-c", _SERVER, server],
    env=_QUIET,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  ) as process:
    try:
      assert process.stdout.readline() == "up\n"
      result = subprocess.run(
        [sys.executable, "-c", _PROGRAM]
        + ["local", f"grpc://{silent}", f"grpc://{server}"],
        cwd=_ROOT,
        env=_QUIET,
        capture_output=True,
        text=True,
        timeout=120,
      )
    finally:
      process.kill()
  lines = result.stdout.splitlines()
  assert len(lines) == 3, result.stderr
  assert "this TensorFlow (2.15.1) has no TPU runtime" in lines[0]
  assert 'the README\'s section "TPU" says how' in lines[0]
  assert f"no TensorFlow server answers at {silent}" in lines[1]
  assert f"the TPU grpc://{server} cannot be started (TPUs not" in lines[2]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
