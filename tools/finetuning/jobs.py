"""From the name of a task to its data, its settings and its model.

A `Job` is what tools.run_finetuning needs of a task: the recipe, the available
splits, and a `FinetuningTask` on them. Those of SQuAD and RACE are here, those
of GLUE and of the user's own texts in `text_jobs`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import tfrecords
from official_albert import modeling, tokenization
from tasks import common, race, squad
from tools.finetuning import split_predictions

_SQUAD_VERSIONS = {"squad_v1": "v1.1", "squad_v2": "v2.0"}


@dataclasses.dataclass(frozen=True)
class Options:
  """Where the data is, and how it is prepared.

  Attributes:
    data_dir: the task's folder, or one that contains it.
    cache_dir: for records.
    tokenizer: the encoder's; None if no task is made.
    max_seq_length: S; 0 takes the recipe's.
    max_train_examples, max_eval_examples: maximum numbers, evenly spaced; 0
      takes all.
    files: by split, files that the user names.
    columns: of the user's own data, by role: text, text_b, label, id.
    recipe: changes to fields of the recipe, such as doc_stride.
    length_bucketing: see `FinetuningTask`.
    null_score_diff_threshold: of SQuAD 2.0.
    labels: of an earlier run, for data without labels.
    note: called with lines about what is done.

  Raises (when made):
    ValueError: a number is negative.
  """

  data_dir: str
  cache_dir: str
  tokenizer: Optional[tokenization.Tokenizer]
  max_seq_length: int = 0
  max_train_examples: int = 0
  max_eval_examples: int = 0
  files: Mapping[str, str] = dataclasses.field(default_factory=dict)
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  recipe: Mapping[str, int] = dataclasses.field(default_factory=dict)
  length_bucketing: bool = True
  null_score_diff_threshold: Optional[float] = None
  labels: Optional[Sequence[str]] = None
  note: Callable[[str], None] = print

  def __post_init__(self):
    for name in ("max_seq_length", "max_train_examples", "max_eval_examples"):
      if getattr(self, name) < 0:
        raise ValueError(
          f"{name} must not be negative, got {getattr(self, name)}."
        )


class Job:
  """One task with its data.

  Attributes:
    name: of the task.
    recipe: its `Recipe`, with the changes of the options.
    options: where the data is, and how it is prepared.
    best_metric: chooses the best checkpoint; higher is better.
    eval_splits: with labels; the first is evaluated during training.
    test_splits: to predict, if there are any.
  """

  name: str
  best_metric: str
  eval_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  def __init__(self, recipe: Any, options: Options):
    """Creates the job, without reading data.

    Raises:
      ValueError: the recipe lacks a field of `options.recipe`.
    """
    known = {field.name for field in dataclasses.fields(recipe)}
    for name in options.recipe:
      if name not in known:
        raise ValueError(f"--{name} does not apply to this task: leave it out.")
    self.recipe = dataclasses.replace(recipe, **options.recipe)
    self.options = options
    self._read_splits: dict[str, Sequence[Any]] = {}

  def examples(self, split: str) -> Sequence[Any]:
    """Returns the examples of a split, up to the maximum; reads them once."""
    if split not in self._read_splits:
      examples = self._read(split)
      most = self.options.max_eval_examples
      if split == "train":
        most = self.options.max_train_examples
      if 0 < most < len(examples):
        examples = [examples[i * len(examples) // most] for i in range(most)]
      self._read_splits[split] = examples
    return self._read_splits[split]

  @property
  def max_seq_length(self) -> int:
    """S."""
    return self.options.max_seq_length or self.recipe.max_seq_length

  def has_split(self, split: str) -> bool:
    """Returns whether there is data of a split."""
    try:
      self.sources(split)
    except FileNotFoundError:
      return False
    return True

  def num_train_examples(self) -> int:
    """Returns the number of examples in an epoch; of SQuAD that of windows."""
    return len(self.examples("train"))

  def make_task(
    self,
    splits: Sequence[str],
    config: modeling.AlbertConfig,
    settings: common.ModelSettings,
    seed: int,
  ) -> common.FinetuningTask:
    """Reads splits, builds their records, and returns the task on them.

    Raises:
      ValueError, OSError: the data is invalid, or does not fit the model.
    """
    # Checked before the records of a large task are built.
    common.check_fits(
      config, self.options.tokenizer.vocab_size, self.max_seq_length
    )
    return self._task(
      [split for split in splits if split != "train"],
      self.name,
      config,
      {split: self._records(split) for split in splits},
      self.eval_splits[0],
      settings,
      seed,
      self.options.length_bucketing,
    )

  # Subclasses define:

  def sources(self, split: str) -> list[str]:
    """Returns the files of a split.

    Raises:
      FileNotFoundError: a file is missing.
    """
    raise NotImplementedError

  def _read(self, split: str) -> Sequence[Any]:
    """Reads all examples of a split."""
    raise NotImplementedError

  def _records(self, split: str) -> str:
    """Builds the records of a split unless they exist; returns the folder."""
    raise NotImplementedError

  def _task(
    self, held_out: Sequence[str], *arguments: Any
  ) -> common.FinetuningTask:
    """Returns the task.

    Args:
      held_out: the splits other than `train`, to evaluate and predict.
      *arguments: of `FinetuningTask`.
    """
    raise NotImplementedError

  def score(
    self, split: str, predictions: split_predictions.Predictions
  ) -> dict[str, float]:
    """Returns the metrics of predictions of any model.

    Args:
      split: with labels.
      predictions: see `split_predictions.read`.

    Raises:
      ValueError: they are of other examples, or of another task.
    """
    raise NotImplementedError

  def majority(self, split: str) -> dict[str, float]:
    """Returns the metrics of always predicting the most frequent answer."""
    raise NotImplementedError


def check_table(
  split: str,
  table: split_predictions.Predictions,
  labels: Sequence[str],
  ids: Sequence[str],
) -> None:
  """Checks that predictions belong to the examples of a split.

  Args:
    split: its name.
    table: see `split_predictions.read`.
    labels: the task's; none for a regression.
    ids: of the examples, in order.

  Raises:
    ValueError: they are SQuAD's, or labels or ids differ.
  """
  if not isinstance(table, common.ProbabilityTable):
    raise ValueError(
      f"the predictions of {split} are answers to SQuAD's questions: give the "
      "--task that they are of."
    )
  if table.labels != tuple(labels):
    raise ValueError(
      f"the predictions of {split} have the labels "
      f"{', '.join(table.labels) or 'of a regression'}, but the task has "
      f"{', '.join(labels) or 'none'}: give the --task that they are of."
    )
  if table.ids != tuple(ids):
    pairs = zip([*table.ids, "nothing"], [*ids, "nothing"])
    row, (mine, theirs) = next(
      (i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1]
    )
    raise ValueError(
      f"row {row} of the predictions of {split} is of {mine}, but the data "
      f"has {theirs} there: give the data that was predicted."
    )


class SquadJob(Job):
  """SQuAD 1.1 or 2.0: train-v1.1.json and so on, or files of that format."""

  best_metric = "f1"

  def __init__(self, name: str, options: Options):
    super().__init__(squad.RECIPES[name], options)
    self.name = name
    self._has_impossible = name == "squad_v2"
    self._made_windows: dict[str, Sequence[squad.Window]] = {}

  def sources(self, split: str) -> list[str]:
    if self.options.files.get(split):
      return [self.options.files[split]]
    name = f"{split}-{_SQUAD_VERSIONS[self.name]}.json"
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
        "to SQuAD's questions: give the --task that they are of."
      )
    return squad.score_answers(
      squad.gold_answers(self.examples(split)),
      predictions,
      self._has_impossible,
      self.options.null_score_diff_threshold,
    )

  def majority(self, split: str) -> dict[str, float]:
    """Scores the most frequent answer; for 2.0 that there is none."""
    gold = squad.gold_answers(self.examples(split))
    if self._has_impossible:
      return squad.evaluate_v2(gold, dict.fromkeys(gold, ""))
    texts = collections.Counter(
      e.answers[0][0] for e in self.examples("train") if e.answers
    )
    return squad.evaluate_v1(
      gold, dict.fromkeys(gold, texts.most_common(1)[0][0])
    )


class RaceJob(Job):
  """RACE, from its folder or its archive; `race_v2` is for v2 models."""

  best_metric = "accuracy"

  def __init__(self, name: str, options: Options):
    super().__init__(race.RECIPES[name], options)
    self.name = "race"

  def sources(self, split: str) -> list[str]:
    # Thousands of files, or parts of an archive: the settings of the records
    # contain a hash of the examples instead.
    self.examples(split)
    return []

  def _read(self, split: str) -> Sequence[race.RaceExample]:
    return race.read_examples(
      self.options.data_dir,
      split,
      needs_labels=split in ("train", *self.eval_splits),
    )

  def _features(self, split: str) -> Iterator[dict[str, Any]]:
    examples = self.examples(split)
    inputs = race.make_all_inputs(
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

  def _records(self, split: str) -> str:
    return common.build_records(
      self.options.cache_dir,
      self.name,
      self.options.tokenizer,
      self.max_seq_length,
      tfrecords.multiple_choice_schema(self.max_seq_length, len(race.LETTERS)),
      {
        "max_qa_length": self.recipe.max_qa_length,
        "questions": common.cache_key(
          examples=[dataclasses.astuple(e) for e in self.examples(split)]
        ),
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

  def score(
    self, split: str, predictions: split_predictions.Predictions
  ) -> dict[str, float]:
    ids = [example.example_id for example in self.examples(split)]
    check_table(split, predictions, tuple(race.LETTERS), ids)
    return self._accuracy(split, predictions.values.argmax(axis=1))

  def majority(self, split: str) -> dict[str, float]:
    """Scores the letter that is correct most often in training."""
    train = [example.label for example in self.examples("train")]
    letter = collections.Counter(train).most_common(1)[0][0]
    return self._accuracy(split, [letter] * len(self.examples(split)))

  def _accuracy(
    self, split: str, predictions: Sequence[int]
  ) -> dict[str, float]:
    gold = self.examples(split)
    return race.accuracy_by_level(
      predictions, [e.label for e in gold], [e.level for e in gold]
    )
