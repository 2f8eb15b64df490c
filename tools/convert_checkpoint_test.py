"""Tests of the program: its output and its errors."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from official_albert.testing import toy_vocabulary
from tools.testing import many_commands

_GOLDEN = pathlib.Path(__file__).resolve().parents[1]
_GOLDEN = _GOLDEN / "official_albert" / "testdata"


def test_commands(tmp_path):
  hf = tmp_path / "hf"
  shutil.copytree(_GOLDEN / "hf_one_group" / "pretraining", hf)
  cut = tmp_path / "cut"
  shutil.copytree(hf, cut)
  weights = cut / "model.safetensors"
  weights.write_bytes(weights.read_bytes()[:-100])
  malformed = tmp_path / "malformed"
  shutil.copytree(hf, malformed)
  (malformed / "config.json").write_text("{")
  (tmp_path / "a.tar.gz").write_bytes(b"no archive")
  tf1 = _GOLDEN / "one_group" / "model.ckpt"
  (tmp_path / "pieces").write_bytes(toy_vocabulary.numbers(211))

  def line(*more, input=tf1, output="none", to="hf"):
    return [
      f"--input={input}",
      f"--output={tmp_path / output}",
      f"--to={to}",
      *more,
    ]

  spm = f"--spm_model_file={tmp_path / 'pieces'}"
  good, dry, *bad = many_commands.run(
    "convert_checkpoint",
    [
      line("--from=tf1", spm, "--nodo_lower_case", output="out"),
      line("--dry_run", input=hf, to="official_albert"),
      line(input=cut, to="tf1"),
      line(input=malformed, to="tf1"),
      line(input=tmp_path / "a.tar.gz"),
      line(input=tmp_path / "nothing"),
      line(output="out"),
      line("--from=official_albert"),
      line("--head=squad1"),
      line("--include_optimizer"),
      line("--hf_python=/none"),
      line(spm, f"--vocab_file={tmp_path / 'pieces'}"),
      line("--spm_model_file=/none"),
      line("--position_method=interpolate"),
    ],
  )
  assert good.code == 0, good.err
  assert "33 variables matched, 0 missing, 0 unexpected" in good.out
  assert (
    "proof, values read again by name: largest absolute difference 0"
    in good.out
  )
  assert (
    '"do_lower_case": false'
    in (tmp_path / "out" / "tokenizer_config.json").read_text()
  )
  assert dry.code == 0 and "dry run: nothing was written" in dry.out
  messages = [
    "damaged or truncated",
    "config.json is not valid JSON",
    "damaged, truncated or not a .tar.gz",
    "no checkpoint at",
    "exists and is not empty",
    "give --from=tf1",
    "has no squad1 head",
    "holds 0 of the 64 optimizer slots",
    "--hf_python /none is not a program",
    "are two tokenizers for one model",
    "the tokenizer /none does not exist",
    "--position_method needs --max_position_embeddings: give both",
  ]
  assert len(bad) == len(messages)
  for result, message in zip(bad, messages):
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1, result.err
  assert sorted(os.listdir(tmp_path)) == [
    "a.tar.gz",
    "cut",
    "hf",
    "malformed",
    "out",
    "pieces",
  ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
