"""Tests of the command line; what is measured is tested with the module."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
  "arguments, message",
  [
    (["weather"], "name one benchmark of data"),
    ([], "name one benchmark of data"),
    (["data", "--input_files=x"], "needs --spm_model_file"),
    (["squad", "--spm_model_file=x"], "needs --squad_file"),
    (["finetuning", "--spm_model_file=x"], "needs --data_dir"),
    (["data", "twice"], "unexpected argument 'twice'"),
  ],
)
def test_refusals(arguments, message):
  result = subprocess.run(
    [sys.executable, "-m", "tools.benchmark", *arguments],
    cwd=pathlib.Path(__file__).resolve().parents[1],
    capture_output=True,
    text=True,
  )
  assert result.returncode and message in result.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
