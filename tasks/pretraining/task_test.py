"""Tests of the task: losses by hand, padded rows, data that does not fit."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig
from tasks.pretraining import task as task_lib
from tfrecords import schemas, writer

V, S, P, TRAIN, HELDOUT = 97, 11, 3, 13, 7
CONFIG = AlbertConfig(
  vocab_size=V,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=S,
)


def record(rng):
  length = int(rng.integers(5, S + 1))
  mask = (np.arange(S) < length).astype(np.int64)
  predictions = int(rng.integers(1, P + 1))
  weights = (np.arange(P) < predictions).astype(np.float32)
  positions = np.zeros(P, np.int64)
  positions[:predictions] = np.sort(
    rng.choice(np.arange(1, length), predictions, replace=False)
  )
  return {
    "input_ids": rng.integers(5, V, S) * mask,
    "input_mask": mask,
    "segment_ids": (np.arange(S) >= length // 2) * mask,
    "token_boundary": mask,
    "masked_lm_positions": positions,
    "masked_lm_ids": rng.integers(5, V, P) * (weights > 0),
    "masked_lm_weights": weights,
    "next_sentence_labels": rng.integers(0, 2, 1),
  }


def write_data(folder, sentence_pair="sop", **changes):
  schema = schemas.pretraining_schema(S, P)
  rng = np.random.default_rng(0)
  splits = {}
  for split, count in (("train", TRAIN), ("heldout", HELDOUT)):
    name = schemas.shard_name(split, 0, 1)
    path = os.path.join(folder, name)
    with writer.ShardWriter(path, schema) as shard:
      for _ in range(count):
        shard.write(record(rng))
    splits[split] = schemas.Split((shard.result,), {})
  manifest = schemas.Manifest(
    task="pretraining",
    max_seq_length=S,
    max_predictions_per_seq=P,
    features=schema,
    tokenizer=schemas.TokenizerInfo("ab" * 32, V, True),
    settings={"sentence_pair": sentence_pair},
    random_seed=5,
    splits=splits,
  )
  schemas.write_manifest(folder, dataclasses.replace(manifest, **changes))


@pytest.fixture
def folder(tmp_path):
  write_data(str(tmp_path))
  return str(tmp_path)


def test_losses_by_hand(folder):
  task = task_lib.PretrainingTask(CONFIG, folder)
  model = task.build_model()
  batch = next(iter(task.eval_dataset(4)))
  totals, metrics = task.forward(model, batch, False, None)
  weights = task.loss_weights(batch)
  outputs = model(batch)
  log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy()
  expected = 0.0
  for b in range(4):
    for p in range(P):
      label = int(batch["masked_lm_ids"][b, p])
      expected -= (
        float(batch["masked_lm_weights"][b, p]) * log_probs[b, p, label]
      )
  np.testing.assert_allclose(totals["masked_lm"], expected, rtol=1e-5)
  count = float(tf.reduce_sum(batch["masked_lm_weights"]))
  np.testing.assert_allclose(weights["masked_lm"], count + 1e-5, rtol=1e-6)
  order = tf.nn.log_softmax(outputs["sentence_order_logits"]).numpy()
  labels = batch["next_sentence_labels"].numpy()[:, 0]
  np.testing.assert_allclose(
    totals["sentence_order"], -order[np.arange(4), labels].sum(), rtol=1e-5
  )
  assert float(weights["sentence_order"]) == 4.0
  assert set(metrics) == {"masked_lm_accuracy", "sentence_order_accuracy"}


def test_padded_rows_change_no_sum(folder):
  """Seven held-out examples in batches of 7 and of 4 + 3 padded to 4."""
  task = task_lib.PretrainingTask(CONFIG, folder)
  model = task.build_model()

  def sums(batch_size):
    parts = []
    for batch in task.eval_dataset(batch_size):
      assert batch["input_ids"].shape == [batch_size, S]
      totals, metrics = task.forward(model, batch, False, None)
      parts.append(tf.nest.flatten((totals, metrics)))
    return np.sum(parts, 0)

  np.testing.assert_allclose(sums(HELDOUT), sums(4), rtol=1e-5)


def test_train_dataset_starts_where_it_is_told(folder):
  task = task_lib.PretrainingTask(CONFIG, folder, seed=3)
  whole = [b["input_ids"].numpy() for b in task.train_dataset(2, 0).take(9)]
  late = next(iter(task.train_dataset(2, 14)))
  np.testing.assert_array_equal(late["input_ids"], whole[7])


def test_without_a_pair_objective_only_masked_lm_is_trained(tmp_path):
  write_data(str(tmp_path), sentence_pair="none")
  task = task_lib.PretrainingTask(CONFIG, str(tmp_path))
  batch = next(iter(task.eval_dataset(4)))
  totals, metrics = task.forward(task.build_model(), batch, False, None)
  assert set(totals) == set(task.loss_weights(batch)) == {"masked_lm"}
  assert set(metrics) == {"masked_lm_accuracy"}


def test_flops_by_hand(folder):
  task = task_lib.PretrainingTask(CONFIG, folder)
  head = P * 2 * (10 * 6 + 6 * V)
  assert task.flops_per_example == 3 * (CONFIG.forward_flops(S) + head)
  assert task.tokens_per_example == S


def test_fingerprint(folder):
  described = task_lib.PretrainingTask(CONFIG, folder).describe()
  assert described["tokenizer"]["sha256"] == "ab" * 32
  assert described["settings"] == {"sentence_pair": "sop"}


@pytest.mark.parametrize(
  "data, config, message",
  [
    ({}, {"vocab_size": 98}, "vocabulary of 97 pieces, .* vocab_size 98"),
    ({}, {"max_position_embeddings": 10}, "sequences of 11 tokens"),
    ({"task": "squad"}, {}, "holds squad data"),
  ],
)
def test_data_for_another_model_is_refused(tmp_path, data, config, message):
  write_data(str(tmp_path), **data)
  config = dataclasses.replace(CONFIG, **config)
  with pytest.raises(ValueError, match=message):
    task_lib.PretrainingTask(config, str(tmp_path))


def test_missing_data_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="create_pretraining_data"):
    task_lib.PretrainingTask(CONFIG, str(tmp_path / "none"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
