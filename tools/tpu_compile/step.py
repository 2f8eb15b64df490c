"""The steps that can be compiled, and their tasks on records of zeros.

The program is the cluster that `trace` finds in the traced loop, evaluation or
prediction: the graph that a TPU would get, of the project's own tasks and
records. XLA has no sums over replicas on a CPU, so they become custom calls
named `ALL_REDUCE`, which `tools.tpu_compile.compiler` replaces.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from official_albert import (
  distribution,
  modeling,
  tfrecords,
  train_config,
  training,
)
from official_albert.settings import check, setting
from official_albert.tasks import common, race, squad
from official_albert.tasks.classification import task as classification_task
from official_albert.tasks.pretraining import data as data_lib
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tasks.race import task as race_task
from official_albert.tasks.squad import task as squad_task

if TYPE_CHECKING:
  from official_albert.tools.tpu_compile import trace

TASKS = (
  "pretraining",
  "classification",
  "regression",
  "squad",
  "squad2",
  "multiple_choice",
)
# The parts of a run that compute on the devices.
MODES = ("training", "evaluation", "prediction")
# TPUs support bfloat16, not float16.
PRECISIONS = ("mixed_bfloat16", "float32")
_CLASSES = 2


@dataclasses.dataclass(frozen=True)
class Step:
  """One training step of one replica, or one batch of held-out examples.

  `config` is `AlbertConfig.to_dict`. An example of multiple choice has four
  sequences.
  """

  config: Mapping[str, Any]
  task: str = setting("pretraining", "Objective.", TASKS)
  mode: str = setting("training", "Part of a run that is compiled.", MODES)
  batch_size: int = setting(
    32, "Examples per core (v2, v3) or chip in one update.", least=1
  )
  max_seq_length: int = setting(512, "Tokens per sequence.")
  max_predictions_per_seq: int = setting(
    0, "Masked tokens; 0: 15% of the tokens.", least=0
  )
  optimizer: str = setting(
    "lamb", "Optimizer of the step.", train_config.OPTIMIZERS
  )
  precision: str = "mixed_bfloat16"
  recompute_activations: bool = setting(
    False, "Recompute activations in the gradient, to save memory."
  )
  gradient_accumulation_steps: int = setting(
    1, "Micro-batches in one update, to save memory.", least=1
  )
  random_depths: tuple[int, ...] = ()

  def __post_init__(self):
    check(self)
    least = max(3, self.max_predictions_per_seq)
    most = self.config["max_position_embeddings"]
    if not least <= self.max_seq_length <= most:
      raise ValueError(
        f"max_seq_length must be from {least} to {most}, the model's position "
        f"embeddings, got {self.max_seq_length}."
      )
    if self.batch_size % self.gradient_accumulation_steps:
      raise ValueError(
        f"batch_size {self.batch_size} cannot be cut into "
        f"{self.gradient_accumulation_steps} equal micro-batches: choose a "
        "gradient_accumulation_steps that divides it."
      )
    if (self.task, self.mode) == ("pretraining", "prediction"):
      raise ValueError("pretraining predicts nothing: choose another mode.")
    # JSON has lists only.
    object.__setattr__(self, "random_depths", tuple(self.random_depths))

  @property
  def predictions(self) -> int:
    """Masked tokens per sequence."""
    return self.max_predictions_per_seq or data_lib.num_to_predict(
      self.max_seq_length
    )

  def to_json(self) -> str:
    """Returns the program's argument; equal steps give equal text."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)


def schema(step: Step) -> tuple[tfrecords.Feature, ...]:
  """Returns the features of the task's records."""
  length = step.max_seq_length
  if step.task == "pretraining":
    return tfrecords.pretraining_schema(length, step.predictions)
  if step.task == "classification":
    return tfrecords.classification_schema(length)
  if step.task == "regression":
    return tfrecords.regression_schema(length)
  if step.task == "multiple_choice":
    return tfrecords.multiple_choice_schema(length, len(race.LETTERS))
  return tfrecords.span_schema(length)


def write_records(step: Step, folder: str) -> None:
  """Writes a training and a held-out record of zeros to an empty folder."""
  features, splits = schema(step), {}
  for split in ("train", "heldout"):
    path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
    with tfrecords.ShardWriter(path, features) as shard:
      shard.write({x.name: np.zeros(x.shape, x.dtype) for x in features})
    splits[split] = tfrecords.Split((shard.result,), {})
  tokenizer = tfrecords.TokenizerInfo("", step.config["vocab_size"], True)
  pathlib.Path(folder, tokenizer.file).touch()
  tfrecords.write_manifest(
    folder,
    tfrecords.Manifest(
      task=step.task,
      max_seq_length=step.max_seq_length,
      max_predictions_per_seq=step.predictions,
      features=features,
      tokenizer=tokenizer,
      settings={},
      random_seed=0,
      splits=splits,
    ),
  )


def make_task(step: Step, folder: str):
  """Returns the task of the step, on the records of `write_records`."""
  config = modeling.AlbertConfig.from_dict(step.config)
  if step.task == "pretraining":
    return task_lib.PretrainingTask(
      config, folder, recompute_activations=step.recompute_activations
    )
  settings = common.ModelSettings(
    albert_dropout=config.hidden_dropout_prob,
    recompute_activations=step.recompute_activations,
  )
  # TPUs need batches of one length.
  arguments = dict(
    name=step.task,
    config=config,
    records={"train": folder, "heldout": folder},
    eval_split="heldout",
    settings=settings,
    length_bucketing=False,
  )
  if step.task.startswith("squad"):
    return squad_task.SquadTask(
      **arguments,
      has_impossible=step.task == "squad2",
      questions={},
      recipe=squad.RECIPES["squad_v2"],
    )
  kind, labels = classification_task.ClassificationTask, None
  if step.task == "classification":
    labels = tuple(map(str, range(_CLASSES)))
  elif step.task == "multiple_choice":
    kind, labels = race_task.RaceTask, tuple(race.LETTERS)
  return kind(**arguments, labels=labels, ids={}, evaluate=None)


def train_config(step: Step) -> training.TrainConfig:
  """Returns the settings of a training on `trace.CORES` replicas."""
  from official_albert.tools.tpu_compile import trace

  return training.TrainConfig(
    model_dir="",
    num_train_steps=1000,
    num_warmup_steps=100,
    learning_rate=0.001,
    train_batch_size=step.batch_size * trace.CORES,
    optimizer=step.optimizer,
    gradient_accumulation_steps=step.gradient_accumulation_steps,
    random_depths=step.random_depths,
  )


def trace_step(step: Step) -> trace.Cluster:
  """Returns the program of one replica."""
  from official_albert.tools.tpu_compile import trace

  distribution.set_precision(step.precision)
  batch_size = step.batch_size * trace.CORES
  with tempfile.TemporaryDirectory(prefix="tpu_compile") as folder:
    write_records(step, folder)
    task = make_task(step, folder)
    if step.mode == "evaluation":
      return trace.trace_dataset(task, training.make_evaluation, batch_size)
    if step.mode == "prediction":
      return trace.trace_dataset(task, training.make_prediction, batch_size)
    return trace.trace_training(task, train_config(step))
