"""Runs the tool as its users do, on records made here."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tfrecords
from official_albert.testing import toy_vocabulary

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_WORDS = "tea rain stone river cloud amber slowly under every green".split()


def _run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "tools.inspect_tfrecords", *map(str, arguments)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.fixture
def folder(tmp_path):
  """Two shards of three and one record, a tokenizer, a manifest."""
  model = toy_vocabulary.train(
    [" ".join(_WORDS) + " and more text"] * 9,
    50,
    user_defined_symbols=[f"▁{word}" for word in _WORDS],
  )
  (tmp_path / "tokenizer.model").write_bytes(model)
  schema = tfrecords.pretraining_schema(9, 2)
  shards = []
  for index, count in enumerate((3, 1)):
    path = tmp_path / tfrecords.shard_name("train", index, 2)
    with tfrecords.ShardWriter(str(path), schema) as shard:
      for number in range(count):
        # [CLS] tea [MASK] [SEP] stone river [SEP]
        shard.write(
          {
            "input_ids": [2, 5, 4, 3, 7, 8, 3, 0, 0],
            "input_mask": [1] * 7 + [0] * 2,
            "segment_ids": [0] * 4 + [1] * 3 + [0] * 2,
            "token_boundary": [1] * 7 + [0] * 2,
            "masked_lm_positions": [2, 0],
            "masked_lm_ids": [6 + number, 0],
            "masked_lm_weights": np.float32([1, 0]),
            "next_sentence_labels": [number % 2],
          }
        )
    shards.append(shard.result)
  sha256 = hashlib.sha256(model).hexdigest()
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=9,
    max_predictions_per_seq=2,
    features=schema,
    tokenizer=tfrecords.TokenizerInfo(sha256, 50, True),
    settings={},
    random_seed=1,
    splits={"train": tfrecords.Split(tuple(shards), {"documents": 3})},
  )
  tfrecords.write_manifest(str(tmp_path), manifest)
  return tmp_path


def _table(text):
  lines = text.splitlines()
  (start,) = (n for n, line in enumerate(lines) if line.startswith(" " * 9))
  rows = (line.split() for line in lines[start + 1 :])
  return {row[0]: row[1] for row in rows if len(row) == 2}


def test_examples_statistics_and_plot(folder):
  done = _run(
    f"--input_dir={folder}", "--num_examples=2", f"--plot={folder}/a.png"
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(
    "To predict: {[MASK]:masked}, {random:replaced}, {=kept}\n"
    "\n== train: 2 files ==\n\n"
    "Example 0: 7 of 9 tokens, 1 to predict, next_sentence_labels 0 "
    "(in order)\n"
    "A: [CLS] tea {[MASK]:rain} [SEP]\n"
    "B: stone river [SEP]\n"
    "text A: tea rain\n"
    "text B: stone river\n\n"
    "Example 1: 7 of 9 tokens, 1 to predict, next_sentence_labels 1 (swapped or"
    " random)\n"
    "A: [CLS] tea {[MASK]:stone} [SEP]\n"
  )
  assert "Example 2" not in done.stdout
  table = _table(done.stdout)
  assert table["documents"] == "3"  # Only the manifest knows.
  assert table["instances"] == "4"
  assert table["padding_share"] == "0.2222"
  assert table["label_1_share"] == "0.2500"
  assert "\n4 records checked: nothing is wrong" in done.stdout
  assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")


def test_single_files_without_a_manifest_in_color(folder):
  os.remove(folder / "dataset.json")
  done = _run(
    f"--input_files={folder}/train-00000*",
    "--num_examples=1",
    "--color=always",
  )
  assert done.returncode == 0, done.stderr
  assert (
    "A: [CLS] tea \x1b[33m[MASK]\x1b[0m\x1b[2m(rain)\x1b[0m [SEP]"
  ) in done.stdout
  assert _table(done.stdout)["instances"] == "3"


def test_without_a_check_the_manifest_is_trusted(folder):
  manifest = json.loads((folder / "dataset.json").read_text())
  manifest["splits"]["train"]["statistics"]["instances"] = 77
  (folder / "dataset.json").write_text(json.dumps(manifest))
  done = _run(f"--input_dir={folder}", "--num_examples=1", "--nocheck")
  assert done.returncode == 0, done.stderr
  assert _table(done.stdout) == {"documents": "3", "instances": "77"}
  assert "checked" not in done.stdout


def test_damage_is_found_and_the_file_named(folder):
  path = folder / tfrecords.shard_name("train", 0, 2)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  done = _run(f"--input_dir={folder}")
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1].startswith(
    f"inspect_tfrecords: error: {path} is damaged after its first 1 records"
  )


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--input_dir={0}", "--input_files={0}/x"], "give either --input_dir or"),
    (["--input_dir={0}", "--spm_model_file={0}/b"], "b is not the tokenizer"),
    (["--input_dir={0}", "--plot={0}/no/x.png"], "there is no folder {0}/no:"),
  ],
)
def test_wrong_flags(folder, arguments, message):
  model = (folder / "tokenizer.model").read_bytes()
  # Another model with the same pieces: an unknown field at the end.
  (folder / "b").write_bytes(model + b"\xa2\x06\x01x")
  done = _run(*(argument.format(folder) for argument in arguments))
  assert done.returncode == 1
  assert message.format(folder) in done.stderr.splitlines()[-1]
  assert not done.stdout


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
