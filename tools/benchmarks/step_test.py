"""Tests of one small measurement, and of its table."""

from __future__ import annotations

import json
import re

import pytest

from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks import step as benchmark_step
from tools.benchmarks.peers import protocol as peer_protocol


@pytest.mark.heavy
def test_a_step_is_measured(tmp_path, capsys):
  measured = benchmark_step.run(
    benchmark_step.Settings(
      "albert_tiny",
      batch_size=2,
      max_seq_length=13,
      precision="float32",
      repeats=2,
      steps=1,
      output_dir=str(tmp_path),
      machine="here",
    )
  )
  assert measured.ready.about == "run_pretraining's step, lamb"
  assert len(measured.tokens_per_second) == 2
  assert 2**27 < measured.peak_bytes < 2**32
  flops = benchmark_peers.flops_per_token(measured.workload)
  assert measured.flops_per_second == pytest.approx(flops * measured.median)
  assert measured.product_flops > 1e7
  text = (tmp_path / "albert_tiny-s13-b2-float32-lamb.md").read_text()
  assert text in capsys.readouterr().out
  assert text.startswith("albert_tiny, S 13, B 2, float32, lamb: here\n\n| fig")
  saved = (tmp_path / "albert_tiny-s13-b2-float32-lamb.json").read_text()
  assert json.loads(saved)["tokens_per_second"] == measured.tokens_per_second


def test_an_unknown_optimizer_is_refused():
  with pytest.raises(ValueError, match="unknown optimizer 'sgd'; choose one"):
    benchmark_step.run(benchmark_step.Settings(optimizer="sgd"))


def test_table():
  measured = benchmark_step.Measured(
    peer_protocol.Workload(batch_size=5, max_seq_length=30),
    peer_protocol.Ready([9.0], 7.5, 3.0, 2.0, {}, "", 1000),
    [100.0, 400.0, 300.0],
    3 * 2**29,
    2e9,
    8e9,
  )
  table = re.sub(" +", " ", benchmark_step.table(measured))
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


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
