"""Training steps on records of zeros, and their programs for a TPU.

The program is the cluster that `trace` finds in the traced loop: the graph that
a TPU would get, of the project's own tasks and records. XLA has no sums over
replicas on a CPU, so they become custom calls named `ALL_REDUCE`, which
`tools.tpu_compile.compiler` replaces.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Sequence

import numpy as np

from official_albert import distribution, tfrecords, training
from official_albert.config import AlbertConfig
from official_albert.tasks import common, registry
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.tpu_compile import rows, trace


def _write_records(
  step: rows.Step, folder: str, features: Sequence[tfrecords.Feature]
) -> None:
  """Writes a training and a held-out record of zeros to an empty folder."""
  splits = {}
  for split in ("train", "heldout" if step.task == "pretraining" else "dev"):
    path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
    with tfrecords.ShardWriter(path, features) as shard:
      shard.write({x.name: np.zeros(x.shape, x.dtype) for x in features})
    splits[split] = tfrecords.Split((shard.result,), {})
  tokenizer = tfrecords.TokenizerInfo("", step.config["vocab_size"], True)
  pathlib.Path(folder, tokenizer.file).touch()
  manifest = tfrecords.Manifest(
    task=step.task,
    max_seq_length=step.max_seq_length,
    max_predictions_per_seq=step.predictions,
    features=tuple(features),
    tokenizer=tokenizer,
    settings={},
    random_seed=0,
    splits=splits,
  )
  tfrecords.write_manifest(folder, manifest)


def make_task(step: rows.Step, folder: str):
  """Returns the task of the step, on records of zeros in an empty folder."""
  config, length = AlbertConfig.from_dict(step.config), step.max_seq_length
  recomputes = step.recompute_activations
  if step.task == "pretraining":
    features = tfrecords.pretraining_schema(length, step.predictions)
    _write_records(step, folder, features)
    return task_lib.PretrainingTask(
      config, folder, recompute_activations=recomputes
    )
  # TPUs need batches of one length.
  options = common.TaskOptions(
    max_seq_length=length,
    length_bucketing=False,
    recompute_activations=recomputes,
    recipe={"albert_dropout": config.hidden_dropout_prob},
  )
  task = registry.make_task(rows.TASKS[step.task], options)
  _write_records(step, folder, task.schema())
  return task.on_records({"train": folder, "dev": folder}, config)


def train_config(step: rows.Step) -> training.TrainConfig:
  """Returns the settings of a training on `trace.CORES` replicas."""
  return training.TrainConfig(
    model_dir="",
    num_train_steps=1000,
    num_warmup_steps=100,
    learning_rate=0.001,
    train_batch_size=step.batch_size * trace.CORES,
    optimizer=step.optimizer,
    gradient_accumulation_steps=step.gradient_accumulation_steps,
  )


def trace_step(step: rows.Step) -> trace.Cluster:
  """Returns the program of one replica."""
  distribution.set_precision(step.precision)
  with tempfile.TemporaryDirectory(prefix="tpu_compile") as folder:
    return trace.trace_training(make_task(step, folder), train_config(step))
