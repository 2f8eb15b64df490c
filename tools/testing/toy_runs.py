"""Folders of runs with a few thousand random weights, for tests.

They are like those of tools.run_pretraining and tools.run_finetuning:
albert_config.json, run.json, tokenizer.model and a checkpoint.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import (
  files,
  modeling,
  runs,
  serving,
  tokenization,
  training,
)
from official_albert.inference import source as source_lib
from official_albert.tasks import registry
from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_models
from official_albert.tools import train_vocabulary
from official_albert.tools.testing import toy_data

_VOCAB_SIZE = 47


def config(vocab_size: int, **changes: Any) -> modeling.AlbertConfig:
  """Returns a configuration whose weights differ clearly."""
  return toy_models.config(vocab_size, 40, initializer_range=0.5, **changes)


def write_tokenizer(folder: str, seed: int = 5) -> tokenization.Tokenizer:
  """Writes tokenizer.model into a folder; knows the words of `toy_data`.

  With another seed of its training text, it has other pieces.
  """
  rng = np.random.default_rng(seed)
  words = toy_data.GOOD + toy_data.BAD
  text = [toy_data.sentence(rng, words) for _ in range(200)]
  vocabulary = train_vocabulary.train(iter(text), _VOCAB_SIZE, 1.0, 1)
  prefix = os.path.join(folder, "tokenizer")
  train_vocabulary.write(vocabulary, prefix)
  return tokenization.open_tokenizer(f"{prefix}.model", "", True)


def write_records(
  folder: str,
  name: str,
  max_seq_length: int,
  heldout_share: float,
  **changes: Any,
) -> None:
  """Makes FOLDER/NAME from the corpus.txt and tokenizer.model of a folder."""
  settings = {
    "input_files": os.path.join(folder, "corpus.txt"),
    "output_dir": os.path.join(folder, name),
    "spm_model_file": os.path.join(folder, "tokenizer.model"),
    "examples": data.ExampleSettings(
      max_seq_length=max_seq_length, max_predictions_per_seq=4
    ),
    "dupe_factor": 2,
    "heldout_share": heldout_share,
    "num_shards": 3,
    "num_workers": 1,
    **changes,
  }
  data.build_dataset(data.BuildSettings(**settings))


def write_pretrained(folder: str, **changes: Any) -> str:
  """Makes a folder of a pretrained encoder with a changed configuration."""
  files.make_folder(folder)
  tokenizer = write_tokenizer(folder)
  sizes = {
    "vocab_size": _VOCAB_SIZE,
    "max_position_embeddings": 64,
    "embedding_size": 12,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "intermediate_size": 30,
  }
  made = toy_models.config(**{**sizes, **changes})
  recorded = {"sha256": tokenizer.sha256, "lower_case": True}
  data = {"tokenizer": recorded, "max_seq_length": 64}
  runs.write_run(folder, made, {}, data)
  tf.keras.utils.set_random_seed(7)
  model = model_lib.AlbertForPretraining(made)
  training.CheckpointManager(folder, 1, model=model).save(1)
  return folder


def use_wordpiece(folder: str, pieces: str) -> None:
  """Replaces the tokenizer of a run by one with these pieces."""
  files.remove(os.path.join(folder, "tokenizer.model"))
  files.write_text(os.path.join(folder, "vocab.txt"), "\n".join(pieces.split()))
  path = os.path.join(folder, runs.RECORD_FILE)
  record = runs.read_run(folder)
  record["data"]["tokenizer"] = {"kind": "wordpiece", "lower_case": True}
  files.write_json(path, record)


def write_finetuned(
  folder: str,
  task: str,
  labels: Optional[Sequence[str]] = None,
  max_seq_length: int = 24,
  threshold: Optional[float] = None,
  **settings: Any,
) -> tf.keras.Model:
  """Writes a run of one update to a new folder; returns its model.

  The task is that of --task of tools.run_finetuning, the threshold that of
  SQuAD 2.0, the settings those of its records, such as doc_stride. Where a text
  may have several labels, these have thresholds from 0.3 to 0.7.
  """
  files.make_folder(folder)
  tokenizer = write_tokenizer(folder)
  made = config(tokenizer.vocab_size)
  tf.keras.utils.set_random_seed(3)
  head = registry.TASKS[task].head
  model = source_lib.make_model(head, made, len(labels or "1"))
  for variable in model.trainable_variables:
    # A test could not see a bias of 0.
    if not variable.numpy().any():
      variable.assign(tf.random.normal(variable.shape, stddev=0.3))
  if task in ("text_regression", "text_pair_regression"):
    model.classifier.set_target_scale([55.0, 0.75], keep_outputs=False)
  recorded = {"sha256": tokenizer.sha256, "lower_case": True}
  data = {
    "task": task,
    "head": head,
    "max_seq_length": max_seq_length,
    "settings": {"labels": None if labels is None else [*labels], **settings},
    "tokenizer": recorded,
  }
  runs.write_run(folder, made, {}, data)
  results = {}
  if threshold is not None:
    results = {"null_score_diff_threshold": threshold}
  elif head == "multi_label" and labels:
    values = zip(labels, np.linspace(0.3, 0.7, len(labels)))
    results = {f"{x}{runs.THRESHOLD}": value for x, value in values}
  if results:
    runs.write_results(folder, {"dev": results})
  training.CheckpointManager(folder, 1, model=model).save(1)
  return model


def write_export(
  folder: str, model_dir: str, signatures: str = "all", **options: Any
) -> None:
  """Exports a run to a new folder, as tools.export_saved_model does."""
  source = source_lib.open_source(
    model_dir, with_texts=signatures != "ids", **options
  )
  serving.write_saved_model(source, folder, signatures)
