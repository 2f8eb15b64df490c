"""The base class of fine-tuning tasks, from the data to the metrics.

A task is one class. It reads its data, makes records of it, builds the model,
and says what the loss, the predictions and their score are; `tasks.registry`
has its name. It trains on the split `train`, evaluates on others, and can
predict any. `LabelTask` does most of this for classes and numbers.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import os
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, modeling, tfrecords, tokenization
from official_albert import training as training_lib
from official_albert.tasks.common import finetuning_records, probabilities
from official_albert.tasks.common.recipe import Recipe, TaskOptions
from official_albert.tfrecords import bucketed_reader, reader

Batch = Mapping[str, tf.Tensor]
# The sum of each objective, and the metrics.
Losses = tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]
# Arrays with a row for each example of a split, in the order of the source.
Predictions = Mapping[str, np.ndarray]
# The names of L classes, the correct and the predicted ones. Both are <int>[N],
# or 0 and 1 [N, L] where each class is decided on its own.
Decided = tuple[Sequence[str], np.ndarray, np.ndarray]


class FinetuningTask(abc.ABC):
  """Implements `training.Task` and `training.PredictingTask`.

  The constructor reads little: `examples` reads a split, and `with_records`
  returns the task on the records of its splits, which can be trained.
  """

  name: str  # For logs and folders.
  recipe: Any  # The settings of fine-tuning.
  options: TaskOptions
  max_seq_length: int  # S of the records.
  # The classes in the order of the logits; None for numbers and spans.
  labels: Optional[Sequence[str]] = None
  has_pairs = True  # Whether a sequence has two texts.
  best_metric: str  # It selects checkpoints, the highest is best.
  # The splits to evaluate, the first one during training, and to predict.
  eval_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)
  # The meaning of the head's outputs, which a warm start compares with the
  # checkpoint; None accepts any head with the same variables.
  head: Optional[checkpoints.Head] = None
  sequences_per_example = 1  # Or the number of options of a question.
  # The number of updates whose examples are sorted by length together.
  window_updates = bucketed_reader.WINDOW_UPDATES
  num_layers: Optional[int] = None  # Of the model, to apply; None applies all.
  # Of a call of the model, besides those that all models have.
  call_options: Mapping[str, Any] = {}
  # On records: the encoder's configuration, with the dropouts of fine-tuning,
  # the folder of each split, and sizes for throughput.
  config: modeling.AlbertConfig
  records: dict[str, str]
  tokens_per_example: int
  flops_per_example: int
  _seed: int
  _manifest: tfrecords.Manifest

  def __init__(
    self, name: str, options: TaskOptions, recipe: Optional[Recipe] = None
  ):
    """Creates the task; `recipe` replaces that of the class."""
    self.name, self.options, recipe = name, options, recipe or self.recipe
    for field in options.recipe:
      if not hasattr(recipe, field):
        raise ValueError(
          f"--{field} does not apply to this task: leave it out."
        )
    self.recipe = dataclasses.replace(recipe, **options.recipe)
    self.max_seq_length = options.max_seq_length or recipe.max_seq_length
    self._examples: dict[str, Sequence[Any]] = {}

  @abc.abstractmethod
  def sources(self, split: str) -> list[str]:
    """Returns the files of a split; FileNotFoundError if they are missing."""

  @abc.abstractmethod
  def read(self, split: str) -> Sequence[Any]:
    """Returns the examples of a split."""

  @abc.abstractmethod
  def schema(self) -> tuple[tfrecords.Feature, ...]:
    """Returns the features of a record."""

  @abc.abstractmethod
  def features(self, split: str) -> Iterator[dict[str, Any]]:
    """Yields the features of each record.

    They are a list for a token sequence, which may be shorter than S, a list of
    lists for several sequences, otherwise a number. `input_mask` and
    `example_id` are added.
    """

  def record_settings(self, split: str) -> dict[str, Any]:
    """Returns what the records depend on besides the examples, as JSON values.

    It is also in the records and in the run.json of a run.
    """
    return {}

  def examples(self, split: str) -> Sequence[Any]:
    """Returns the examples of a split, up to the maximum; reads them once."""
    if split not in self._examples:
      examples, kind = self.read(split), "train" if split == "train" else "eval"
      most = getattr(self.options, f"max_{kind}_examples")
      if 0 < most < len(examples):
        examples = [examples[i * len(examples) // most] for i in range(most)]
      tested = examples if split in self.test_splits else ()
      if 0 < (known := sum(map(self.has_label, tested))) < len(examples):
        self.options.note(
          f"warning: {split} is predicted, but not scored: only {known:,} of "
          f"its {len(examples):,} examples have a label"
        )
      self._examples[split] = examples
    return self._examples[split]

  def num_train_examples(self) -> int:
    """Returns the number of examples in an epoch; windows for SQuAD."""
    return len(self.examples("train"))

  def has_label(self, example: Any) -> bool:
    """Returns whether an example has what its prediction is compared with."""
    return False

  def is_labeled(self, split: str) -> bool:
    """Returns whether a split that exists can be scored."""
    examples = () if split in self.eval_splits else self.examples(split)
    return all(map(self.has_label, examples))

  def has_split(self, split: str) -> bool:
    """Returns whether there is data of a split."""
    try:
      self.sources(split)
    except FileNotFoundError:
      return False
    return True

  def check(self, splits: Sequence[str]) -> None:
    """Reads splits, before any of their records are built."""
    for split in splits:
      self.examples(split)

  def with_records(
    self,
    splits: Sequence[str],
    config: modeling.AlbertConfig,
    seed: int = 12345,
  ) -> Any:
    """Reads splits, builds their records, and returns the task on them."""
    # Checked before the records of a large task are built.
    config.check_fits(
      self.options.tokenizer.vocab_size, self.max_seq_length, self.has_pairs
    )
    self.check(splits)
    records = {
      split: finetuning_records.build_records(self, split) for split in splits
    }
    return self.on_records(records, config, seed)

  def on_records(
    self,
    records: Mapping[str, str],
    config: modeling.AlbertConfig,
    seed: int = 12345,
  ) -> Any:
    """Returns the same task on the records of each split.

    `records` are folders that `build_records` wrote with one tokenizer and
    length, which fit the model, see `config.check_fits`. `config` is that of
    the encoder, and `seed` that of the order of training examples.
    """
    task = copy.copy(self)
    task.records, task._seed = dict(records), seed
    dropout = self.recipe.albert_dropout
    task.config = dataclasses.replace(
      config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    # Of training if it is there: test data has no --dev_share.
    task._manifest = tfrecords.read_manifest(next(iter(records.values())))
    # With buckets, throughput counts tokens without padding; otherwise with it.
    task.tokens_per_example = self.max_seq_length * self.sequences_per_example
    if self.options.length_bucketing and "train" in records:
      train = tfrecords.read_manifest(records["train"]).splits["train"]
      tokens: Any = train.statistics["tokens"]
      task.tokens_per_example = max(round(tokens / train.records), 1)
    task.flops_per_example = task._flops(task.config)
    return task

  @property
  def eval_split(self) -> str:
    """The split that is evaluated during training."""
    return self.eval_splits[0]

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
    place = {"start_example": start_example, "context": context}
    return self._read("train", batch_size, seed=self._seed, **place)

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Returns `dataset` for `eval_split`."""
    return self.dataset(self.eval_split, batch_size)

  def dataset(self, split: str, batch_size: int) -> tf.data.Dataset:
    """Returns each example of a split once; the last batch is padded."""
    return self._read(split, batch_size, training=False)

  def _read(self, split: str, batch_size: int, **options) -> tf.data.Dataset:
    arguments = self.records[split], split, batch_size
    if not self.options.length_bucketing:
      return reader.read_dataset(*arguments, **options)
    lengths = tokenization.bucket_lengths(self.max_seq_length)
    options["window_updates"] = self.window_updates
    return bucketed_reader.read_bucketed_dataset(*arguments, lengths, **options)

  @abc.abstractmethod
  def build_model(self) -> tf.keras.Model:
    """Returns a model with initial weights."""

  def model_options(self) -> dict[str, Any]:
    """Returns the arguments that all models of `build_model` share."""
    recomputes = self.options.recompute_activations
    return {"recompute_activations": recomputes, "name": "model"}

  def begin(self, model: tf.keras.Model) -> None:
    """Leaves the random weights of a run that begins without a checkpoint."""
    del model

  def warm_start(
    self, model: tf.keras.Model, path: str
  ) -> checkpoints.LoadReport:
    """Reads the weights of a checkpoint, with its head if it fits `head`."""
    return checkpoints.warm_start(model, path, self.head)

  def outputs(
    self,
    model: tf.keras.Model,
    batch: Batch,
    training: bool = False,
    dropout_seed: Any = None,
  ) -> Any:
    """Returns the outputs of the model."""
    with modeling.without_padding(self.options.length_bucketing):
      return model(
        batch,
        training=training,
        dropout_seed=dropout_seed,
        num_layers=self.num_layers,
        **self.call_options,
      )

  @abc.abstractmethod
  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Batch, training: bool
  ) -> Losses:
    """Returns the sum <float32>[] of each objective, and the metrics."""

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """Returns the number of examples, <float32>[]."""
    return {self.name: tf.reduce_sum(batch["example_weight"])}

  @abc.abstractmethod
  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns the predictions for the rows of a batch."""

  def forward(
    self, model: tf.keras.Model, batch: Batch, training: bool, dropout_seed: Any
  ) -> Losses:
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
    return self.predictions(model, self.outputs(model, batch), batch)

  @abc.abstractmethod
  def answers(self, split: str, predictions: Predictions) -> Any:
    """Returns the predictions of a split as files have them."""

  @abc.abstractmethod
  def score_answers(self, split: str, answers: Any) -> dict[str, float]:
    """Returns the metrics of a split."""

  @abc.abstractmethod
  def write_answers(self, split: str, answers: Any, folder: str) -> list[str]:
    """Writes the files of a split and returns their paths."""

  def decided(self, split: str, answers: Any) -> Optional[Decided]:
    """Returns the classes of a scored split; None if nothing is classified."""
    return None

  def majority(self, split: str) -> dict[str, float]:
    """Returns the metrics of the most frequent answer; {} if meaningless."""
    return {}

  def score(self, predictions: Predictions) -> dict[str, float]:
    """Returns the official metrics of `eval_split`.

    Deviation: during training, the original averages loss and accuracy over
    batches; here the metric is computed from all predictions.
    """
    split = self.eval_split
    return self.score_answers(split, self.answers(split, predictions))

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

  def model_settings(self) -> dict[str, Any]:
    """Returns what fine-tuning changes in the model, for the run.json."""
    return {
      "albert_dropout": self.recipe.albert_dropout,
      "classifier_dropout": self.recipe.classifier_dropout,
      "recompute_activations": self.options.recompute_activations,
    }


class LabelTask(FinetuningTask):
  """Predicts one of several labels, or a number, for each example.

  Examples have a `guid`, and a `label`, the text of one of `labels` or of a
  number; None if it is not known. The model returns `logits` <float32>[B, L],
  or [B, 1] for a number, which has no labels (None).
  """

  call_options = {"logits_only": True}

  @abc.abstractmethod
  def sequences(self, split: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yields `input_ids` and `segment_ids` of each example, see `features`."""

  @abc.abstractmethod
  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    """Returns the metrics of predicted classes or numbers [N]."""

  def features(self, split: str) -> Iterator[dict[str, Any]]:
    for label, (ids, segments) in zip(self.gold(split), self.sequences(split)):
      yield {"label_ids": label, "input_ids": ids, "segment_ids": segments}

  def ids(self, split: str) -> list[str]:
    """Returns the ids of the examples in files of predictions."""
    return [example.guid for example in self.examples(split)]

  def gold(self, split: str) -> np.ndarray:
    """Returns classes <int>[N], or numbers <float>[N]; 0 if unknown."""
    labels = (example.label for example in self.examples(split))
    if self.labels is None:
      # In the precision of the records.
      return np.fromiter((float(label or 0) for label in labels), np.float32)
    class_of = {None: 0, **{label: i for i, label in enumerate(self.labels)}}
    return np.fromiter((class_of[label] for label in labels), np.int64)

  def row_weights(self, batch: Batch) -> tf.Tensor:
    """Returns the weight <float32>[B] of each example in the loss."""
    return batch["example_weight"]

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    return {self.name: tf.reduce_sum(self.row_weights(batch))}

  def has_label(self, example: Any) -> bool:
    return example.label is not None

  def check(self, splits: Sequence[str]) -> None:
    super().check(splits)
    for split in splits:
      if split != "train":
        probabilities.check_ids(split, self.ids(split))

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Batch, training: bool
  ) -> Losses:
    """Returns the summed cross entropy in nats, or the squared error.

    The error is in standard deviations of the targets, if the head has them.
    In training, the accuracy is the metric of labels.
    """
    logits, metrics = outputs["logits"], {}
    labels = batch["label_ids"]
    if self.labels is None:
      std = model.classifier.target_std
      losses = tf.square((logits[:, 0] - labels) / std)
    else:
      losses = modeling.cross_entropy(logits, labels)
      if training:
        accuracy = accuracy_sums(logits, labels, batch["example_weight"])
        metrics[f"{self.name}_accuracy"] = accuracy
    return {self.name: tf.reduce_sum(losses * self.row_weights(batch))}, metrics

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Batch
  ) -> dict[str, tf.Tensor]:
    """Returns `values`: probabilities <float32>[B, L], or numbers [B]."""
    logits = outputs["logits"]
    values = logits[:, 0] if self.labels is None else tf.nn.softmax(logits)
    return {"example_id": batch["example_id"], "values": values}

  def answers(
    self, split: str, predictions: Predictions
  ) -> probabilities.ProbabilityTable:
    return probabilities.ProbabilityTable(
      tuple(self.ids(split)), tuple(self.labels or ()), predictions["values"]
    )

  def score_answers(self, split: str, answers: Any) -> dict[str, float]:
    labels = tuple(self.labels or ())
    if answers.labels != labels or list(answers.ids) != self.ids(split):
      raise ValueError(
        f"the predictions of {split} do not belong to the {split} data of "
        f"--task={self.name}, or have other labels: give the --task and the "
        "data that were predicted."
      )
    return self.metrics(split, self.decisions(answers.values))

  def decided(self, split: str, answers: Any) -> Optional[Decided]:
    if self.labels is None:
      return None
    return self.labels, self.gold(split), self.decisions(answers.values)

  def decisions(self, values: np.ndarray) -> np.ndarray:
    """Returns what `metrics` takes, given the values of a table."""
    return values if self.labels is None else np.argmax(values, axis=1)

  def write_answers(self, split: str, answers: Any, folder: str) -> list[str]:
    """Writes `SPLIT.probabilities.tsv`; returns its path in a list."""
    path = os.path.join(folder, split + probabilities.PROBABILITIES_SUFFIX)
    probabilities.write_probabilities(path, answers)
    return [path]

  def majority(self, split: str) -> dict[str, float]:
    """Scores the most frequent class of the training data, or its mean."""
    train = self.gold("train")
    answer = train.mean()
    if self.labels is not None:
      answer = np.bincount(train).argmax()
    return self.metrics(split, np.full(len(self.examples(split)), answer))


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
