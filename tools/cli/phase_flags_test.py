"""Tests of what the flags of phases mean, and of what they cannot mean."""

from __future__ import annotations

import pytest

from official_albert.training import Phase
from tools.cli import phase_flags


def test_one_value_or_one_for_each_phase():
  assert phase_flags.make_phases("", "4096", "1") == ()
  assert phase_flags.make_phases("9,4", "8,6", "2,3") == (
    Phase(9, 8, 2),
    Phase(4, 6, 3),
  )
  # A single value stays that of the run.
  assert phase_flags.make_phases("9,4", "8", "1") == (Phase(9), Phase(4))
  assert phase_flags.make_phases("9", "8", "1") == (Phase(9),)


@pytest.mark.parametrize(
  "values, message",
  [
    (("9,4", "8,6,7", "1"), "train_batch_size has 3 values, .* are 2 phases"),
    (("", "8", "1,2"), "gradient_accumulation_steps has 2 .* is 1 phase:"),
    (("9,x", "8", "1"), "--phase_steps has to be whole numbers .* '9,x'"),
    (("9,", "8", "1"), "--phase_steps has to be whole numbers"),
    (("9,0", "8", "1"), "steps of a phase must be at least 1, got 0"),
  ],
)
def test_other_values_are_refused(values, message):
  with pytest.raises(ValueError, match=message):
    phase_flags.make_phases(*values)


def test_the_number_of_steps_is_their_sum():
  phases = (Phase(9), Phase(4))
  assert phase_flags.total_steps(phases, 125000, given=False) == 13
  assert phase_flags.total_steps(phases, 13, given=True) == 13
  assert phase_flags.total_steps((), 17, given=True) == 17
  with pytest.raises(ValueError, match="are 13 steps .* is 9: leave"):
    phase_flags.total_steps(phases, 9, given=True)


def test_folders(tmp_path):
  assert phase_flags.folders("input_dir", "a,b", 2) == ["a", "b"]
  (tmp_path / "a,b").mkdir()
  there = str(tmp_path / "a,b")
  assert phase_flags.folders("input_dir", there, 1) == [there]
  with pytest.raises(ValueError, match="phases, which --phase_steps names"):
    phase_flags.folders("input_dir", "a,b", 1)
  for value in ("a", "a,b,c", "a,"):
    with pytest.raises(ValueError, match="--input_dir names .* has 2 phases"):
      phase_flags.folders("input_dir", value, 2)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
