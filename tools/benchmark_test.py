"""Tests of the command line; what is measured is tested with the module."""

from __future__ import annotations

from official_albert.tools.testing import many_commands

# What is refused, what is named, the exit code; from the eighth case on, the
# machine is described first.
_CASES = (
  (["weather"], "name one benchmark of data"),
  ([], "name one benchmark of data"),
  (["data", "--input_files=x"], "--input_files x does not exist"),
  (["serving"], "needs --spm_model_file"),
  (["data", "twice"], "unexpected argument 'twice'", 2),
  (["step", "--precision=half"], "=half: value should be one of", 2),
  (["peers", "--repeats=0"], "=0: 0 is not a positive integer", 2),
  (["step", "--output_dir=/proc/x"], "/proc/x: "),
  (["peers", "--precision=mixed_float16"], "do not support the precision"),
  (["peers", "--preset=nope"], "unknown preset 'nope'"),
  (["peers", "--systems=weather"], "unknown systems weather; choose"),
  (["serving", f"--spm_model_file={__file__}"], "is not a SentencePiece model"),
  (["step", "--max_seq_length=513"], "at most 512 tokens, not 513"),
)


def test_wrong_flags_are_refused_before_a_measurement():
  results = many_commands.check_refusals("benchmark", _CASES)
  described = [result.out.count("\n") for result in results]
  assert described == [0] * 8 + [1] * 5
