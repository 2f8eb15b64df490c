"""Tests of small measurements, and of tables and files with made-up ones."""

from __future__ import annotations

import collections
import dataclasses
import json
import re

import pytest

from tools.benchmarks import comparison, step
from tools.benchmarks.peers import protocol

_MADE_UP = step.Measured(
  protocol.Workload(batch_size=5, max_seq_length=30),
  protocol.Ready([9.0], 7.5, 3.0, 2.0, {}, "", 1000),
  [100.0, 400.0, 300.0],
  3 * 2**29,
  2e9,
  8e9,
)


@pytest.mark.heavy
def test_a_step_is_measured(tmp_path, capsys):
  workload = comparison.workload_of("albert_tiny", 2, 13, "float32")
  measured = step.run("albert_tiny", workload, "lamb", 2, 1, str(tmp_path))
  assert measured.ready.about == "run_pretraining's step, lamb"
  assert len(measured.tokens_per_second) == 2
  assert 2**27 < measured.peak_bytes < 2**32
  flops = comparison.flops_per_token(measured.workload)
  assert measured.flops_per_second == pytest.approx(flops * measured.median)
  assert measured.product_flops > 1e7
  text = (tmp_path / "albert_tiny-s13-b2-float32-lamb.md").read_text()
  assert text in capsys.readouterr().out
  assert text.startswith("albert_tiny, S 13, B 2, float32, lamb: ")
  saved = (tmp_path / "albert_tiny-s13-b2-float32-lamb.json").read_text()
  assert json.loads(saved)["tokens_per_second"] == measured.tokens_per_second


def test_table():
  table = re.sub(" +", " ", step.table(_MADE_UP))
  assert table.splitlines()[2:] == [
    "| tokens/s, median | 300 |",
    "| tokens/s, lowest to highest | 100 to 400 |",
    "| seconds a step | 0.500 |",
    "| seconds to import and build | 4.5 |",
    "| seconds to trace the step | 3.0 |",
    "| seconds of the first step | 2.0 |",
    "| peak memory | 1.50 GiB |",
    "| GFLOP/s of the step | 2 |",
    "| GFLOP/s of matrix products | 8 |",
    "| share of the matrix products' rate | 25% |",
  ]


def test_scaling_workloads():
  points = step.scaling_workloads("float32")
  assert collections.Counter(axis for axis, _, _ in points) == {
    "batch size, S 128": 6,
    "length, 2,048 tokens a step": 4,
    "layers": 5,
    "width, 2 layers": 4,
  }
  for axis, _, workload in points:
    assert workload.precision == "float32"
    assert workload.tokens == 2048 or axis.startswith("batch")
  assert [value for _, value, _ in points[-4:]] == [768, 1024, 2048, 4096]
  depths = [workload.num_hidden_layers for _, _, workload in points]
  assert depths[10:] == [1, 3, 6, 12, 24, 2, 2, 2, 2]


def test_scaling(tmp_path, monkeypatch, capsys):
  seen = []

  def measure(workload, repeats, steps):
    seen.append((repeats, steps))
    return dataclasses.replace(_MADE_UP, workload=workload)

  monkeypatch.setattr(step, "measure", measure)
  points = step.run_scaling("float32", 3, 2, str(tmp_path / "new"))
  assert len(points) == 19 and set(seen) == {(3, 2)}
  row = "| layers | 24 | 300 | 100 to 400 | 2 | 1.50 GiB | 3.0 |"
  assert row in capsys.readouterr().out
  lines = (tmp_path / "new" / "scaling.md").read_text().splitlines()
  assert lines[0].startswith("albert_base, float32: ")
  assert row in [re.sub(" +", " ", line) for line in lines]
  numbers = json.loads((tmp_path / "new" / "scaling.json").read_text())
  assert numbers["points"][14]["value"] == 24
  image = (tmp_path / "new" / "benchmark_scaling.png").read_bytes()
  assert image.startswith(b"\x89PNG") and len(image) > 10000


_MEMORY = step.MemorySettings("albert_tiny", 2, 13, "float32", steps=1)


@pytest.mark.heavy
def test_memory_is_measured():
  memory = step.measure_memory(_MEMORY)
  assert 2**26 < memory.start_bytes < memory.peak_bytes < 2**33
  assert 0 < memory.step_seconds < 60 and memory.step_cpu_seconds > 0


def test_a_failed_measurement_is_an_error():
  with pytest.raises(ValueError, match="float8, failed with exit code 1"):
    step.measure_memory(_MEMORY._replace(precision="float8"))


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"preset": "nope"}, "unknown preset 'nope'"),
    ({"precision": "bf16"}, "unknown precision 'bf16'"),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ({"max_seq_length": 513}, "takes at most 512 tokens, not 513"),
  ],
)
def test_wrong_settings_start_no_process(monkeypatch, capsys, changes, message):
  monkeypatch.setattr(step, "measure_memory", None)
  with pytest.raises(ValueError, match=message):
    step.run_memory(_MEMORY._replace(**changes))
  assert not capsys.readouterr().out


@pytest.mark.heavy
def test_recomputation_saves_memory():
  """Attention alone has 8 x 4 x 512 x 512 numbers in each of four layers."""
  settings = _MEMORY._replace(batch_size=8, max_seq_length=512)
  plain = step.measure_memory(settings)
  recomputed = step.measure_memory(
    settings._replace(recompute_activations=True)
  )
  saved = plain.peak_bytes - recomputed.peak_bytes
  assert saved > 0.2 * (plain.peak_bytes - plain.start_bytes)


def test_memory_row():
  memory = step.Memory(2**29, 3 * 2**30, 1.25, 2.0)
  assert step.memory_row("xla", memory) == (
    *("xla", "0.50 GiB", "3.00 GiB", "1.25", "2.00"),
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
