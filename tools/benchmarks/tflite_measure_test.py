"""Tests of the table and of the flags."""

from __future__ import annotations

import re

import pytest

from official_albert.tools.testing import many_commands


@pytest.mark.heavy
def test_table(tmp_path):
  (result,) = many_commands.run(
    "benchmarks.tflite_measure",
    [
      [
        "--preset=albert_tiny",
        "--sequence_length=9",
        "--quantizations=none,int8",
        "--threads=1",
        f"--keep_dir={tmp_path}",
      ]
    ],
  )
  assert result.code == 0, result.err
  _, _, *lines = result.out.splitlines()
  number = r"[0-9.e-]+"
  for name, line in zip(("none", "int8"), lines):
    assert re.fullmatch(rf"\| {name} (\| {number} ){{4}}\|", line), line
    assert (tmp_path / f"{name}.tflite").exists()


_WRONG = (
  (1, "unknown preset 'nope'", "--preset=nope"),
  (2, "must be numbers of at least 1, such as 1,2;", "--threads=2,0"),
  (1, "--sequence_length is 1; must", "--sequence_length=1"),
  (1, "must be one of none", "--quantizations=none,int4"),
  (1, "_test.py is a file: name a folder", f"--keep_dir={__file__}"),
)


def test_wrong_flags_are_refused_before_the_table():
  lines = [["--preset=albert_tiny", flag] for *_, flag in _WRONG]
  results = many_commands.run("benchmarks.tflite_measure", lines)
  for (code, message, _), result in zip(_WRONG, results):
    assert result.code == code and not result.out
    assert message in result.err and result.err.count("\n") == 1
