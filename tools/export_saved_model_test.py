"""Tests of the export: what is written, and what a wrong folder says."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, checkpoints, run_record, text_layers
from tasks.pretraining import export as export_lib
from tasks.pretraining import model as model_lib
from tools import train_vocabulary

_TEXT = [
  "the river runs down to the sea",
  "a boat goes up the river with the wind",
  "the wind comes from the sea and goes to the hills",
] * 5


@pytest.fixture
def run(tmp_path):
  """A run's folder with a random model in it, and that model."""
  folder = str(tmp_path / "run")
  os.makedirs(folder)
  vocabulary = train_vocabulary.train(iter(_TEXT), 40, 1.0, 1000, 1)
  train_vocabulary.write(vocabulary, os.path.join(folder, "tokenizer"))
  config = AlbertConfig(
    vocab_size=40,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=19,
    initializer_range=0.5,
  )
  data = {"max_seq_length": 17, "tokenizer": {"lower_case": True}}
  run_record.write(folder, config, {}, data)
  model = model_lib.AlbertForPretraining(config)
  checkpoints.Manager(folder, 1, model=model).save(3)
  return folder, model


def test_export_answers_with_the_runs_weights(run, tmp_path):
  folder, model = run
  exported = str(tmp_path / "exports" / "1")
  export_lib.export(folder, exported, top_k=4)
  fill = tf.saved_model.load(exported).signatures["serving_default"]
  answers = fill(text=tf.constant(["The [MASK] runs"]))
  assert answers["tokens"].shape == [1, 1, 4]
  text_layer = text_layers.FillMaskTextLayer(
    text_layers.SentencePieceTextLayer(f"{folder}/tokenizer.model"), 17
  )
  features = text_layer(tf.constant(["the [MASK] runs"]))
  features["masked_lm_positions"] = features.pop("mask_positions")
  logits = model(features)["masked_lm_logits"]
  best, ids = tf.math.top_k(tf.nn.softmax(logits), 4)
  np.testing.assert_array_equal(answers["token_ids"], ids)
  np.testing.assert_allclose(answers["probabilities"], best, atol=1e-5)
  extra = os.listdir(os.path.join(exported, "assets.extra"))
  assert sorted(extra) == ["albert_config.json", "tokenizer.model"]
  assert os.listdir(tmp_path / "exports") == ["1"]


def test_wordpiece_run(tmp_path):
  folder = tmp_path / "run"
  folder.mkdir()
  pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] 天 地 玄 黄 ##x".split()
  (folder / "vocab.txt").write_text("\n".join(pieces), "utf-8")
  config = AlbertConfig(
    vocab_size=10,
    embedding_size=6,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=7,
    max_position_embeddings=13,
  )
  tokenizer = {"lower_case": True, "kind": "wordpiece"}
  data = {"max_seq_length": 11, "tokenizer": tokenizer}
  run_record.write(str(folder), config, {}, data)
  model = model_lib.AlbertForPretraining(config)
  checkpoints.Manager(str(folder), 1, model=model).save(3)
  exported = str(tmp_path / "export")
  export_lib.export(str(folder), exported, top_k=10)
  fill = tf.saved_model.load(exported).signatures["serving_default"]
  answers = fill(text=tf.constant(["天[MASK]玄黄"]))
  assert answers["mask_positions"].numpy().tolist() == [[2]]
  tokens = [token.decode() for token in answers["tokens"].numpy()[0, 0]]
  assert sorted(tokens) == sorted(pieces)
  extra = os.listdir(os.path.join(exported, "assets.extra"))
  assert sorted(extra) == ["albert_config.json", "vocab.txt"]


def test_longer_texts_lose_their_end(run, tmp_path):
  folder, _ = run
  exported = str(tmp_path / "export")
  export_lib.export(folder, exported, top_k=2, max_seq_length=9)
  fill = tf.saved_model.load(exported).signatures["serving_default"]
  answers = fill(text=tf.constant(["[MASK] " * 30]))
  assert answers["tokens"].shape == [1, 7, 2]


def test_refusals_leave_nothing(run, tmp_path):
  folder, _ = run
  there = tmp_path / "there"
  there.mkdir()
  with pytest.raises(FileExistsError, match="exists already"):
    export_lib.export(folder, str(there), 4)
  missing = str(tmp_path / "new")
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    export_lib.export(str(there), missing, 4)
  with pytest.raises(ValueError, match="top_k must be between"):
    export_lib.export(folder, missing, 0)
  with pytest.raises(ValueError, match="20 exceeds the model's 19"):
    export_lib.export(folder, missing, 4, max_seq_length=20)
  config_path = os.path.join(folder, "albert_config.json")
  with open(config_path, encoding="utf-8") as file:
    values = json.load(file)
  with open(config_path, "w", encoding="utf-8") as file:
    json.dump(dict(values, num_hidden_groups=2), file)
  with pytest.raises(ValueError, match="lacks weights of the model"):
    export_lib.export(folder, missing, 4)
  assert sorted(os.listdir(tmp_path)) == ["run", "there"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
