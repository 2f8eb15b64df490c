"""Classification and regression of texts: tasks of the training loop.

Reference: google-research/albert classifier_utils.py (create_model,
model_fn_builder): cross entropy, or for STS-B the squared error.
"""

from __future__ import annotations

import functools
import warnings
from typing import (
  Any,
  Callable,
  Iterable,
  Iterator,
  Mapping,
  Optional,
  Sequence,
)

import numpy as np
import tensorflow as tf

from official_albert import (
  checkpoints,
  files,
  modeling,
  tfrecords,
  tokenization,
)
from official_albert.tasks import common
from official_albert.tasks.classification import examples as examples_lib
from official_albert.tasks.classification import glue
from official_albert.tasks.common import finetuning_task, own_files


def scores(
  names: Iterable[str], predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
  """Returns the metrics of these names for a whole data set.

  F1, Matthews' coefficient and the correlations are no means over examples.
  Where a quotient is 0 / 0, as for the constants that a model predicts early in
  training, the value is 0.0.

  Args:
    names: `accuracy`, `f1` (of class 1 of the classes 0 and 1), `macro_f1` (the
      mean of the classes that occur) and `matthews` of classes; `pearson`,
      `spearman` and `mean_squared_error` of numbers.
    predictions: predicted classes <int>[N], or numbers <float>[N].
    labels: the correct ones.
  """
  import scipy.stats  # These take long.
  import sklearn.metrics

  def correlation(rank: Callable[[Any], Any]) -> float:
    arrays = rank(predictions), rank(labels)
    if any(np.ptp(values) == 0 for values in arrays):
      return 0.0  # SciPy's is nan.
    return scipy.stats.pearsonr(*arrays).statistic

  def of_classes(name: str, **options: Any) -> float:
    return getattr(sklearn.metrics, name)(labels, predictions, **options)

  metrics: Mapping[str, Callable[[], Any]] = {
    "accuracy": lambda: np.mean(predictions == labels),
    "f1": lambda: of_classes("f1_score", zero_division=0.0),
    "macro_f1": lambda: of_classes(
      "f1_score", average="macro", zero_division=0.0
    ),
    "matthews": lambda: of_classes("matthews_corrcoef"),
    "pearson": lambda: correlation(np.float64),
    "spearman": lambda: correlation(scipy.stats.rankdata),
    "mean_squared_error": lambda: np.mean(
      (np.float64(predictions) - labels) ** 2
    ),
  }
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # About a single class.
    return {name: float(metrics[name]()) for name in names}


class TextTask(finetuning_task.LabelTask):
  """Trains one head on the pooled output, for classes or for a number.

  Its examples are of `common.TextExample`.
  """

  # Rate, batch and dropouts are the most frequent ones for sentences and pairs
  # in arXiv 1909.11942, Table 14. 128 tokens are enough for most classified
  # texts, and need a quarter of the attention of 512.
  recipe = common.Recipe(
    2e-5, 32, 0, 0, max_seq_length=128, num_train_epochs=3.0
  )

  @property
  def head(self) -> checkpoints.Head:  # type: ignore[override]
    """Classes of these labels, or a number."""
    kind = "regression" if self.labels is None else "classification"
    return checkpoints.Head(kind, tuple(self.labels or ()))

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    label = tfrecords.Feature(
      "label_ids", "float32" if self.labels is None else "int64", ()
    )
    return tfrecords.finetuning_schema([self.max_seq_length], label)

  def record_settings(self, split: str) -> dict[str, Any]:
    return {
      "labels": None if self.labels is None else list(self.labels),
      "columns": self.options.columns,
    }

  def sequences(self, split: str) -> Iterator[tuple[list[int], list[int]]]:
    """Yields `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    A sequence that is too long loses tokens at the end of the longer text.
    """
    tokenizer = self.options.tokenizer
    for example in self.examples(split):
      second = example.text_b
      yield tokenization.pack_pair(
        tokenizer.encode(example.text_a),
        None if second is None else tokenizer.encode(second),
        self.max_seq_length,
        tokenizer.cls_id,
        tokenizer.sep_id,
      )

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    return modeling.AlbertForSequenceClassification(
      self.config,
      len(self.labels or "1"),
      self.recipe.classifier_dropout,
      **self.model_options(),
    )

  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    names = ["accuracy", "macro_f1"]
    if self.labels is None:
      names = ["pearson", "spearman", "mean_squared_error"]
    elif len(self.labels) == 2:
      names.append("matthews")
    return scores(names, predicted, self.gold(split))


class GlueTask(TextTask):
  """One of the nine tasks of GLUE."""

  def __init__(self, name: str, options: common.TaskOptions):
    self._glue_task = task = glue.GLUE_TASKS[name]
    super().__init__(name, options, task.recipe)
    self.labels = task.labels
    self.has_pairs = len(task.texts) > 1
    self.best_metric = task.metrics[0]
    self.eval_splits, self.test_splits = task.dev_splits, task.test_splits

  def sources(self, split: str) -> list[str]:
    data_dir = self.options.data_dir
    return [glue.find_file(data_dir, self._glue_task, split)]

  def read(self, split: str) -> list[common.TextExample]:
    return glue.read_split(
      self.options.data_dir, self._glue_task, split, self.options.note
    )

  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    """Returns the official metrics in the official order, as fractions."""
    names = self._glue_task.metrics
    return scores(names, predicted, self.gold(split))

  def write_answers(self, split: str, answers: Any, folder: str) -> list[str]:
    """Also writes the official file of a test split, of all its rows."""
    paths = super().write_answers(split, answers, folder)
    if split in self.test_splits and not self.options.max_eval_examples:
      paths.append(
        glue.write_predictions(folder, self._glue_task, split, answers)
      )
    return paths


class OwnTask(own_files.OwnFiles, TextTask):
  """The user's own tables.

  Without `TaskOptions.labels`, the training data is read to find the classes.
  """

  def __init__(self, name: str, options: common.TaskOptions):
    super().__init__(name, options)
    self._is_regression = name.endswith("regression")
    self.has_pairs = "pair" in name
    self.best_metric = "pearson" if self._is_regression else "accuracy"
    self.labels = options.labels
    if self.labels is None and not self._is_regression:
      self.labels = self._find_labels(self.sources("train")[0])

  def _find_labels(self, path: str) -> tuple[str, ...]:
    return examples_lib.find_labels(self.names(self.examples("train")), path)

  @functools.cached_property
  def class_weights(self) -> Optional[np.ndarray]:
    """The weights <float32>[L] of the classes in the loss, if given."""
    text = self.options.class_weights
    if text == "balanced":
      return self.balanced_weights().astype(np.float32)
    return examples_lib.read_weights(text, self.labels or ()) if text else None

  def balanced_weights(self) -> np.ndarray:
    """Returns weights with which each class has the same sum."""
    counts = np.bincount(self.gold("train"), minlength=len(self.labels or ()))
    return counts.sum() / (len(counts) * np.maximum(counts, 1))

  def row_weights(self, batch: Any) -> tf.Tensor:
    """The mean loss is that of torch's CrossEntropyLoss: a weighted mean."""
    weights = super().row_weights(batch)
    if self.class_weights is not None:
      weights *= tf.gather(self.class_weights, batch["label_ids"])
    return weights

  def model_settings(self) -> dict[str, Any]:
    settings = super().model_settings()
    if self.class_weights is not None:
      settings["class_weights"] = [float(x) for x in self.class_weights]
    return settings

  def names(self, examples: Sequence[common.TextExample]) -> set[Any]:
    if self._is_regression:
      return set()
    return {e.label for e in examples if e.label is not None}

  def read_file(
    self, split: str, path: str, invalid: common.InvalidRows
  ) -> Sequence[common.TextExample]:
    columns, is_test = self.options.columns, split in self.test_splits
    del columns["label"]
    if not self.has_pairs:
      del columns["text_b"]
    labels = {f"label {i}": name for i, name in enumerate(self.label_columns)}
    optional = ("id", *labels) if is_test else ("id",)
    found, absent = own_files.find_columns(path, columns | labels, optional)
    self.finds_ids |= "id" in found
    has_labels = {*labels} <= {*found}
    if {*labels} & {*found} and not has_labels:
      lacking = [name for name in labels.values() if name in absent]
      raise ValueError(
        f"{path} has some columns of labels, but not {files.quote(*lacking)}: "
        "give all of them, or none to predict without metrics."
      )
    label_of = functools.partial(self.read_label, split) if has_labels else None
    examples: Sequence[common.TextExample] = own_files.read_examples(
      path, (found, absent), invalid, label_of, is_test
    )
    if has_labels and examples and examples[0].label is None:
      self.options.note(
        f"{path}: no {self.options.label_column} is one of the training data, "
        "so these rows are predicted, but not scored"
      )
    return examples

  def read_label(self, split: str, record: common.Record) -> examples_lib.Label:
    """Returns the label of a row."""
    return examples_lib.read_label(
      record,
      self.options.label_column,
      None if split == "train" else self.labels,
      self._is_regression,
    )

  @property
  def label_columns(self) -> list[str]:
    """The columns that make the label."""
    return [self.options.label_column]

  def check(self, splits: Sequence[str]) -> None:
    super().check(splits)
    if "train" in splits and self.class_weights is not None:
      weights = zip(self.labels or (), self.class_weights)
      shown = ", ".join(f"{label} {weight:.4g}" for label, weight in weights)
      self.options.note(f"{self.name}: weights in the loss: {shown}")
    if self._is_regression and "train" in splits:
      targets = self.gold("train")
      if np.ptp(targets) == 0:
        raise ValueError(
          f"{self.sources('train')[0]}: all {len(targets):,} training labels "
          f"are {targets[0]:g}, but a regression needs different ones."
        )

  def build_model(self) -> modeling.AlbertForSequenceClassification:
    """Standardizes the numbers of a regression; the original does not."""
    model = super().build_model()
    if self._is_regression and "train" in self.records:
      model.classifier.set_targets(self.gold("train"))
    return model
