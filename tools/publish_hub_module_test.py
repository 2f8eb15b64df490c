"""Tests of the program: what it prints, and one sentence for what is wrong."""

from __future__ import annotations

import json
import os

from official_albert.tools.testing import many_commands, toy_runs


def test_commands(tmp_path):
  run = toy_runs.write_pretrained(str(tmp_path / "run"))

  def line(*more, output="none", handle="my-team/albert-toy", input=run):
    return [
      f"--input={input}",
      f"--output_dir={tmp_path / output}",
      f"--handle={handle}",
      "--license=apache-2.0",
      "--seq_length=17",
      *more,
    ]

  good, *bad = many_commands.run(
    "publish_hub_module",
    [
      line("--language=en", output="hub"),
      line(output="hub"),
      line(handle="my-team/albert_toy"),
      line("--checkpoint=best"),
      line("--seq_length=65"),
      line("--seq_length=4"),
      line("--spm_model_file=/none"),
      line("--spm_model_file=a", "--vocab_file=b"),
      line(input=tmp_path / "nothing"),
      line("--license=mitt"),
    ],
  )
  assert good.code == 0, good.err
  assert "published my-team/albert-toy with mlm and sop" in good.out
  text = (tmp_path / "hub" / "model-metadata.json").read_text()
  card = json.loads(text)["description"]
  assert "language" in card and "Not measured." in card
  messages = [
    "exists and is not empty",
    "must be PUBLISHER/NAME, such as my-team/albert-en",
    "keeps no best checkpoint",
    "more than the model's 64 position embeddings",
    "seq_length must be at least 5",
    "the tokenizer /none does not exist",
    "are two tokenizers for one model",
    "no checkpoint at",
    "--license=mitt is none of its 23 values (did you mean mit?); --help",
  ]
  assert len(messages) == len(bad)
  for result, message in zip(bad, messages):
    code = 2 if message.startswith("--license=") else 1  # 2: wrong flags.
    assert result.code == code and message in result.err
    assert result.err.count("\n") == 1
  assert sorted(os.listdir(tmp_path)) == ["hub", "run"]
