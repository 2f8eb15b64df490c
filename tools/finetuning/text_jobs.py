"""The jobs of GLUE and of the user's own texts."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from official_albert import checkpoints
from tasks import classification
from tasks.classification import glue as glue_lib
from tasks.common import TextExample
from tools import finetuning
from tools.finetuning import jobs


def name_task(checkpoint: checkpoints.PortableCheckpoint, task: str) -> None:
  """Sets the task and the labels of a classifier from another format.

  Args:
    checkpoint: a checkpoint with a head for classes or a number.
    task: one of `registry.TEXT_TASKS`.

  Raises:
    ValueError: the checkpoint has another head, task or labels.
  """
  source, head = checkpoint.source, finetuning.registry.TASKS[task].head
  if checkpoint.head != head:
    raise ValueError(
      f"{source} has the head {checkpoint.head}, but --task={task} needs "
      f"{head}: give another task, or leave --task out."
    )
  if checkpoint.multi_label:
    raise ValueError(
      f"{source} gives several classes or numbers to one text (problem_type in "
      f"its config.json), but --task={task} gives one: leave --task out, and "
      "use the encoder."
    )
  if checkpoint.task not in ("", task):
    raise ValueError(
      f"{source} is of --task={checkpoint.task}, not of {task}: leave --task "
      "out."
    )
  checkpoint.task = task
  if head == "regression":
    checkpoint.labels = ()
    return
  numbers = range(checkpoint.classes)
  if task not in glue_lib.GLUE_TASKS:
    unnamed = tuple(f"LABEL_{i}" for i in numbers)
    checkpoint.labels = checkpoint.labels or unnamed
    return
  expected = glue_lib.GLUE_TASKS[task].labels
  # Unnamed classes are unambiguous only where the task's labels are numbers.
  if (checkpoint.labels or tuple(map(str, numbers))) != expected:
    raise ValueError(
      f"{source} has the classes {', '.join(checkpoint.labels) or 'LABEL_0...'}"
      f", but --task={task} has {', '.join(expected)}, in this order: give "
      "--task=text_classification or --task=text_pair_classification, which "
      "keep the model's own."
    )
  checkpoint.labels = expected


class _TextJob(jobs.Job):
  """Classes or numbers for texts."""

  def _records(self, split: str) -> str:
    return classification.build_records(
      self.options.cache_dir,
      self.name,
      split,
      self.examples(split),
      self.sources(split),
      self.options.tokenizer,
      self.max_seq_length,
      self.labels,
      self.options.note,
      number=len(self.examples(split)),
      columns=dict(self.options.columns),
    )

  def _task(
    self, held_out: Sequence[str], *arguments: Any
  ) -> classification.ClassificationTask:
    return classification.ClassificationTask(
      *arguments,
      labels=self.labels,
      evaluate=self._evaluate,
      guids={split: self.ids(split) for split in held_out},
    )

  def ids(self, split: str) -> list[str]:
    return [example.guid for example in self.examples(split)]

  def gold(self, split: str) -> np.ndarray:
    labels = [example.label for example in self.examples(split)]
    if self.labels is None:
      return np.array(labels, np.float64)
    class_of = {label: i for i, label in enumerate(self.labels)}
    return np.array([class_of[label] for label in labels], np.int64)

  def evaluate(self, split: str, predictions: np.ndarray) -> dict[str, float]:
    return self._evaluate(predictions, self.gold(split))


class GlueJob(_TextJob):
  """One of the nine tasks."""

  def __init__(self, name: str, options: jobs.Options):
    super().__init__(name, glue_lib.GLUE_RECIPES[name], options)
    self.glue_task = task = glue_lib.get_glue_task(name)
    self.labels = task.labels
    self.best_metric = task.main_metric
    self.eval_splits, self.test_splits = task.dev_splits, task.test_splits

  def sources(self, split: str) -> list[str]:
    data_dir = self.options.data_dir
    return [str(glue_lib.find_file(data_dir, self.glue_task, split))]

  def _read(self, split: str) -> list[TextExample]:
    read = glue_lib.read_split(self.options.data_dir, self.glue_task, split)
    if read.skipped_lines:
      self.options.note(
        f"{split} of {self.name}: skipped {len(read.skipped_lines)} malformed "
        f"rows, the first in line {read.skipped_lines[0]}"
      )
    return read.examples

  def _evaluate(
    self, predictions: np.ndarray, labels: np.ndarray
  ) -> dict[str, float]:
    return glue_lib.evaluate_glue(self.glue_task, predictions, labels)


class OwnJob(_TextJob):
  """The user's own TSV, CSV or JSON lines.

  Without `Options.labels`, the training data is read to find the classes.
  """

  def __init__(self, name: str, options: jobs.Options):
    super().__init__(name, classification.RECIPES[name], options)
    self._is_regression = name.endswith("regression")
    self.labels = options.labels
    if self._is_regression:
      self.best_metric = classification.MAIN_REGRESSION
    else:
      self.best_metric = classification.MAIN_CLASSIFICATION
      if self.labels is None:
        self.labels = classification.find_labels(self.examples("train"))

  def sources(self, split: str) -> list[str]:
    if not self.options.files.get(split):
      raise FileNotFoundError(f"--task={self.name} needs --{split}_file.")
    return [self.options.files[split]]

  def _read(self, split: str) -> list[TextExample]:
    names = self.options.columns
    return classification.read_examples(
      self.sources(split)[0],
      classification.Columns(
        text=names["text"],
        text_b=names["text_b"] if "pair" in self.name else None,
        label=None if split in self.test_splits else names["label"],
        guid=names["id"] or None,
      ),
      None if split == "train" else self.labels,
      regression=self._is_regression,
    )

  def _evaluate(
    self, predictions: np.ndarray, labels: np.ndarray
  ) -> dict[str, float]:
    if self.labels is None:
      return classification.of_numbers(predictions, labels)
    return classification.of_classes(predictions, labels, len(self.labels))
