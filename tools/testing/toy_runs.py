"""A pretrained encoder of a few thousand weights, for tests of fine-tuning.

Its folder is like that of a run of tools.run_pretraining: albert_config.json,
run.json, tokenizer.model and a checkpoint. The weights are random: what tests
see a model learn, a few updates have taught it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf

from official_albert import modeling, tokenization, training
from tasks import pretraining
from tools import train_vocabulary
from tools.testing import toy_data

_VOCAB_SIZE = 47


def write_tokenizer(folder: str, seed: int = 5) -> tokenization.Tokenizer:
  """Writes tokenizer.model into a folder; knows the words of `toy_data`.

  Args:
    folder: is there already.
    seed: of the text that it is made of; others have other pieces.
  """
  rng = np.random.default_rng(seed)
  words = toy_data.GOOD + toy_data.BAD
  text = [toy_data.sentence(rng, words) for _ in range(200)]
  vocabulary = train_vocabulary.train(iter(text), _VOCAB_SIZE, 1.0, 1000, 1)
  prefix = os.path.join(folder, "tokenizer")
  train_vocabulary.write(vocabulary, prefix)
  return tokenization.open_tokenizer(f"{prefix}.model", "", True)


def write(folder: str, **changes: Any) -> str:
  """Makes the folder; returns it.

  Args:
    folder: does not exist yet.
    **changes: to the configuration.
  """
  os.makedirs(folder)
  tokenizer = write_tokenizer(folder)
  config = modeling.AlbertConfig(
    **{
      "vocab_size": _VOCAB_SIZE,
      "embedding_size": 12,
      "hidden_size": 24,
      "num_hidden_layers": 1,
      "num_attention_heads": 2,
      "intermediate_size": 30,
      "max_position_embeddings": 64,
      "initializer_range": 0.2,
      **changes,
    }
  )
  recorded = {"sha256": tokenizer.sha256, "lower_case": True}
  data = {"tokenizer": recorded, "max_seq_length": 64}
  training.write_run(folder, config, {}, data)
  tf.keras.utils.set_random_seed(7)
  model = pretraining.AlbertForPretraining(config)
  training.CheckpointManager(folder, 1, model=model).save(1)
  return folder
