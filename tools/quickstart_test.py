"""The quickstart at a very small size, as a user runs it, twice."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from official_albert import AlbertConfig, reporting

ROOT = pathlib.Path(__file__).parents[1]
_WORDS = (
  "river boat wind hill rain stone bridge field horse road light water tree "
  "house bread wheel morning winter garden letter"
).split()


def run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "tools.quickstart", *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


def write_corpus(path):
  rng = np.random.default_rng(0)
  documents = []
  for _ in range(60):
    lines = [
      " ".join(rng.choice(_WORDS, rng.integers(4, 9))) + "."
      for _ in range(rng.integers(4, 9))
    ]
    documents.append("\n".join(lines))
  path.write_text("\n\n".join(documents) + "\n")


def test_the_whole_way_and_again(tmp_path):
  write_corpus(tmp_path / "corpus.txt")
  out = tmp_path / "out"
  arguments = (
    f"--input_files={tmp_path / 'corpus.txt'}",
    f"--output_dir={out}",
    "--vocab_size=45",
    "--num_train_steps=12",
  )
  first = run(*arguments)
  assert first.returncode == 0, first.stderr
  assert "held-out after 12 steps (seed 12345)" in first.stdout
  assert "unigram entropy" in first.stdout
  # The clean process printed its sentences with percentages.
  assert "If the file does not [MASK], an exception is raised." in first.stdout
  served = first.stdout.split("In a process with tensorflow")[1]
  assert len(re.findall(r"^    .*\d+%, .*\d+%$", served, re.M)) >= 5
  assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
  assert (out / "saved_model" / "saved_model.pb").exists()
  config = AlbertConfig.from_json_file(str(out / "run" / "albert_config.json"))
  assert config.vocab_size == 45
  assert reporting.read_metrics(str(out / "run"), "eval")[-1]["step"] == 12

  again = run(*arguments)
  assert again.returncode == 0, again.stderr
  assert "is there; not run again: tools.train_vocabulary" in again.stdout
  assert "resumed from" in again.stdout
  assert "held-out after 12 steps" in again.stdout

  other = run(*arguments, "--random_seed=2")
  assert other.returncode == 1
  assert "was made with random_seed 12345, not 2" in other.stderr


def test_a_failing_step_stops_with_advice(tmp_path):
  result = run(
    f"--input_files={tmp_path / 'none.txt'}", f"--output_dir={tmp_path / 'out'}"
  )
  assert result.returncode == 1
  assert "none.txt" in result.stderr
  assert "tools.train_vocabulary failed with exit code 1" in result.stderr
  assert "Traceback" not in result.stderr
  assert not os.path.exists(tmp_path / "out" / "records")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
