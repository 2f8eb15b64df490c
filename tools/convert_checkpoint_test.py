"""Tests of the program: its output and its errors."""

from __future__ import annotations

import json
import os
import pathlib

from official_albert.testing import toy_vocabulary
from official_albert.tools.testing import many_commands, toy_runs

_GOLDEN = pathlib.Path(__file__).resolve().parents[1]
_GOLDEN = _GOLDEN / "official_albert" / "testdata"


def test_commands(tmp_path):
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  data = f"{run}/model.ckpt-1.data-00000-of-00001"
  os.truncate(data, os.path.getsize(data) // 2)
  (tmp_path / "pieces").write_bytes(toy_vocabulary.numbers(211))
  tf1 = _GOLDEN / "one_group" / "model.ckpt"

  def line(*more, input=tf1, output="none", to="hf"):
    output = tmp_path / output
    return [f"--input={input}", f"--output={output}", f"--to={to}", *more]

  spm = f"--spm_model_file={tmp_path / 'pieces'}"
  wrong = [
    (line(input=run), f"error: {data} is damaged"),
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
    (line("--push_to=toy"), "--push_to=toy is not USER/NAME"),
    (line("--license=mit", to="tf1"), "a model card need --to=hf"),
    (line(input="kaggle://a/b"), "'kaggle://a/b' names no model: give hf://"),
  ]
  before = sorted(os.listdir(tmp_path))
  (good,) = many_commands.run(
    "convert_checkpoint",
    [line(spm, "--nodo_lower_case", "--license=mit", output="out")],
  )
  report = json.loads(good.out)
  assert report["matched"] == 33 and not report["missing"]
  settings = (tmp_path / "out" / "tokenizer_config.json").read_text()
  assert '"do_lower_case": false' in settings
  assert 'license: "mit"' in (tmp_path / "out" / "README.md").read_text()
  many_commands.check_refusals("convert_checkpoint", wrong)
  assert sorted(os.listdir(tmp_path)) == sorted([*before, "out"])
