"""Tests of the points, and of table and files with made-up measurements."""

from __future__ import annotations

import collections
import json
import re

import pytest

from tools.benchmarks import scaling as benchmark_scaling
from tools.benchmarks import step as benchmark_step
from tools.benchmarks.peers import protocol as peer_protocol


def test_points():
  points = benchmark_scaling.settings_of("float32")
  assert collections.Counter(point.axis for point in points) == {
    "batch size, S 128": 6,
    "length, 2,048 tokens a step": 4,
    "layers": 5,
    "width, 2 layers": 4,
  }
  for point in points:
    workload = point.workload
    assert workload.precision == "float32"
    assert workload.tokens == 2048 or point.axis.startswith("batch")
  assert [p.value for p in points[-4:]] == [768, 1024, 2048, 4096]
  assert points[-1].workload.num_hidden_layers == 2
  assert [p.workload.num_hidden_layers for p in points[10:15]] == [
    1, 3, 6, 12, 24,
  ]  # fmt: skip


def test_run(tmp_path, monkeypatch, capsys):
  seen = []

  def measure(workload, repeats, steps):
    seen.append((repeats, steps))
    ready = peer_protocol.Ready([9.0], 5.0, 1.5, 2.0, {}, "", 1000)
    rates = [100.0, 300.0, 250.0]
    return benchmark_step.Measured(workload, ready, rates, 2**30, 5e9, 9e9)

  monkeypatch.setattr(benchmark_step, "measure", measure)
  points = benchmark_scaling.run(
    benchmark_scaling.Settings("float32", 3, 2, str(tmp_path / "new"), "here")
  )
  assert len(points) == 19 and set(seen) == {(3, 2)}
  row = "| layers | 24 | 250 | 100 to 300 | 5 | 1.00 GiB | 1.5 |"
  assert row in capsys.readouterr().out
  lines = (tmp_path / "new" / "scaling.md").read_text().splitlines()
  assert lines[0] == "albert_base, float32: here"
  assert row in [re.sub(" +", " ", line) for line in lines]
  figures = json.loads((tmp_path / "new" / "scaling.json").read_text())
  assert figures["points"][14]["value"] == 24
  image = (tmp_path / "new" / "benchmark_scaling.png").read_bytes()
  assert image.startswith(b"\x89PNG") and len(image) > 10000


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
