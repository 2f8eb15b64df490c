"""Tests of the program: what it prints, and one sentence for what is wrong."""

from __future__ import annotations

import os

from official_albert.tools.testing import many_commands, toy_runs


def test_commands(tmp_path):
  run, words = (
    toy_runs.write_pretrained(str(tmp_path / x)) for x in ("run", "words")
  )
  pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] in the caf ##e 1922 , ."
  toy_runs.use_wordpiece(words, pieces)

  def line(*more, output="none", handle="my-team/albert-toy", input=run):
    return [
      f"--input={input}",
      f"--output_dir={tmp_path / output}",
      f"--handle={handle}",
      "--license=MIT",
      *more,
    ]

  lines = [
    line("--seq_length=17", output=f"hub_{name}", input=tmp_path / name)
    for name in ("run", "words")
  ]
  for good in many_commands.run("publish_hub_module", lines):
    assert "as my-team/albert-toy with mlm\n" in good.out, good.err
  cases = (
    (line(output="hub_run"), "exists and is not empty"),
    (line(handle="my-team/albert_toy"), "PUBLISHER/NAME"),
    (line("--checkpoint=best"), "keeps no best checkpoint"),
    (line("--seq_length=65"), "more than the model's 64 position embeddings"),
    (line("--seq_length=4"), "seq_length must be at least 5"),
    (line("--spm_model_file=/none"), "the tokenizer /none does not exist"),
    (line(input=tmp_path / "nothing"), "no checkpoint at"),
  )
  many_commands.check_refusals("publish_hub_module", cases)
  folders = ["hub_run", "hub_words", "run", "words"]
  assert sorted(os.listdir(tmp_path)) == folders
