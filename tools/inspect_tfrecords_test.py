"""Runs the tool as its users do, on records made here."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest

import tfrecords
from official_albert.testing import toy_vocabulary
from tools.testing import many_commands

_WORDS = "tea rain stone river cloud amber slowly under every green".split()


def _run(*lines):
  return many_commands.run("inspect_tfrecords", lines)


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
  given = [f"--input_dir={folder}", "--num_examples=2"]
  single = [f"--input_files={folder}/train-00000*", "--num_examples=1"]
  done, colored = _run(
    [*given, f"--plot={folder}/a.png"], [*single, "--color=always"]
  )
  assert done.code == 0, done.err
  assert done.out.startswith(
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
  assert "Example 2" not in done.out
  table = _table(done.out)
  assert table["documents"] == "3"  # Only the manifest knows.
  assert table["instances"] == "4"
  assert table["padding_share"] == "0.2222"
  assert table["label_1_share"] == "0.2500"
  assert "\n4 records checked: nothing is wrong" in done.out
  assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
  assert colored.code == 0, colored.err
  assert (
    "A: [CLS] tea \x1b[33m[MASK]\x1b[0m\x1b[2m(rain)\x1b[0m [SEP]"
  ) in colored.out
  assert _table(colored.out)["instances"] == "3"


def test_unchecked_and_damaged_files(folder):
  damaged = folder / "damaged"
  shutil.copytree(folder, damaged)
  path = damaged / tfrecords.shard_name("train", 0, 2)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  manifest = json.loads((folder / "dataset.json").read_text())
  manifest["splits"]["train"]["statistics"]["instances"] = 77
  (folder / "dataset.json").write_text(json.dumps(manifest))
  # Another model with the same pieces: an unknown field at the end.
  model = (folder / "tokenizer.model").read_bytes()
  (folder / "b").write_bytes(model + b"\xa2\x06\x01x")
  given = f"--input_dir={folder}"
  unchecked, *refused = _run(
    [given, "--num_examples=1", "--nocheck"],
    [f"--input_dir={damaged}"],
    [given, f"--input_files={folder}/x"],
    [given, f"--spm_model_file={folder}/b"],
    [given, f"--plot={folder}/no/x.png"],
  )
  # Without a check, the manifest is trusted.
  assert unchecked.code == 0, unchecked.err
  assert _table(unchecked.out) == {"documents": "3", "instances": "77"}
  assert "checked" not in unchecked.out
  messages = [
    f"inspect_tfrecords: error: {path} is damaged after its first 1 records",
    "give either --input_dir or",
    "b is not the tokenizer",
    f"there is no folder {folder}/no:",
  ]
  for result, message in zip(refused, messages, strict=True):
    assert result.code == 1 and message in result.err.splitlines()[-1]
  assert not any(result.out for result in refused[1:])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
