"""RACE as a task: which of four options is correct."""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np

from official_albert import checkpoints, tfrecords
from official_albert.tasks.common import TaskOptions, finetuning_task
from official_albert.tasks.race.examples import (
  LETTERS,
  RECIPES,
  RaceExample,
  accuracy_by_level,
  make_all_inputs,
  read_examples,
)
from official_albert.tasks.race.model import AlbertForMultipleChoice


class RaceTask(finetuning_task.LabelTask):
  """RACE, from its folder; `race_v2` is for v2 models."""

  best_metric = "accuracy"
  head = checkpoints.Head("multiple_choice")
  labels = tuple(LETTERS)
  sequences_per_example = len(LETTERS)

  def __init__(self, name: str, options: TaskOptions):
    super().__init__("race", options, RECIPES[name])

  def sources(self, split: str) -> list[str]:
    self.examples(split)  # Raises an error if there are none.
    return []

  def read(self, split: str) -> Sequence[RaceExample]:
    return read_examples(
      self.options.data_dir,
      split,
      needs_labels=split in ("train", *self.eval_splits),
    )

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    return tfrecords.multiple_choice_schema(self.max_seq_length, len(LETTERS))

  def record_settings(self, split: str) -> dict[str, Any]:
    return {"max_qa_length": self.recipe.max_qa_length}

  def features(self, split: str) -> Iterator[dict[str, Any]]:
    examples = self.examples(split)
    inputs = make_all_inputs(
      examples,
      self.options.tokenizer,
      self.max_seq_length,
      self.recipe.max_qa_length,
    )
    for number, (example, options) in enumerate(zip(examples, inputs)):
      yield {
        "input_ids": [ids for ids, _ in options],
        "segment_ids": [segments for _, segments in options],
        "example_id": number,
        "label_ids": example.label or 0,
      }

  def build_model(self) -> AlbertForMultipleChoice:
    """Builds the encoder with its pooler, and one score for each sequence."""
    return AlbertForMultipleChoice(
      self.config, self.recipe.classifier_dropout, **self.model_options()
    )

  def ids(self, split: str) -> list[str]:
    return [example.example_id for example in self.examples(split)]

  def gold(self, split: str) -> np.ndarray:
    return np.array([example.label for example in self.examples(split)])

  def metrics(self, split: str, predicted: np.ndarray) -> dict[str, float]:
    levels = [example.level for example in self.examples(split)]
    return accuracy_by_level(predicted, self.gold(split), levels)
