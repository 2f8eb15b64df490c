"""The base class of fine-tuning tasks: records, batches and loss weights.

A task trains on the split `train`, evaluates on another split, and can predict
any split. The records of each split are in a separate folder; see
`finetuning_records`. Subclasses define the model, the loss and the predictions,
and how predictions are scored and written. `LabelTask` does most of this for
classes and numbers.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import os
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, modeling, tokenization
from official_albert import training as training_lib
from official_albert.tasks.common import finetuning_records, probability_table
from official_albert.tasks.common.recipe import ModelSettings
from official_albert.tfrecords import bucketed_reader, reader

Batch = Mapping[str, tf.Tensor]
# The sum of each objective, and the metrics.
Losses = tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]
# Arrays with a row for each example of a split, in the order of the source.
Predictions = Mapping[str, np.ndarray]
_DEFAULT_SETTINGS = ModelSettings()


class FinetuningTask(abc.ABC):
  """Implements `training.Task` and `training.PredictingTask`.

  Attributes:
    name: the name for logs and folders.
    config: the encoder's configuration, with the dropouts of fine-tuning.
    settings: the `ModelSettings`.
    records: the folder of each split.
    eval_split: the split that is evaluated during training.
    num_layers: the number of layers of the model to apply; None applies all.
    head: the meaning of the head's outputs, which a warm start compares with
      the checkpoint; None accepts any head with the same variables.
    sequences_per_example: 1, or the number of options of a question.
  """

  num_layers: Optional[int] = None
  head: Optional[checkpoints.Head] = None
  sequences_per_example = 1

  def __init__(
    self,
    name: str,
    config: modeling.AlbertConfig,
    records: Mapping[str, str],
    eval_split: str,
    settings: ModelSettings = _DEFAULT_SETTINGS,
    seed: int = 12345,
    length_bucketing: bool = True,
  ):
    """Opens the records.

    Args (see also the attributes):
      records: written by `build_records` with one tokenizer and length, which
        fit the model; see `config.check_fits`.
      seed: the seed of the order of training examples.
      length_bucketing: whether batches are padded to about the length of their
        longest example, instead of the length of the records.
    """
    self.name = name
    self.settings = settings
    self.config = dataclasses.replace(
      config,
      hidden_dropout_prob=settings.albert_dropout,
      attention_probs_dropout_prob=settings.albert_dropout,
    )
    self.records = dict(records)
    self.eval_split = eval_split
    self._seed = seed
    manifests = {
      split: finetuning_records.check(folder)
      for split, folder in records.items()
    }
    # All splits have the same tokenizer and length.
    self._manifest = next(iter(manifests.values()))
    length = self.max_seq_length
    self._buckets = (
      tokenization.bucket_lengths(length) if length_bucketing else ()
    )
    # With buckets, throughput counts tokens without padding; otherwise with it.
    self.tokens_per_example = length * self.sequences_per_example
    if length_bucketing and "train" in manifests:
      statistics: Any = manifests["train"].splits["train"].statistics
      self.tokens_per_example = max(round(statistics["mean_tokens"]), 1)
    self.flops_per_example = self._flops(self.config)

  def _flops(self, config: modeling.AlbertConfig) -> int:
    sequences = self.sequences_per_example
    length = max(self.tokens_per_example // sequences, 1)
    return 3 * sequences * config.forward_flops(length)

  def at_depth(self, num_layers: int) -> FinetuningTask:
    """Returns the same task with `num_layers` layers applied."""
    task = copy.copy(self)
    task.num_layers = num_layers
    task.flops_per_example = self._flops(self.config.at_depth(num_layers))
    return task

  @property
  def max_seq_length(self) -> int:
    """S of the records."""
    return self._manifest.max_seq_length

  @property
  def tokenizer_file(self) -> tuple[str, str]:
    """The path and the sha256 of the records' tokenizer."""
    tokenizer = self._manifest.tokenizer
    folder = next(iter(self.records.values()))
    return os.path.join(folder, tokenizer.file), tokenizer.sha256

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = training_lib.ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Returns endless shuffled batches."""
    return self._read(
      "train",
      batch_size,
      seed=self._seed,
      start_example=start_example,
      context=context,
    )

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Returns `dataset` for `eval_split`."""
    return self.dataset(self.eval_split, batch_size)

  def dataset(self, split: str, batch_size: int) -> tf.data.Dataset:
    """Returns each example of a split once; the last batch is padded."""
    return self._read(split, batch_size, training=False)

  def _read(self, split: str, batch_size: int, **kwargs) -> tf.data.Dataset:
    arguments = (self.records[split], split, batch_size)
    if self._buckets:
      return bucketed_reader.read_bucketed_dataset(
        *arguments, self._buckets, **kwargs
      )
    return reader.read_dataset(*arguments, **kwargs)

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """Returns the number of examples, <float32>[]."""
    return {self.name: tf.reduce_sum(batch["example_weight"])}

  @abc.abstractmethod
  def build_model(self) -> tf.keras.Model:
    """Returns a model with initial weights."""

  def outputs(
    self,
    model: tf.keras.Model,
    batch: Batch,
    training: bool = False,
    dropout_seed: Any = None,
  ) -> Any:
    """Returns the outputs of the model."""
    return model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      num_layers=self.num_layers,
    )

  @abc.abstractmethod
  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Batch, training: bool
  ) -> Losses:
    """Returns the sum <float32>[] of each objective, and the metrics."""

  @abc.abstractmethod
  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns the predictions for the rows of a batch."""

  def forward(
    self, model: tf.keras.Model, batch: Batch, training: bool, dropout_seed: Any
  ) -> Losses:
    """Returns the sum <float32>[] of each objective, and the metrics."""
    outputs = self.outputs(model, batch, training, dropout_seed)
    return self.losses(model, outputs, batch, training)

  def evaluate(
    self, model: tf.keras.Model, batch: Batch
  ) -> tuple[dict[str, tf.Tensor], dict[str, Any], dict[str, tf.Tensor]]:
    """Returns the sums, the metrics and the predictions of a batch."""
    outputs = self.outputs(model, batch)
    losses = self.losses(model, outputs, batch, False)
    return *losses, self.predictions(model, outputs, batch)

  def predict(
    self, model: tf.keras.Model, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns the predictions for the rows of a batch."""
    return self.predictions(model, self.outputs(model, batch), batch)

  @abc.abstractmethod
  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Returns the metrics of a split."""

  @abc.abstractmethod
  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes the files of a split and returns their paths."""

  def begin(self, model: tf.keras.Model) -> None:
    """Leaves the random weights of a run that begins without a checkpoint."""
    del model

  def warm_start(
    self, model: tf.keras.Model, path: str
  ) -> checkpoints.LoadReport:
    """Reads the weights of a checkpoint, with its head if it fits `head`."""
    return checkpoints.warm_start(model, path, self.head)

  def describe(self) -> dict[str, Any]:
    """Returns the identity of the training and evaluation data, as JSON values.

    The names of the records' folders identify their contents.
    """
    return {
      "task": self.name,
      # The weights of some heads do not tell which one they are of.
      **({"head": self.head.kind} if self.head else {}),
      "records": {
        split: os.path.basename(os.path.normpath(folder))
        for split, folder in self.records.items()
        if split in ("train", self.eval_split)
      },
      "tokenizer": dataclasses.asdict(self._manifest.tokenizer),
      "max_seq_length": self.max_seq_length,
      "settings": dict(self._manifest.settings),
    }

  def model_options(self) -> dict[str, Any]:
    """Returns the arguments that all models of `build_model` share."""
    return {
      "recompute_activations": self.settings.recompute_activations,
      "name": "model",
    }

  def score(self, predictions: Predictions) -> dict[str, float]:
    """Returns the official metrics of `eval_split`.

    Deviation: during training, the original averages loss and accuracy over
    batches; here the metric is computed from all predictions.
    """
    return self.score_split(self.eval_split, predictions)


class LabelTask(FinetuningTask):
  """Predicts one of several labels, or a number, for each example.

  Subclasses define `build_model`; the model returns `logits` <float32>[B, L],
  or [B, 1] for a number, which has no labels (None).
  """

  labels: Optional[Sequence[str]]

  def __init__(
    self,
    *args,
    labels: Optional[Sequence[str]],
    ids: Mapping[str, Sequence[str]],
    evaluate: Callable[[str, np.ndarray], dict[str, float]],
    **kwargs,
  ):
    """Creates the task.

    Args (the others: see `FinetuningTask`):
      labels: the labels in the order of the logits; None for numbers.
      ids: the ids of the examples of each split that is evaluated or predicted.
      evaluate: maps a split and its predictions, classes <int>[N] or numbers
        <float32>[N], to metrics.
    """
    super().__init__(*args, **kwargs)
    self.labels = None if labels is None else tuple(labels)
    self._ids = ids
    self._evaluate = evaluate

  def outputs(
    self,
    model: tf.keras.Model,
    batch: Batch,
    training: bool = False,
    dropout_seed: Any = None,
  ) -> tf.Tensor:
    """Returns the logits."""
    return model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      logits_only=True,
      num_layers=self.num_layers,
    )["logits"]

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Batch, training: bool
  ) -> Losses:
    """Returns the summed cross entropy in nats, or the squared error.

    The error is in standard deviations of the targets, if the head has them.
    In training, the accuracy is the metric of labels.
    """
    labels, weights = batch["label_ids"], batch["example_weight"]
    if self.labels is None:
      std = model.classifier.target_std
      losses = tf.square((outputs[:, 0] - labels) / std)
    else:
      losses = modeling.cross_entropy(outputs, labels)
    total = {self.name: tf.reduce_sum(losses * weights)}
    if self.labels is None or not training:
      return total, {}
    accuracy = accuracy_sums(outputs, labels, weights)
    return total, {f"{self.name}_accuracy": accuracy}

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns `probabilities` <float32>[B, L], or `values` <float32>[B]."""
    if self.labels is None:
      return {"example_id": batch["example_id"], "values": outputs[:, 0]}
    return {
      "example_id": batch["example_id"],
      "probabilities": tf.nn.softmax(outputs),
    }

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """Returns the official metrics of a split with labels."""
    if self.labels is None:
      return self._evaluate(split, predictions["values"])
    classes = np.argmax(predictions["probabilities"], axis=1)
    return self._evaluate(split, classes)

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`; returns its path in a list."""
    values = predictions["values" if self.labels is None else "probabilities"]
    path = os.path.join(folder, split + probability_table.PROBABILITIES_SUFFIX)
    probability_table.write_probabilities(
      path,
      probability_table.ProbabilityTable(
        tuple(self._ids[split]), tuple(self.labels or ()), values
      ),
    )
    return [path]


def accuracy_sums(
  logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> training_lib.Ratio:
  """Returns the weighted share of rows whose highest logit is at the label.

  Logits are <float32>[..., N], labels <int32>[...] and weights <float32>[...].
  """
  right = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
  return training_lib.Ratio(
    tf.reduce_sum(right * weights), tf.reduce_sum(weights)
  )
