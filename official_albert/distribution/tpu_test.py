"""Tests of what happens short of a TPU: soon, and in one sentence.

Each case runs in a process of its own, as TensorFlow connects only once.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from official_albert.distribution import tpu
from official_albert.testing import toy_job

_ROOT = pathlib.Path(__file__).resolve().parents[2]
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
from official_albert.distribution import tpu
begun = time.monotonic()
try:
  tpu.make_strategy(sys.argv[1])
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
    tpu.make_strategy(address)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
