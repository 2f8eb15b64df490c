"""Runs the quickstart at a very small size, as a user does."""

from __future__ import annotations

import os
import re

import pytest

from official_albert import AlbertConfig, run_logs
from official_albert.tools import quickstart
from official_albert.tools.testing import many_commands, toy_data


def run(*arguments):
  return many_commands.start("-m", "tools.quickstart", *arguments)


def flags_of(tmp_path, steps):
  toy_data.write_corpus(str(tmp_path / "corpus.txt"), 60)
  return (
    f"--input_files={tmp_path / 'corpus.txt'}",
    f"--output_dir={tmp_path / 'out'}",
    "--vocab_size=45",
    f"--num_train_steps={steps}",
  )


@pytest.mark.heavy
def test_the_steps_have_results_and_are_not_run_again(tmp_path):
  arguments, out = flags_of(tmp_path, 12), tmp_path / "out"
  first, again = run(*arguments), run(*arguments)
  assert (first.code, again.code) == (0, 0), (first.err, again.err)
  assert "held-out after 12 steps (seed 12345)" in first.out
  assert "unigram entropy" in first.out
  # The clean process printed its sentences with percentages.
  assert "If the file does not [MASK], an exception is raised." in first.out
  served = first.out.split("In a process with tensorflow")[1]
  assert len(re.findall(r"^    .*\d+%, .*\d+%$", served, re.M)) == 3
  assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
  assert (out / "saved_model" / "saved_model.pb").exists()
  config = AlbertConfig.from_json_file(str(out / "run" / "albert_config.json"))
  assert config.vocab_size == 45
  assert run_logs.read_metrics(str(out / "run"), "eval")[-1]["step"] == 12
  assert "exists; not run again: tools.train_vocabulary" in again.out
  assert "resumed from" in again.out
  assert "held-out after 12 steps" in again.out
  named = "tools.run_pretraining failed with exit code 1"
  many_commands.check_refusals(
    "quickstart",
    [
      ([*arguments, changed], named)
      for changed in ("--num_train_steps=15", "--random_seed=2")
    ],
  )


def test_a_failing_step_stops_with_advice(tmp_path):
  result = run(*flags_of(tmp_path, 12), "--vocab_size=44000")
  assert result.code == 1
  assert "Change --vocab_size" in result.err
  assert "tools.train_vocabulary failed with exit code 1" in result.err
  assert "Traceback" not in result.err
  assert not os.listdir(tmp_path / "out")


def test_the_steps_are_those_of_the_measured_speed(monkeypatch):
  monkeypatch.setattr(quickstart, "train", lambda *unused, **more: None)
  # Updates of 0.1, 0.2 and 0.3 s in the phases.
  speeds = 64 / 0.1, 64 / 0.2, 42 / 0.3
  monkeypatch.setattr(
    quickstart.run_logs, "speeds_of_phases", lambda *unused: speeds
  )
  # Half of the updates are in the first phase, a tenth is in the last.
  assert quickstart.steps_that_fit("", "", 8.5) == 3100
  assert quickstart.in_phases(3100) == [1550, 1240, 310]
  assert quickstart.in_phases(12) == [7, 4, 1]


_WRONG = (
  ("--input_files=nope*.txt", "no input file matches 'nope*.txt'"),
  ("--num_train_steps=2", "--num_train_steps=2 is less than the 3 phases"),
  ("--training_minutes=nan", "--training_minutes=nan is not a number;", 2),
  ("--training_minutes=0", "--training_minutes=0: ", 2),
  ("--training_minutes=-3", "--training_minutes=-3: ", 2),
  ("--training_minutes=inf", "--training_minutes=inf: ", 2),
  (f"--output_dir={__file__}", "_test.py is a file: name a"),
  ("--random_seed=4294967296", "--random_seed=4294967296: ", 2),
)


def test_wrong_flags_are_refused_before_the_folder_is_created(tmp_path):
  out = f"--output_dir={tmp_path}/out"
  cases = [([out, flag], *more) for flag, *more in _WRONG]
  results = many_commands.check_refusals("quickstart", cases)
  assert not any(result.out for result in results) and not os.listdir(tmp_path)
