"""Tests of the program: its output and its errors."""

from __future__ import annotations

import os
import pathlib
import shutil

from official_albert.testing import toy_vocabulary
from tools.testing import many_commands

_GOLDEN = pathlib.Path(__file__).resolve().parents[1]
_GOLDEN = _GOLDEN / "official_albert" / "testdata"


def test_commands(tmp_path):
  hf, cut, malformed = (tmp_path / n for n in ("hf", "cut", "malformed"))
  for folder in (hf, cut, malformed):
    shutil.copytree(_GOLDEN / "hf_one_group" / "pretraining", folder)
  weights = cut / "model.safetensors"
  weights.write_bytes(weights.read_bytes()[:-100])
  (malformed / "config.json").write_text("{")
  (tmp_path / "a.tar.gz").write_bytes(b"no archive")
  (tmp_path / "pieces").write_bytes(toy_vocabulary.numbers(211))
  tf1 = _GOLDEN / "one_group" / "model.ckpt"

  def line(*more, input=tf1, output="none", to="hf"):
    output = tmp_path / output
    return [f"--input={input}", f"--output={output}", f"--to={to}", *more]

  spm = f"--spm_model_file={tmp_path / 'pieces'}"
  wrong = [
    (line(input=cut, to="tf1"), "damaged or truncated"),
    (line(input=malformed, to="tf1"), "config.json is not valid JSON"),
    (line(input=tmp_path / "a.tar.gz"), "is not a .tar.gz of a checkpoint"),
    (line(input=tmp_path / "nothing"), "no checkpoint at"),
    (line(output="out"), "exists and is not empty"),
    (line("--head=squad1"), "lacks cls/squad/output_weights"),
    (line("--include_optimizer"), "holds 0 of the 64 optimizer slots"),
    (line("--hf_python=/none"), "--hf_python /none is not a program"),
    (
      line(spm, f"--vocab_file={tmp_path / 'pieces'}"),
      "are two tokenizers for one model",
    ),
    (line("--spm_model_file=/none"), "the tokenizer /none does not exist"),
    (
      line("--position_method=interpolate"),
      "--position_method needs --max_position_embeddings: give both",
    ),
  ]
  before = sorted(os.listdir(tmp_path))
  good, dry, *bad = many_commands.run(
    "convert_checkpoint",
    [
      line("--from=tf1", spm, "--nodo_lower_case", output="out"),
      line("--dry_run", input=hf, to="official_albert"),
      *(arguments for arguments, _ in wrong),
    ],
  )
  assert good.code == 0, good.err
  assert "33 variables matched, 0 missing, 0 unexpected" in good.out
  assert (
    "proof, values read again by name: largest absolute difference 0"
    in good.out
  )
  settings = (tmp_path / "out" / "tokenizer_config.json").read_text()
  assert '"do_lower_case": false' in settings
  assert dry.code == 0 and "dry run: nothing was written" in dry.out
  for result, (_, message) in zip(bad, wrong):
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1, result.err
  assert sorted(os.listdir(tmp_path)) == sorted([*before, "out"])
