"""Tests of the command line; what is measured is tested with the module."""

from __future__ import annotations

from official_albert.tools.testing import many_commands

_MODEL = f"--spm_model_file={__file__}"
# What is refused, the exit code, and whether the machine is described first.
_CASES = (
  (["weather"], 1, "name one benchmark of data", False),
  ([], 1, "name one benchmark of data", False),
  (["data", "--input_files=x"], 1, "--input_files x does not exist", False),
  (["serving"], 1, "needs --spm_model_file", False),
  (["data", "twice"], 2, "unexpected argument 'twice'", False),
  (["step", "--precision=half"], 2, "=half is none of auto, flo", False),
  (["peers", "--repeats=0"], 2, "=0 is not a positive integer", False),
  (["step", "--steps=-1"], 2, "=-1 is not a positive integer", False),
  (["step", "--output_dir=/proc/x"], 1, "/proc/x: ", False),
  (
    ["peers", "--precision=mixed_float16"],
    1,
    "do not support the precision",
    True,
  ),
  (["peers", "--preset=nope"], 1, "unknown preset 'nope'", True),
  (["peers", "--systems=weather"], 1, "unknown systems weather; choose", True),
  (["serving", _MODEL], 1, "is not a SentencePiece model", True),
  (["step", "--max_seq_length=513"], 1, "at most 512 tokens, not 513", True),
)


def test_wrong_flags_are_refused_before_a_measurement(tmp_path):
  peers = f"--peers_dir={tmp_path}/peers"
  lines = [[*line, peers] for line, *_ in _CASES]
  results = many_commands.run("benchmark", lines)
  for (line, code, message, has_machine), result in zip(_CASES, results):
    assert result.code == code and message in result.err, line
    assert result.err.count("\n") == 1
    assert result.out.count("\n") == has_machine
  assert not list(tmp_path.iterdir())  # Nothing is installed.
