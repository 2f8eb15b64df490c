"""Test of the program: it draws a run's numbers, as a user asks for it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from official_albert import training

ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "tools.plot_curves", *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


def test_draws_or_says_that_there_is_nothing(tmp_path):
  log, picture = tmp_path / training.METRICS_FILE, tmp_path / "curves.png"
  arguments = (f"--model_dir={tmp_path}", f"--output_file={picture}")
  log.write_text("")
  nothing = run(*arguments, "--unigram_entropy=6.3")
  assert nothing.returncode == 1 and not picture.exists()
  assert "no training and held-out numbers to draw yet" in nothing.stderr
  records = [
    {"kind": kind, "step": step, "masked_lm_loss": 7.0}
    for kind in ("train", "eval")
    for step in (1, 2)
  ]
  log.write_text("".join(json.dumps(record) + "\n" for record in records))
  drawn = run(*arguments, "--unigram_entropy=6.3")
  assert (drawn.returncode, drawn.stderr) == (0, "")
  assert drawn.stdout == f"wrote {picture}\n"
  assert picture.read_bytes().startswith(b"\x89PNG")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
