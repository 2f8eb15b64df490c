"""Tests of small measurements, and of tables and files with made-up ones."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys

import pytest

from tools.benchmarks import comparison, step
from tools.benchmarks.peers import protocol
from tools.testing import toy_data, toy_runs

_MADE_UP = step.Measured(
  protocol.Workload(batch_size=5, max_seq_length=30),
  protocol.Ready([9.0], 7.5, 3.0, 2.0, {}, "", 1000),
  [100.0, 400.0, 300.0],
  3 * 2**29,
  2e9,
  8e9,
)
_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.heavy
def test_a_step_is_measured(tmp_path, capsys):
  measured = step.run(
    "albert_tiny", 2, 13, "float32", "lamb", 2, 1, str(tmp_path)
  )
  assert measured.ready.about == "run_pretraining's step, lamb"
  assert len(measured.tokens_per_second) == 2
  assert 2**27 < measured.peak_bytes < 2**32
  flops = comparison.flops_per_token(measured.workload)
  median = statistics.median(measured.tokens_per_second)
  assert measured.flops_per_second == pytest.approx(flops * median)
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


def test_scaling(tmp_path, monkeypatch, capsys):
  seen = []

  def measure(workload, repeats, steps):
    seen.append((repeats, steps))
    return dataclasses.replace(_MADE_UP, workload=workload)

  monkeypatch.setattr(step, "measure", measure)
  points = step.run_scaling("float32", 3, 2, str(tmp_path))
  assert len(points) == 19 and set(seen) == {(3, 2)}
  row = "| layers | 24 | 300 | 100 to 400 | 2 | 1.50 GiB | 3.0 |"
  assert row in capsys.readouterr().out
  lines = (tmp_path / "scaling.md").read_text().splitlines()
  assert lines[0].startswith("albert_base, float32: ")
  assert row in [re.sub(" +", " ", line) for line in lines]
  numbers = json.loads((tmp_path / "scaling.json").read_text())
  assert numbers["points"][14]["value"] == 24
  image = (tmp_path / "benchmark_scaling.png").read_bytes()
  assert image.startswith(b"\x89PNG") and len(image) > 10000


_MEMORY = dict(
  preset="albert_tiny", batch_size=8, max_seq_length=512, precision="float32"
)


@pytest.mark.heavy
def test_recomputation_saves_memory():
  """Attention alone has 8 x 4 x 512 x 512 numbers in each of four layers."""
  plain, recomputed = (
    step.measure_memory(**_MEMORY, steps=1, recompute_activations=recompute)
    for recompute in (False, True)
  )
  assert 2**26 < plain.start_bytes < plain.peak_bytes < 2**34
  assert 0 < plain.step_seconds < 60 and plain.step_cpu_seconds > 0
  saved = plain.peak_bytes - recomputed.peak_bytes
  assert saved > 0.2 * (plain.peak_bytes - plain.start_bytes)


def test_memory(monkeypatch, capsys):
  memory = step.Memory(2**29, 3 * 2**30, 1.25, 2.0)
  monkeypatch.setattr(step, "measure_memory", lambda **unused: memory)
  step.run_memory(**_MEMORY, repeats=3)
  rows = capsys.readouterr().out.splitlines()[-4:]
  assert rows[0] == "| plain | 0.50 GiB | 3.00 GiB | 1.25 | 2.00 |"
  assert rows[3].startswith("| xla + recompute_activations | ")


def test_a_failed_measurement_is_an_error():
  with pytest.raises(ValueError, match="failed with exit code 1"):
    step.measure_memory(**{**_MEMORY, "precision": "float8"}, steps=1)


@pytest.mark.heavy
def test_both_ways_are_measured(tmp_path):
  toy_data.write_glue(str(tmp_path / "glue"), ["mrpc"])
  toy_runs.write_tokenizer(str(tmp_path))
  command = [
    *(sys.executable, "-m", "tools.benchmark", "finetuning"),
    f"--data_dir={tmp_path}/glue",
    f"--spm_model_file={tmp_path}/tokenizer.model",
    *("--preset=albert_tiny", "--max_seq_length=32", "--batch_size=2"),
    *("--repeats=1", f"--work_dir={tmp_path}"),
  ]
  done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert "mrpc, albert_tiny, S 32, batch 2, float32; 64 examples" in done.stdout
  rows = re.findall(
    r"^\| (.*?) +\| ([\d,]+) +\| [\d.]+ +\|$", done.stdout, re.M
  )
  assert [name for name, _ in rows] == ["length buckets", "padded to S"]
  assert re.search(r"^Buckets: [\d.]+ times as fast", done.stdout, re.M)
  # What was made for the measurement is gone.
  assert not list(tmp_path.glob("tmp*"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
