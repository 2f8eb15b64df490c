"""RACE as a job of tools.run_finetuning."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, Iterator, Sequence

import tfrecords
from tasks import common, race
from tools.finetuning import jobs as finetuning_jobs
from tools.finetuning import split_predictions


class RaceJob(finetuning_jobs.Job):
  """RACE, from its folder or its archive; `race_v2` is for v2 models."""

  best_metric = "accuracy"

  def __init__(self, name: str, options: finetuning_jobs.Options):
    super().__init__(race.RECIPES[name], options)
    self.name = "race"

  def sources(self, split: str) -> list[str]:
    # Thousands of small files, or parts of an archive: see `_fingerprint`.
    self.examples(split)
    return []

  def _read(self, split: str) -> Sequence[race.RaceExample]:
    return race.read_examples(
      self.options.data_dir,
      split,
      needs_labels=split in ("train", *self.eval_splits),
    )

  def _features(self, split: str) -> Iterator[dict[str, Any]]:
    inputs = race.make_all_inputs(
      self.examples(split),
      self.options.tokenizer,
      self.max_seq_length,
      self.recipe.max_qa_length,
    )
    for number, (example, options) in enumerate(
      zip(self.examples(split), inputs)
    ):
      yield {
        "input_ids": [ids for ids, _ in options],
        "segment_ids": [segments for _, segments in options],
        "example_id": number,
        "label_ids": example.label or 0,
      }

  def _records(self, split: str) -> str:
    schema = tfrecords.multiple_choice_schema(
      self.max_seq_length, len(race.LETTERS)
    )
    return common.build_records(
      self.options.cache_dir,
      self.name,
      self.options.tokenizer,
      self.max_seq_length,
      schema,
      {
        "max_qa_length": self.recipe.max_qa_length,
        "questions": self._fingerprint(split),
      },
      split,
      self.sources(split),
      functools.partial(self._features, split),
      self.options.note,
    )

  def _task(self, held_out: Sequence[str], *arguments: Any) -> race.RaceTask:
    return race.RaceTask(
      *arguments,
      examples={split: self.examples(split) for split in held_out},
    )

  def _fingerprint(self, split: str) -> str:
    """Tells splits apart by what was read of them."""
    return common.cache_key(
      examples=[dataclasses.astuple(e) for e in self.examples(split)]
    )

  def score(
    self, split: str, predictions: split_predictions.Predictions
  ) -> dict[str, float]:
    ids = [example.example_id for example in self.examples(split)]
    finetuning_jobs.check_table(split, predictions, tuple(race.LETTERS), ids)
    return self._accuracy(split, predictions.values.argmax(axis=1))

  def majority(self, split: str) -> dict[str, float]:
    """Always the letter that is right most often."""
    train = [example.label for example in self.examples("train")]
    letter = collections.Counter(train).most_common(1)[0][0]
    return self._accuracy(split, [letter] * len(self.examples(split)))

  def _accuracy(self, split: str, said: Sequence[int]) -> dict[str, float]:
    gold = self.examples(split)
    return race.accuracy_by_level(
      said, [e.label for e in gold], [e.level for e in gold]
    )
