"""A measurement of a few examples, and how it is printed."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tools.testing import toy_data, toy_encoder

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.heavy
def test_both_ways_are_measured(tmp_path):
  toy_data.write_glue(str(tmp_path / "glue"), ["mrpc"])
  toy_encoder.write_tokenizer(str(tmp_path))
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
