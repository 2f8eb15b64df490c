"""Tests of the protocol with a program of our own, and of its pieces."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tools.benchmarks.peers import protocol as peer_protocol

# Prints where the protocol has to be kept clear of it; losses 9, 8, 7, ...
_PROGRAM = """
import os
from tools.benchmarks.peers import protocol as peer_protocol

def build(workload):
  print("a library's greeting")
  os.write(1, b"from below Python\\n")
  losses = iter(range(9, -9, -1))
  if workload.variant == "broken":
    raise ValueError("no such\\n   package")
  return peer_protocol.Program(
    lambda: next(losses), {"toy": "1.2"}, "a toy",
    (lambda: sum(range(20000))) if workload.variant == "multiplies" else None,
    0.25,
  )

peer_protocol.serve(build)
"""
_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _talk(commands: str = "", **workload):
  done = subprocess.run(
    [sys.executable, "-c", _PROGRAM, json.dumps(workload)],
    cwd=_ROOT,
    input=commands,
    capture_output=True,
    text=True,
  )
  return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_conversation():
  done, (ready, timed, again, product) = _talk(
    "run 3\nrun 1\nproduct 2\n", warmup_steps=2
  )
  assert done.returncode == 0
  assert ready["losses"] == [9, 8] and ready["about"] == "a toy"
  assert ready["versions"] == {"toy": "1.2"} and ready["trace_seconds"] == 0.25
  assert 0 <= ready["first_step_seconds"] < 1
  assert timed["losses"] == [7, 6, 5] and len(timed["seconds"]) == 3
  assert again["losses"] == [4]
  assert 2**20 < again["peak_bytes"] < 2**32
  assert product == {"flops": None}
  assert "greeting" in done.stderr and "from below Python" in done.stderr


def test_products_are_measured():
  unused, (ready, product) = _talk("product 3\n", variant="multiplies")
  # Summing 20,000 numbers takes between 10 microseconds and a second.
  work = 2 * 16 * 128 * 768 * 3072
  assert work < product["flops"] < 1e5 * work


@pytest.mark.parametrize(
  "commands, workload, message",
  [
    ("", {"variant": "broken"}, "ValueError: no such package"),
    ("", {"precision": "int8"}, "unknown precision 'int8'; choose one of flo"),
    ("", {"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ("", {"speed": 3}, "unexpected keyword argument 'speed'"),
    ("dance 3\n", {}, "unknown command 'dance'"),
    ("run 99\n", {}, "StopIteration"),
  ],
)
def test_a_failure_is_told(commands, workload, message):
  done, answers = _talk(commands, **workload)
  assert done.returncode == 1
  assert message in answers[-1]["error"]
  assert "Traceback" in done.stderr


def test_workload():
  workload = peer_protocol.Workload(batch_size=3, max_seq_length=47)
  assert (workload.tokens, workload.predictions) == (141, 7)
  assert peer_protocol.Workload(max_seq_length=5).predictions == 1
  assert workload.product_dtype == "bfloat16"
  assert peer_protocol.Workload(precision="float32").product_dtype == "float32"


def test_best_product(monkeypatch):
  clock = iter([0.0, 3.0, 10.0, 10.5, 20.0, 22.0])
  monkeypatch.setattr(peer_protocol.time, "monotonic", lambda: next(clock))
  workload = peer_protocol.Workload(
    batch_size=2, max_seq_length=3, hidden_size=5, intermediate_size=7
  )
  calls = []
  flops = peer_protocol.best_product(lambda: calls.append(1), workload, 3)
  assert flops == 2 * 6 * 5 * 7 / 0.5
  assert len(calls) == 4  # The first is not timed.


def test_features_follow_the_workload():
  workload = peer_protocol.Workload(3, 7, vocab_size=9, seed=4)
  first, again = (peer_protocol.request(workload) for _ in range(2))
  for name, value in first.items():
    assert value.shape == (3, 7) and value.dtype == np.int32
    np.testing.assert_array_equal(value, again[name])
  assert first["input_ids"].min() >= 5 and first["input_ids"].max() < 9
  assert set(first["segment_ids"].ravel()) == {0, 1}
  assert first["input_mask"].all()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
