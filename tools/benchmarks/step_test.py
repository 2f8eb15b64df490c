"""Tests of small measurements, and of tables and files of invented ones."""

from __future__ import annotations

import json
import re

import pytest

from official_albert.tools.benchmarks import comparison, step
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_MADE_UP = comparison.Result(
  "official_albert",
  [100.0, 400.0, 300.0],
  peak_bytes=3 * 2**29,
  build_seconds=7.5,
  trace_seconds=3.0,
  first_step_seconds=2.0,
  product_flops=8e9,
)


@pytest.fixture
def two_gigaflops(monkeypatch):
  """Makes a token cost 2 GFLOP / 300, the work at the median speed."""
  monkeypatch.setattr(comparison, "flops_per_token", lambda unused: 2e9 / 300)


@pytest.mark.heavy
def test_a_step_is_measured(tmp_path, capsys):
  step.run("albert_tiny", 2, 13, "float32", "lamb", 2, 1, str(tmp_path))
  text = (tmp_path / "albert_tiny-s13-b2-float32-lamb.md").read_text()
  assert text in capsys.readouterr().out
  assert text.startswith("albert_tiny, S 13, B 2, float32, lamb: ")
  path = tmp_path / "albert_tiny-s13-b2-float32-lamb.json"
  measured = json.loads(path.read_text())
  assert measured["about"] == "run_pretraining's step, lamb"
  assert len(measured["tokens_per_second"]) == 2
  assert 2**27 < measured["start_bytes"] < measured["peak_bytes"] < 2**32
  assert 0 < measured["trace_seconds"] < measured["build_seconds"]
  assert measured["product_flops"] > 1e7


def test_scaling(tmp_path, monkeypatch, capsys, two_gigaflops):
  seen = []

  def measure(workload, repeats, steps):
    seen.append((repeats, steps))
    return _MADE_UP

  monkeypatch.setattr(comparison, "measure", measure)
  step.run_scaling("float32", 3, 2, str(tmp_path))
  assert seen == [(3, 2)] * 19
  row = "| layers | 24 | 300 | 100 to 400 | 2 | 1.50 GiB | 3.0 |"
  assert row in capsys.readouterr().out
  lines = (tmp_path / "scaling.md").read_text().splitlines()
  assert lines[0].startswith("albert_base, float32: ")
  assert row in [re.sub(" +", " ", line) for line in lines]
  numbers = json.loads((tmp_path / "scaling.json").read_text())
  assert numbers["points"][14]["value"] == 24
  assert numbers["points"][14]["tokens_per_second"] == [100.0, 400.0, 300.0]
  image = (tmp_path / "benchmark_scaling.png").read_bytes()
  assert image.startswith(b"\x89PNG") and len(image) > 10000


@pytest.mark.heavy
def test_recomputation_saves_memory(monkeypatch, capsys):
  monkeypatch.setattr(step, "_MEMORY_VARIANTS", step._MEMORY_VARIANTS[:2])
  step.run_memory("albert_tiny", 8, 512, "float32", repeats=1)
  rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[-2:]]
  names = [row[1].strip() for row in rows]
  assert names == ["plain", "recompute_activations"]
  # In GiB, GiB, seconds and CPU seconds.
  plain, recomputed = ([float(x.split()[0]) for x in r[2:-1]] for r in rows)
  assert 2**-4 < plain[0] < plain[1] < 2**4
  assert 0 < plain[2] < 60 and plain[3] > 0
  # Attention alone has 8 x 4 x 512 x 512 numbers in each of four layers.
  assert plain[1] - recomputed[1] > 0.2 * (plain[1] - plain[0])


@pytest.mark.heavy
def test_finetuning_is_measured(tmp_path):
  toy_data.write_glue(str(tmp_path / "glue"), ["mrpc"])
  toy_runs.write_tokenizer(str(tmp_path))
  done = many_commands.start(
    *("-m", "tools.benchmark", "finetuning"),
    f"--data_dir={tmp_path}/glue",
    f"--spm_model_file={tmp_path}/tokenizer.model",
    *("--preset=albert_tiny", "--max_seq_length=32", "--batch_size=2"),
    *("--repeats=1", f"--work_dir={tmp_path}"),
  )
  assert done.code == 0, done.err
  assert "mrpc, albert_tiny, S 32, batch 2, float32; 64 examples" in done.out
  rows = re.findall(r"^\| (.*?) +\| ([\d,]+) +\| [\d.]+ +\|$", done.out, re.M)
  assert [name for name, _ in rows] == ["length buckets", "padded to S"]
  assert re.search(r"^Buckets: [\d.]+ times as fast", done.out, re.M)
  # The temporary records have been removed.
  assert not list(tmp_path.glob("tmp*"))
