"""Folders of fine-tuned runs with random weights, for tests that read one."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional, Sequence

import tensorflow as tf

from official_albert import modeling, tokenization, training
from tools import finetuning
from tools.testing import toy_encoder

SIZES = {
  "embedding_size": 6,
  "hidden_size": 10,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 14,
  "max_position_embeddings": 40,
  "initializer_range": 0.5,
}


def write(
  folder: str,
  task: str,
  labels: Optional[Sequence[str]] = None,
  max_seq_length: int = 24,
  seed: int = 3,
  threshold: Optional[float] = None,
  **settings: Any,
) -> tf.keras.Model:
  """Writes a run of one update to a new folder; returns its model.

  Args:
    folder: does not exist yet.
    task: as in --task of tools.run_finetuning.
    labels: the classes; None for other tasks.
    max_seq_length: S.
    seed: of the weights.
    threshold: of SQuAD 2.0, as an evaluation finds it.
    **settings: of its records, such as doc_stride.
  """
  os.makedirs(folder)
  tokenizer = toy_encoder.write_tokenizer(folder)
  config = modeling.AlbertConfig(vocab_size=tokenizer.vocab_size, **SIZES)
  tf.keras.utils.set_random_seed(seed)
  model = finetuning.registry.make_model(
    finetuning.registry.TASKS[task].head, config, len(labels or "1")
  )
  for variable in model.trainable_variables:
    # A test could not see a bias of 0.
    if not variable.numpy().any():
      variable.assign(tf.random.normal(variable.shape, stddev=0.3))
  data = {
    "task": task,
    "max_seq_length": max_seq_length,
    "settings": {
      "labels": None if labels is None else list(labels),
      **settings,
    },
    "tokenizer": {
      "kind": tokenizer.kind,
      "lower_case": True,
      "sha256": tokenizer.sha256,
    },
  }
  training.write_run(folder, config, {}, data)
  if threshold is not None:
    results = {"dev": {"null_score_diff_threshold": threshold}}
    finetuning.trained_run.write_results(folder, results)
  training.CheckpointManager(folder, 1, model=model).save(1)
  return model


class Encoder(NamedTuple):
  """The configuration and the Python tokenizer of a model."""

  config: modeling.AlbertConfig
  tokenizer: tokenization.Tokenizer


def read_encoder(folder: str) -> Encoder:
  """Reads both from the folder of a run."""
  return Encoder(
    modeling.AlbertConfig.from_json_file(
      os.path.join(folder, training.CONFIG_FILE)
    ),
    tokenization.open_tokenizer(os.path.join(folder, "tokenizer.model")),
  )
