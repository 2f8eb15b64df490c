"""Tests of the command line; what is measured is tested with the module."""

from __future__ import annotations

from official_albert.tools.testing import many_commands

_CASES = (
  (["weather"], "name one benchmark of data"),
  ([], "name one benchmark of data"),
  (["data", "--input_files=x"], "needs --spm_model_file"),
  (["squad", "--spm_model_file=x"], "needs --squad_file"),
  (["finetuning", "--spm_model_file=x"], "needs --data_dir"),
  (["data", "twice"], "unexpected argument 'twice'"),
  (
    ["finetuning", "--task=squad_v1"],
    "=squad_v1 is none of cola, sst2, mrpc, ",
  ),
  (["step", "--precision=half"], "=half is none of auto, float32, mixed_bf"),
  (["peers", "--repeats=0"], "--repeats=0 is not a positive integer"),
  (["step", "--steps=-1"], "--steps=-1 is not a positive integer"),
  (["serving", "--spm_model_file=/x"], "--spm_model_file /x does not exist"),
  (["step", "--output_dir=/proc/x"], "/proc/x: "),
  (["step", f"--output_dir={__file__}"], "_test.py is a file: name a folder."),
)
_GLUE = ["--data_dir=.", f"--spm_model_file={__file__}"]
# The machine is described first.
_LATER_CASES = (
  (["finetuning", *_GLUE, "--preset=nope"], "unknown preset 'nope'"),
  (["peers", "--precision=fp16"], "do not support the precision"),
  (["peers", "--preset=nope"], "unknown preset 'nope'"),
  (["peers", "--systems=weather"], "unknown systems weather; choose some"),
  (["serving", *_GLUE], "is not a SentencePiece model: give the .mod"),
  (["step", "--max_seq_length=513"], "takes at most 512 tokens, not 513"),
)


def test_wrong_flags_are_refused_before_a_measurement():
  results = many_commands.run("benchmark", [line for line, _ in _CASES])
  assert len(results) == len(_CASES)
  for (line, message), result in zip(_CASES, results):
    assert result.code and message in result.err, line
    assert result.err.count("\n") == 1 and not result.out


def test_wrong_values_are_refused_before_an_installation(tmp_path):
  peers = f"--peers_dir={tmp_path}/peers"
  lines = [[*line, peers] for line, _ in _LATER_CASES]
  results = many_commands.run("benchmark", lines)
  for (line, message), result in zip(_LATER_CASES, results):
    assert result.code == 1 and message in result.err, line
    assert result.err.count("\n") == 1
  assert not list(tmp_path.iterdir())
