"""SQuAD as a job of tools.run_finetuning."""

from __future__ import annotations

import collections
import functools
import os
from typing import Any, Iterator, Sequence

import tfrecords
from tasks import common, squad
from tools.finetuning import jobs as finetuning_jobs
from tools.finetuning import split_predictions

_VERSIONS = {"squad_v1": "v1.1", "squad_v2": "v2.0"}
TASKS = tuple(_VERSIONS)


class SquadJob(finetuning_jobs.Job):
  """SQuAD 1.1 or 2.0: train-v1.1.json and so on, or files of that form."""

  best_metric = "f1"

  def __init__(self, name: str, options: finetuning_jobs.Options):
    super().__init__(squad.RECIPES[name], options)
    self.name = name
    self._has_impossible = name == "squad_v2"
    self._made_windows: dict[str, Sequence[squad.Window]] = {}

  def sources(self, split: str) -> list[str]:
    if self.options.files.get(split):
      return [self.options.files[split]]
    name = f"{split}-{_VERSIONS[self.name]}.json"
    if not self.options.data_dir:
      raise FileNotFoundError(
        f"--task={self.name} needs --data_dir, the folder with {name}, or "
        f"--{split}_file."
      )
    for ending in ("", ".gz"):
      path = os.path.join(self.options.data_dir, name + ending)
      if os.path.exists(path):
        return [path]
    raise FileNotFoundError(
      f"{self.options.data_dir} has no {name}: give the folder with that file, "
      f"or --{split}_file."
    )

  def _read(self, split: str) -> Sequence[squad.SquadExample]:
    return squad.read_examples(self.sources(split)[0], split == "train")

  def _windows(self, split: str) -> Sequence[squad.Window]:
    if split not in self._made_windows:
      self._made_windows[split] = list(
        squad.make_all_windows(
          self.examples(split),
          self.options.tokenizer,
          self.max_seq_length,
          self.recipe.doc_stride,
          self.recipe.max_query_length,
          is_training=split == "train",
        )
      )
    return self._made_windows[split]

  def num_train_examples(self) -> int:
    return len(self._windows("train"))

  def _features(self, split: str) -> Iterator[dict[str, Any]]:
    for number, window in enumerate(self._windows(split)):
      yield {
        "input_ids": window.input_ids,
        "segment_ids": window.segment_ids,
        "example_id": number,
        "p_mask": squad.p_mask(window, self.max_seq_length),
        "start_positions": window.start_position,
        "end_positions": window.end_position,
        "is_impossible": window.is_impossible,
      }

  def _records(self, split: str) -> str:
    return common.build_records(
      self.options.cache_dir,
      self.name,
      self.options.tokenizer,
      self.max_seq_length,
      tfrecords.span_schema(self.max_seq_length),
      {
        "doc_stride": self.recipe.doc_stride,
        "max_query_length": self.recipe.max_query_length,
        "questions": len(self.examples(split)),
      },
      split,
      self.sources(split),
      functools.partial(self._features, split),
      self.options.note,
    )

  def _task(self, held_out: Sequence[str], *arguments: Any) -> squad.SquadTask:
    return squad.SquadTask(
      *arguments,
      has_impossible=self._has_impossible,
      questions={
        split: squad.Questions(self.examples(split), self._windows(split))
        for split in held_out
      },
      decode=squad.Decoding(
        n_best_size=self.recipe.n_best_size,
        max_answer_length=self.recipe.max_answer_length,
        start_n_top=self.recipe.start_n_top,
        end_n_top=self.recipe.end_n_top,
        null_score_diff_threshold=self.options.null_score_diff_threshold,
      ),
    )

  def score(
    self, split: str, predictions: split_predictions.Predictions
  ) -> dict[str, float]:
    if isinstance(predictions, common.ProbabilityTable):
      raise ValueError(
        f"the predictions of {split} are a table of probabilities, not answers "
        "to SQuAD's questions: name their --task."
      )
    return squad.score_answers(
      squad.gold_answers(self.examples(split)),
      predictions,
      self._has_impossible,
      self.options.null_score_diff_threshold,
    )

  def majority(self, split: str) -> dict[str, float]:
    """1.1: always the commonest answer; 2.0: always that there is none."""
    gold = squad.gold_answers(self.examples(split))
    if self._has_impossible:
      return squad.evaluate_v2(gold, dict.fromkeys(gold, ""))
    texts = collections.Counter(
      e.answers[0][0] for e in self.examples("train") if e.answers
    )
    return squad.evaluate_v1(
      gold, dict.fromkeys(gold, texts.most_common(1)[0][0])
    )
