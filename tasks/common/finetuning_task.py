"""What fine-tuning tasks have in common: records, batches, loss weights.

A task of this kind is trained on the split `train`, evaluated on another one,
and can predict any. The records of each split are a folder of their own, made
by `finetuning_records`. Subclasses say what the model and its loss are, what
it predicts, and how predictions are scored and written.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from typing import Any, Mapping, Optional

import numpy as np
import tensorflow as tf

import tfrecords
from official_albert import modeling
from official_albert import training as training_lib
from tasks.common import finetuning_records

Batch = Mapping[str, tf.Tensor]
# Of a split, arrays with a row for each example, in the order of the source.
Predictions = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ModelSettings:
  """What fine-tuning may change about a pretrained model.

  The dropouts of paper, Table 14: `albert_dropout` is the encoder's, of hidden
  states and of attention.
  """

  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  recompute_activations: bool = False
  # 1.0: every layer learns at the same rate.
  layerwise_lr_decay: float = 1.0

  def __post_init__(self):
    for name in ("albert_dropout", "classifier_dropout"):
      if not 0 <= getattr(self, name) < 1:
        raise ValueError(
          f"{name} must be at least 0 and under 1, got {getattr(self, name)}."
        )


class FinetuningTask:
  """Implements `official_albert.training.objective.PredictingTask`.

  Attributes:
    name: for logs and folders.
    config: the encoder, with the dropouts of fine-tuning.
    settings: the `ModelSettings`.
    records: of each split the folder.
    eval_split: the split that is evaluated while training.
    num_layers: how many layers of the model it applies; None: all.
    head: what the outputs of the model's head stand for, so that a warm start
      can compare it with a checkpoint's; None: any head of these names fits.
  """

  num_layers: Optional[int] = None
  head: Optional[training_lib.Head] = None

  def __init__(
    self,
    name: str,
    config: modeling.AlbertConfig,
    records: Mapping[str, str],
    eval_split: str,
    settings: ModelSettings = ModelSettings(),
    seed: int = 12345,
    length_bucketing: bool = True,
  ):
    """Checks that records and model belong together.

    Args:
      name: the task's.
      config: the pretrained encoder's.
      records: of each split a folder of `finetuning_records.build`.
      eval_split: evaluated while training.
      settings: what fine-tuning changes about the model.
      seed: of the order of training examples.
      length_bucketing: whether batches are padded to the length of their
        longest example, roughly, or all to that of the records.

    Raises:
      FileNotFoundError, ValueError: the records are damaged, or were made with
        another vocabulary or for more positions than the model has.
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
    self._manifests = {
      split: finetuning_records.check(folder)
      for split, folder in records.items()
    }
    self._manifest = next(iter(self._manifests.values()))
    for manifest in self._manifests.values():
      check_fits(config, manifest.tokenizer.vocab_size, manifest.max_seq_length)
    self._check_alike()
    length = self._manifest.max_seq_length
    self._buckets = (
      tfrecords.default_lengths(length) if length_bucketing else ()
    )
    # Throughput counts real tokens with buckets, and padded ones without.
    tokens = length * self.sequences_per_example
    if length_bucketing and "train" in self._manifests:
      statistics = self._manifests["train"].splits["train"].statistics
      tokens = max(round(statistics["mean_tokens"]), 1)
    self.tokens_per_example = tokens
    self.flops_per_example = self._flops(self.config)

  def _flops(self, config: modeling.AlbertConfig) -> int:
    sequences = self.sequences_per_example
    length = max(self.tokens_per_example // sequences, 1)
    return 3 * sequences * config.forward_flops(length)

  def at_depth(self, num_layers: int) -> FinetuningTask:
    """The same data and model, with its layers applied so many times.

    Raises:
      ValueError: the model has no other depth than its own.
    """
    task = copy.copy(self)
    task.num_layers = num_layers
    task.flops_per_example = self._flops(self.config.at_depth(num_layers))
    return task

  def _check_alike(self) -> None:
    """Refuses records of several kinds."""
    kinds = {
      split: (manifest.features, manifest.tokenizer)
      for split, manifest in self._manifests.items()
    }
    first = next(iter(kinds))
    for split, kind in kinds.items():
      if kind != kinds[first]:
        raise ValueError(
          f"the records of {split} in {self.records[split]} have another "
          f"length or tokenizer than those of {first} in "
          f"{self.records[first]}: make both with the same settings."
        )

  @property
  def max_seq_length(self) -> int:
    """S of the records."""
    return self._manifest.max_seq_length

  @property
  def tokenizer_file(self) -> tuple[str, str]:
    """The tokenizer of the records: its path and its sha256."""
    tokenizer = self._manifest.tokenizer
    folder = next(iter(self.records.values()))
    return os.path.join(folder, tokenizer.file), tokenizer.sha256

  @property
  def sequences_per_example(self) -> int:
    """1, or the number of options of a question."""
    return 1

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = training_lib.ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Shuffled batches without end."""
    return self._read(
      "train",
      batch_size,
      seed=self._seed,
      start_example=start_example,
      context=context,
    )

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Each example of the split that is evaluated, once."""
    return self.dataset(self.eval_split, batch_size)

  def dataset(self, split: str, batch_size: int) -> tf.data.Dataset:
    """Each example of a split once; the last batch is filled up."""
    return self._read(split, batch_size, shuffle=False, repeat=False)

  def _read(self, split: str, batch_size: int, **kwargs) -> tf.data.Dataset:
    if self._buckets:
      return tfrecords.read_bucketed_dataset(
        self.records[split], split, batch_size, self._buckets, **kwargs
      )
    return tfrecords.read_dataset(
      self.records[split], split, batch_size, **kwargs
    )

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """The number of examples, <float32>[]."""
    return {self.name: tf.reduce_sum(batch["example_weight"])}

  def describe(self) -> dict[str, Any]:
    """The fingerprint of what is trained and evaluated on, for run.json.

    The names of the records' folders say what is in them, wherever they are.
    """
    used = ("train", self.eval_split)
    return {
      "task": self.name,
      "records": {
        split: os.path.basename(os.path.normpath(folder))
        for split, folder in self.records.items()
        if split in used
      },
      "tokenizer": dataclasses.asdict(self._manifest.tokenizer),
      "max_seq_length": self._manifest.max_seq_length,
      "settings": dict(self._manifest.settings),
    }

  # What a task has to say.

  def build_model(self) -> tf.keras.Model:
    """A model with fresh weights."""
    raise NotImplementedError

  def forward(
    self,
    model: tf.keras.Model,
    batch: Batch,
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """The summed loss <float32>[], and metrics."""
    raise NotImplementedError

  def predict(
    self, model: tf.keras.Model, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """What the model says of each example, and `example_id` <int32>[B]."""
    raise NotImplementedError

  def score(self, predictions: Predictions) -> dict[str, float]:
    """The official metrics of `eval_split`.

    Deviation: the original's evaluations while it trains average loss and
    accuracy over batches; here the metric is that of all predictions.
    """
    return self.score_split(self.eval_split, predictions)

  def score_split(
    self, split: str, predictions: Predictions
  ) -> dict[str, float]:
    """The official metrics of a split with labels."""
    raise NotImplementedError

  def write_predictions(
    self, split: str, predictions: Predictions, folder: str
  ) -> list[str]:
    """Writes a split's predictions; returns the paths."""
    raise NotImplementedError


def accuracy_sums(
  logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> training_lib.Ratio:
  """The share of rows whose highest score is at the label.

  Args:
    logits: <float32>[B, N].
    labels: <int32>[B].
    weights: <float32>[B], of the rows.
  """
  right = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
  return training_lib.Ratio(
    tf.reduce_sum(right * weights), tf.reduce_sum(weights)
  )


def check_fits(
  config: modeling.AlbertConfig, vocab_size: int, max_seq_length: int
) -> None:
  """Refuses examples that a model cannot read.

  Raises:
    ValueError: another vocabulary, or more tokens than it has positions.
  """
  if vocab_size != config.vocab_size:
    raise ValueError(
      f"the tokenizer has {vocab_size} pieces, but the model has vocab_size "
      f"{config.vocab_size}: give the tokenizer that the model was pretrained "
      "with."
    )
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"max_seq_length {max_seq_length} is more than the model's "
      f"{config.max_position_embeddings} position embeddings: lower it."
    )
