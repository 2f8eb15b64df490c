"""Several labels of a text: each is predicted on its own (multi-label).

The probability of a label is the sigmoid of its logit. A text has the labels
whose probability reaches their thresholds, which are chosen on the dev data;
run_finetuning writes them to eval_results.json, and exports hold them.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, files, modeling, runs, tfrecords
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.classification import examples as examples_lib
from official_albert.tasks.classification import task as task_lib
from official_albert.tasks.common import finetuning_task

_ARRAY = re.compile(r"\[[^][]*\]|\{[^{}]*\}")  # Also of SQL: {a,b}.
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")


def read_labels(
  record: common.Record, columns: Sequence[str], separator: str
) -> tuple[str, ...]:
  """Returns the labels of a row.

  Several columns, whose names are the labels, have 0 or 1. One column has a
  list (JSON lines), or labels that the separator joins; it may be empty.
  """
  if len(columns) > 1:
    cells = {x: common.plain_cell(record, x).strip().lower() for x in columns}
    for column, cell in cells.items():
      if cell not in _YES + _NO:
        raise common.InvalidRow(
          record.where,
          f": {column!r} is not 0 or 1",
          f", but {files.quote(cell)}: --label_column names several columns.",
        )
    return tuple(column for column, cell in cells.items() if cell in _YES)
  (column,) = columns
  value = record.cells[column]
  whole = value.strip() if isinstance(value, str) else ""
  is_array = separator in whole and _ARRAY.fullmatch(whole)
  if is_array or labels_lib.are_several(whole, ()):
    raise common.InvalidRow(
      record.where,
      f": {column!r} is a list in one text",
      f", {files.quote(value)}: write a real list, or join by {separator!r}.",
    )
  if value is None or isinstance(value, str):
    text = common.text_cell(record, column, may_be_empty=True)
    value = text.split(separator) if text.strip() else []
  part = f"{column}[]"  # For messages.
  names = tuple(
    common.plain_cell(record._replace(cells={part: x}), part).strip()
    for x in (value if isinstance(value, list) else [value])
  )
  if len({*names}) < len(names):
    raise common.InvalidRow(
      record.where, f": {column!r} has a label twice", "."
    )
  return names


def scores(
  probabilities: np.ndarray, gold: np.ndarray, thresholds: np.ndarray
) -> dict[str, float]:
  """Returns metrics of probabilities and labels, both [N, L].

  `mean_average_precision` needs no thresholds, and leaves out labels that do
  not occur. F1 is that of all decisions (micro), or the mean of the labels
  (macro); 0 / 0 is 0.
  """
  import sklearn.metrics  # It takes long.

  occurs = gold.sum(axis=0) > 0
  precision = occurs.any() and sklearn.metrics.average_precision_score(
    gold[:, occurs], probabilities[:, occurs]
  )
  decided = probabilities >= thresholds
  values = {"mean_average_precision": float(precision)}
  for average in ("micro", "macro"):
    value = sklearn.metrics.f1_score(
      gold, decided, average=average, zero_division=0
    )
    values[f"{average}_f1"] = float(value)
  return values


class MultiLabelTask(task_lib.OwnTask):
  """The user's own table, with several labels of a text, or none."""

  def __init__(self, name: str, options: common.TaskOptions):
    if not options.label_separator:
      raise ValueError(
        "--label_separator is empty: give what joins the labels."
      )
    super().__init__(name, options)
    self.best_metric = "mean_average_precision"
    given = [options.thresholds.get(label, 0.5) for label in self.labels or ()]
    self._thresholds = np.array(given, np.float32)

  @property
  def head(self) -> checkpoints.Head:  # type: ignore[override]
    return checkpoints.Head("multi_label", tuple(self.labels or ()))

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    shape = (len(self.labels or ()),)
    label = tfrecords.Feature("label_ids", "float32", shape)
    return tfrecords.finetuning_schema([self.max_seq_length], label)

  def record_settings(self, split: str) -> dict[str, Any]:
    separator = {"label_separator": self.options.label_separator}
    return {**super().record_settings(split), **separator}

  @property
  def label_columns(self) -> list[str]:
    return self.options.label_column.split(",")

  def names(self, examples: Sequence[common.TextExample]) -> set[Any]:
    return {*itertools.chain(*(e.label or () for e in examples))}

  def _find_labels(self, path: str) -> tuple[str, ...]:
    columns = tuple(self.label_columns)
    if len(columns) > 1:
      return columns
    names = self.names(self.examples("train"))
    but = f"--label_separator is {self.options.label_separator!r}"
    return examples_lib.find_labels(names, path, but)

  def read_label(self, split: str, record: common.Record) -> examples_lib.Label:
    separator = self.options.label_separator
    names = read_labels(record, self.label_columns, separator)
    for name in names if split != "train" else ():
      common.check_label(record.where, name, self.labels)
    return names

  def is_labeled(self, split: str) -> bool:
    # A column without any label has only placeholders.
    return super().is_labeled(split) and bool(self.names(self.examples(split)))

  def check(self, splits: Sequence[str]) -> None:
    """Also refuses data without labels, and notes which labels it lacks."""
    super().check(splits)
    for split in (x for x in splits if x not in self.test_splits):
      gold = self.gold(split)
      occurs = gold.sum(axis=0) > 0
      lacking = [*itertools.compress(self.labels or (), ~occurs)]
      if not occurs.any():
        raise ValueError(
          f"{self.sources(split)[0]}: no row of {split} has a label."
        )
      if lacking:
        self.options.note(f"no row of {split} has {files.quote(*lacking)}")
      if split == "train" and gold.all():
        raise ValueError(
          f"{self.sources(split)[0]}: every row of {split} has all labels. If "
          "its lists are 0 or 1 for each label, write the names instead."
        )
      is_joined = split == "train" and len(self.label_columns) == 1
      if is_joined and gold.sum(axis=1).max() < 2:
        self.options.note(
          "warning: no training row has several labels: is --label_separator "
          f"{self.options.label_separator!r} what joins them?"
        )

  def score(self, predictions: finetuning_task.Predictions) -> dict[str, float]:
    """Returns the metrics without thresholds, which may be hundreds."""
    values = super().score(predictions).items()
    return {k: v for k, v in values if not k.endswith(runs.THRESHOLD)}

  def gold(self, split: str) -> np.ndarray:
    """Returns 1.0 for each label of each example, else 0.0, <float32>[N, L]."""
    labels, examples = self.labels or (), self.examples(split)
    rows = ([x in (e.label or ()) for x in labels] for e in examples)
    row = np.dtype((np.float32, len(labels)))
    return np.fromiter(rows, row, len(examples))

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    model = super().build_model()
    model.classifier.enlarge_weights()
    return model

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Any, training: bool
  ) -> finetuning_task.Losses:
    """Returns the summed cross entropy in nats, a mean over the labels."""
    weights = 1.0 if self.class_weights is None else self.class_weights
    entropies = tf.nn.weighted_cross_entropy_with_logits(
      batch["label_ids"], outputs["logits"], weights
    )
    losses = tf.reduce_mean(entropies, axis=-1)
    return {self.name: tf.reduce_sum(losses * batch["example_weight"])}, {}

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Any
  ) -> dict[str, tf.Tensor]:
    """Returns `values`, the probability <float32>[B, L] of each label."""
    values = tf.sigmoid(outputs["logits"])
    return {"example_id": batch["example_id"], "values": values}

  def decisions(self, values: np.ndarray) -> np.ndarray:
    return values

  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    """Returns the metrics of probabilities, and chooses the thresholds on dev.

    On dev, these are among the values.
    """
    gold, thresholds = self.gold(split), {}
    if split == self.eval_split:
      self._thresholds = labels_lib.best_thresholds(predicted, gold)
      for label, value in zip(self.labels or (), self._thresholds):
        thresholds[f"{label}{runs.THRESHOLD}"] = float(value)
    return {**scores(predicted, gold, self._thresholds), **thresholds}

  def balanced_weights(self) -> np.ndarray:
    """Returns how many texts lack a label for each that has it."""
    gold = self.gold("train")
    counts = gold.sum(axis=0)
    return np.maximum(len(gold) - counts, 1) / np.maximum(counts, 1)

  def row_weights(self, batch: Any) -> tf.Tensor:
    return batch["example_weight"]

  def decided(self, split: str, answers: Any) -> finetuning_task.Decided:
    decided = answers.values >= self._thresholds
    return self.labels or (), self.gold(split), decided

  def write_answers(self, split: str, answers: Any, folder: str) -> list[str]:
    answers = dataclasses.replace(answers, thresholds=self._thresholds)
    return super().write_answers(split, answers, folder)

  def majority(self, split: str) -> dict[str, float]:
    """Scores the share of each label in the training data."""
    shares = self.gold("train").mean(axis=0)
    gold, half = self.gold(split), np.full(len(shares), 0.5)
    return scores(np.tile(shares, (len(gold), 1)), gold, half)
