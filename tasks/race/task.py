"""RACE as a task: which of four options is correct."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from official_albert import checkpoints, tfrecords
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_task
from official_albert.tasks.race import examples as examples_lib
from official_albert.tasks.race.model import AlbertForMultipleChoice


class RaceTask(finetuning_task.LabelTask):
  """RACE, from its folder; `race_v2` is for v2 models."""

  best_metric = "accuracy"
  head = checkpoints.Head("multiple_choice")
  labels = tuple(examples_lib.LETTERS)
  sequences_per_example = len(examples_lib.LETTERS)

  def __init__(self, name: str, options: common.TaskOptions):
    super().__init__("race", options, examples_lib.RECIPES[name])

  def sources(self, split: str) -> list[str]:
    self.examples(split)  # Raises an error if there are none.
    return []

  def read(self, split: str) -> list[examples_lib.RaceExample]:
    needs_labels = split in ("train", *self.eval_splits)
    return examples_lib.read_examples(
      self.options.data_dir, split, needs_labels
    )

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    shape = self.sequences_per_example, self.max_seq_length
    label = tfrecords.Feature("label_ids", "int64", ())
    return tfrecords.finetuning_schema(shape, label)

  def record_settings(self, split: str) -> dict[str, Any]:
    return {"max_qa_length": self.recipe.max_qa_length}

  def sequences(self, split: str) -> Iterator[tuple[list[Any], list[Any]]]:
    options = examples_lib.make_all_inputs(
      self.examples(split),
      self.options.tokenizer,
      self.max_seq_length,
      self.recipe.max_qa_length,
    )
    for rows in options:
      yield [ids for ids, _ in rows], [segments for _, segments in rows]

  def build_model(self) -> AlbertForMultipleChoice:
    return AlbertForMultipleChoice(
      self.config, self.recipe.classifier_dropout, **self.model_options()
    )

  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    """Returns the accuracy on all questions and on each level that occurs.

    RACE's paper (arXiv 1704.04683) reports all three, google-research/albert
    only `eval_accuracy`.
    """
    right = predicted == self.gold(split)
    levels = np.array([example.level for example in self.examples(split)])
    chosen = {f"accuracy_{x}": levels == x for x in examples_lib.LEVELS}
    return {
      "accuracy": float(right.mean()),
      **{n: float(right[x].mean()) for n, x in chosen.items() if x.any()},
    }
