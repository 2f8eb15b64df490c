"""Tests Chinese with WordPiece: records, training, tasks, a SavedModel."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  The SavedModel has its operations.

from official_albert import tfrecords
from official_albert.tasks import common
from official_albert.testing import toy_models
from official_albert.tools.testing import many_commands

_GOOD, _BAD, _NEUTRAL = "晴明暖", "雨暗冷", "天地玄黄宇宙洪荒日月"
_PIECES = [
  *"[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] 。 ， 1922 ab ##c _".split(),
  *(_GOOD + _BAD + _NEUTRAL),
]


def sentence(rng, characters):
  """Returns ten characters, four of them from `characters`."""
  drawn = [*rng.choice(list(_NEUTRAL), 6), *rng.choice(list(characters), 4)]
  return "".join(rng.permutation(drawn)) + "。"


def write_table(path, count, seed):
  rng = np.random.default_rng(seed)
  rows = ["mood\treview\n"] if seed < 2 else ["review\n"]
  for i in range(count):
    text = sentence(rng, (_BAD, _GOOD)[i % 2])
    rows.append(
      f"{('bad', 'good')[i % 2]}\t{text}\n" if seed < 2 else f"{text}\n"
    )
  path.write_text("".join(rows), "utf-8")


def run(folder, program, *flags):
  """Runs a program, whose flags may name files of the folder as `@/NAME`."""
  line = [flag.replace("@", str(folder)) for flag in flags]
  many_commands.run(program, [line])


@pytest.mark.heavy
def test_from_text_to_a_saved_model_and_a_classifier(tmp_path):
  rng = np.random.default_rng(1)
  # With counts, and named as in Google's archives.
  pieces = "".join(f"{piece}\t{9 * i}\n" for i, piece in enumerate(_PIECES))
  (tmp_path / "vocab_chinese.txt").write_text(pieces, "utf-8")
  with open(tmp_path / "text.jsonl", "w", encoding="utf-8") as file:
    for _ in range(60):
      text = "".join(sentence(rng, _GOOD + _BAD) for _ in range(9))
      file.write(json.dumps({"text": text}) + "\n")
  run(
    *(tmp_path, "create_pretraining_data"),
    *("--input_files=@/text.jsonl", "--output_dir=@/records"),
    *("--vocab_file=@/vocab_chinese.txt", "--sentence_language=zh"),
    *("--max_seq_length=32", "--max_predictions_per_seq=5"),
    *("--dupe_factor=1", "--num_shards=1", "--num_workers=1"),
  )
  records = tfrecords.read_manifest(str(tmp_path / "records"))
  assert records.tokenizer.kind == "wordpiece"
  sizes = {"embedding_size": 12, "hidden_size": 24, "intermediate_size": 30}
  config = toy_models.config(len(_PIECES), 64, hidden_act="relu", **sizes)
  config.to_json_file(str(tmp_path / "config.json"))
  run(
    *(tmp_path, "run_pretraining", "--input_dir=@/records"),
    *("--model_dir=@/run", "--albert_config_file=@/config.json"),
    *("--num_train_steps=4", "--num_warmup_steps=1", "--train_batch_size=8"),
  )
  assert (tmp_path / "run" / "vocab.txt").exists()
  served = "--export_dir=@/served"
  run(tmp_path, "export_saved_model", "--model_dir=@/run", served, "--top_k=3")
  fill = tf.saved_model.load(str(tmp_path / "served"))
  answer = fill.signatures["serving_default"](
    text=tf.constant(["天[MASK]，1922[MASK]日"])
  )
  assert answer["mask_positions"].numpy().tolist() == [[2, 5]]
  tokens = {t.decode() for t in answer["tokens"].numpy().ravel()}
  assert tokens <= set(_PIECES) and answer["tokens"].shape == (1, 2, 3)
  for split, count, seed in (("train", 48, 0), ("dev", 12, 1), ("new", 6, 2)):
    write_table(tmp_path / f"{split}.tsv", count, seed)
  run(
    *(tmp_path, "run_finetuning", "--task=text_classification"),
    *("--init_checkpoint=@/run", "--output_dir=@/model"),
    *("--train_file=@/train.tsv", "--dev_file=@/dev.tsv"),
    *("--text_column=review", "--label_column=mood", "--max_seq_length=24"),
    *("--train_batch_size=8", "--learning_rate=0.005"),
    *("--num_train_steps=40", "--eval_steps=20"),
  )
  results = json.loads((tmp_path / "model" / "eval_results.json").read_text())
  assert results["dev"]["accuracy"] == 1
  new = "--input_file=@/new.tsv"
  answers = "--output_file=@/predicted.tsv"
  run(tmp_path, "predict", "--model_dir=@/model", new, answers)
  table = common.read_probabilities(str(tmp_path / "predicted.tsv"))
  assert table.predictions == ["bad", "good"] * 3
