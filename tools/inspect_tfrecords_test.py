"""Runs the tool as its users do, on records made here."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

from tfrecords import schemas, writer

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
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([" ".join(_WORDS) + " and more text"] * 9),
    model_writer=model,
    vocab_size=50,
    pad_id=0,
    unk_id=1,
    bos_id=-1,
    eos_id=-1,
    control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    user_defined_symbols=[f"▁{word}" for word in _WORDS],
    hard_vocab_limit=False,
    minloglevel=2,
  )
  (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
  schema = schemas.pretraining_schema(9, 2)
  shards = []
  for index, count in enumerate((3, 1)):
    path = tmp_path / schemas.shard_name("train", index, 2)
    with writer.ShardWriter(str(path), schema) as shard:
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
  manifest = schemas.Manifest(
    task="pretraining",
    max_seq_length=9,
    max_predictions_per_seq=2,
    features=schema,
    tokenizer=schemas.TokenizerInfo("0" * 64, 50, True),
    settings={},
    random_seed=1,
    splits={"train": schemas.Split(tuple(shards), {})},
  )
  schemas.write_manifest(str(tmp_path), manifest)
  return tmp_path


def _table(text):
  rows = [
    line.split() for line in text.splitlines() if line.startswith(" " * 9)
  ]
  assert len(rows) == 1  # The heading.
  lines = text[text.index(rows[0][0] + "\n") :].splitlines()[1:]
  return {line.split()[0]: line.split()[1] for line in lines}


def test_examples_and_statistics(folder):
  done = _run(f"--input_dir={folder}", "--num_examples=2")
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(
    "\n== train: 2 files ==\n\n"
    "Example 0: 7 of 9 tokens, 1 to predict, next_sentence_labels 0 "
    "(in order)\n"
    "A: [CLS] tea {[MASK]:rain} [SEP]\n"
    "B: stone river [SEP]\n\n"
    "Example 1: 7 of 9 tokens, 1 to predict, next_sentence_labels 1 (swapped or"
    " random)\n"
    "A: [CLS] tea {[MASK]:stone} [SEP]\n"
  )
  assert "Example 2" not in done.stdout
  table = _table(done.stdout)
  assert table["instances"] == "4"
  assert table["tokens"] == "28"
  assert table["padding_share"] == "0.2222"
  assert table["label_1_share"] == "0.2500"
  assert table["mask_token_share"] == "1.0000"


def test_single_files_without_a_manifest(folder):
  os.remove(folder / "dataset.json")
  done = _run(f"--input_files={folder}/train-00000*", "--num_examples=0")
  assert done.returncode == 0, done.stderr
  assert "Example" not in done.stdout
  assert _table(done.stdout)["instances"] == "3"


def test_damage_is_found_and_the_file_named(folder):
  path = folder / schemas.shard_name("train", 0, 2)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  done = _run(f"--input_dir={folder}")
  assert done.returncode == 1
  error = done.stderr.splitlines()[-1]
  assert error.startswith(
    f"inspect_tfrecords: error: {path} is damaged after its first 1 records"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
