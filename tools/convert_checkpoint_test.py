"""Tests of the program: its output and its errors."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

from official_albert.testing import toy_vocabulary
from official_albert.tools.testing import many_commands, toy_runs

_GOLDEN = pathlib.Path(__file__).resolve().parents[1]
_GOLDEN = _GOLDEN / "official_albert" / "testdata"


def test_commands(tmp_path):
  cut, malformed = tmp_path / "cut", tmp_path / "malformed"
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  data = f"{run}/model.ckpt-1.data-00000-of-00001"
  os.truncate(data, os.path.getsize(data) // 2)
  for folder in (cut, malformed):
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
    (line(input=cut, to="tf1"), "damaged, truncated"),
    (line(input=run), f"error: {data} is damaged"),
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
  ]
  before = sorted(os.listdir(tmp_path))
  (good,) = many_commands.run(
    "convert_checkpoint", [line(spm, "--nodo_lower_case", output="out")]
  )
  report = json.loads(good.out)
  assert report["matched"] == 33 and not report["missing"]
  settings = (tmp_path / "out" / "tokenizer_config.json").read_text()
  assert '"do_lower_case": false' in settings
  many_commands.check_refusals("convert_checkpoint", wrong)
  assert sorted(os.listdir(tmp_path)) == sorted([*before, "out"])
