"""Tasks with their data for tools.run_finetuning, and their predictions.

For all tasks, this module reads, averages and writes the predictions of a
split:

predictions/dev.probabilities.tsv       classes, numbers, options of RACE
predictions/dev/nbest_predictions.json  SQuAD, with other files in this folder
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np

from official_albert import files, modeling, tfrecords, tokenization
from official_albert.tasks import classification, common, race, registry, squad
from official_albert.tasks.classification import glue
from official_albert.tasks.classification import task as classification_task
from official_albert.tasks.common import finetuning_records, finetuning_task
from official_albert.tasks.race import task as race_task
from official_albert.tasks.squad import task as squad_task

_SQUAD_VERSIONS = {"squad_v1": "v1.1", "squad_v2": "v2.0"}
_MISSING = ("na", "n/a", "nan", "none", "null")
# The latter are the answers to each question of SQuAD.
Predictions = Union[
  common.ProbabilityTable, Mapping[str, squad.QuestionAnswers]
]


@dataclasses.dataclass(frozen=True)
class Options:
  """The location of the data and the settings for its preparation.

  Attributes (only those that need explanation):
    tokenizer: None if no `FinetuningTask` is made.
    max_seq_length: 0 uses the length of the recipe.
    max_train_examples, max_eval_examples: 0 uses all examples; a smaller
      number uses examples that are evenly spaced in the data.
    files: the user's file for each split.
    dev_share: 0 uses the file of the dev split.
    columns: the columns of the user's data by role: text, text_b, label, id.
    recipe: fields of the recipe to change.
    score_characters: whether SQuAD's answers are compared by characters; None
      decides by the vocabulary.
    labels: the labels of an earlier run, for data without labels.
    skip_invalid_questions: whether to leave out invalid questions of SQuAD.
  """

  data_dir: str
  cache_dir: str
  tokenizer: Optional[tokenization.Tokenizer]
  max_seq_length: int = 0
  max_train_examples: int = 0
  max_eval_examples: int = 0
  files: Mapping[str, str] = dataclasses.field(default_factory=dict)
  dev_share: float = 0.0
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  recipe: Mapping[str, int] = dataclasses.field(default_factory=dict)
  length_bucketing: bool = True
  null_score_diff_threshold: Optional[float] = None
  score_characters: Optional[bool] = None
  labels: Optional[Sequence[str]] = None
  skip_invalid_questions: bool = False
  note: Callable[[str], None] = print


class Job(abc.ABC):
  """One task with its data.

  `labels` are the classes in order, None for numbers and SQuAD. `has_pairs`
  says whether a sequence has two texts. Training selects the checkpoint with
  the highest `best_metric` on the first of `eval_splits`.
  """

  name: str
  best_metric: str
  has_pairs = True
  labels: Optional[Sequence[str]] = None
  eval_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  def __init__(self, name: str, recipe: common.Recipe, options: Options):
    for field in options.recipe:
      if not hasattr(recipe, field):
        raise ValueError(
          f"--{field} does not apply to this task: leave it out."
        )
    self.name = name
    self.recipe = dataclasses.replace(recipe, **options.recipe)
    self.options = options
    self.max_seq_length = options.max_seq_length or recipe.max_seq_length
    self._examples: dict[str, Sequence[Any]] = {}

  @abc.abstractmethod
  def sources(self, split: str) -> list[str]:
    """Returns the files of a split; FileNotFoundError if they are missing."""

  @abc.abstractmethod
  def _read(self, split: str) -> Sequence[Any]:
    """Returns the examples of a split."""

  @abc.abstractmethod
  def _records(self, split: str) -> tuple[Any, dict[str, Any]]:
    """Returns the schema and the settings of the records of a split."""

  @abc.abstractmethod
  def _features(self, split: str) -> Iterator[dict[str, Any]]:
    """Yields the features of each record of a split."""

  @abc.abstractmethod
  def _task(
    self, held_out: Sequence[str], *arguments: Any
  ) -> finetuning_task.FinetuningTask:
    """Returns the task on the records."""

  @abc.abstractmethod
  def score(self, split: str, predictions: Predictions) -> dict[str, float]:
    """Returns the metrics of the predictions of any model."""

  @abc.abstractmethod
  def majority(self, split: str) -> dict[str, float]:
    """Returns the metrics of the most frequent answer; {} if meaningless."""

  def examples(self, split: str) -> Sequence[Any]:
    """Returns the examples of a split, up to the maximum; reads them once."""
    if split not in self._examples:
      examples = self._read(split)
      most = self.options.max_eval_examples
      if split == "train":
        most = self.options.max_train_examples
      if 0 < most < len(examples):
        examples = [examples[i * len(examples) // most] for i in range(most)]
      self._examples[split] = examples
    return self._examples[split]

  def num_train_examples(self) -> int:
    """Returns the number of examples in an epoch; windows for SQuAD."""
    return len(self.examples("train"))

  def is_labeled(self, split: str) -> bool:
    """Returns whether a split that exists can be scored."""
    return split in self.eval_splits

  def check(self, splits: Sequence[str]) -> None:
    """Reads splits, before any of their records are built."""
    for split in splits:
      self.examples(split)

  def has_split(self, split: str) -> bool:
    """Returns whether there is data of a split."""
    try:
      self.sources(split)
    except FileNotFoundError:
      return False
    return True

  def make_task(
    self,
    splits: Sequence[str],
    config: modeling.AlbertConfig,
    settings: common.ModelSettings,
    seed: int,
  ) -> finetuning_task.FinetuningTask:
    """Reads splits, builds their records, and returns the task on them."""
    options = self.options
    # Checked before the records of a large task are built.
    size = options.tokenizer.vocab_size
    config.check_fits(size, self.max_seq_length, self.has_pairs)
    self.check(splits)
    records = {}
    for split in splits:
      sources = self.sources(split)
      schema, record_settings = self._records(split)
      records[split] = finetuning_records.build_records(
        options.cache_dir,
        self.name,
        options.tokenizer,
        self.max_seq_length,
        schema,
        record_settings,
        split,
        sources,
        functools.partial(self._features, split),
        options.note,
      )
    return self._task(
      [split for split in splits if split != "train"],
      self.name,
      config,
      records,
      self.eval_splits[0],
      settings,
      seed,
      options.length_bucketing,
    )

  def _other_data(self, split: str) -> ValueError:
    """Returns an error about the predictions of other data."""
    return ValueError(
      f"the predictions of {split} do not belong to the {split} data of "
      f"--task={self.name}, or have other labels: give the --task and the data "
      "that were predicted."
    )


class SquadJob(Job):
  """SQuAD 1.1 or 2.0: train-v1.1.json and so on, or files of that format."""

  def __init__(self, name: str, options: Options):
    super().__init__(name, squad.RECIPES[name], options)
    self._has_impossible = name == "squad_v2"
    self.best_metric = "f1"
    if self._has_impossible and options.null_score_diff_threshold is None:
      self.best_metric = "best_f1"  # Each checkpoint has its own threshold.
    self._windows = functools.cache(self._make_windows)

  def sources(self, split: str) -> list[str]:
    if self.options.files.get(split):
      return [self.options.files[split]]
    name = f"{split}-{_SQUAD_VERSIONS[self.name]}.json"
    data_dir = self.options.data_dir
    for path in (os.path.join(data_dir, name + end) for end in ("", ".gz")):
      if data_dir and files.exists(path):
        return [path]
    raise FileNotFoundError(
      f"{data_dir or '--data_dir'} has no {name}: give the folder with that "
      f"file, or --{split}_file."
    )

  def _read(self, split: str) -> Sequence[squad.SquadExample]:
    path, note = self.sources(split)[0], self.options.note
    examples = squad.read_examples(
      path,
      is_training=split == "train",
      needs_answers=split in self.eval_splits,
      may_be_impossible=self._has_impossible,
      skip_invalid=self.options.skip_invalid_questions,
      note=note,
    )
    if (
      split == "train"
      and self._has_impossible
      and all(example.answers for example in examples)
    ):
      note(
        f"{path}: all questions have answers, as in SQuAD 1.1: nothing is "
        "learned about questions without one; --task=squad_v1 is for such files"
      )
    return examples

  def _make_windows(self, split: str) -> Sequence[squad.Window]:
    return list(
      squad.make_all_windows(
        self.examples(split),
        self.options.tokenizer,
        self.max_seq_length,
        self.recipe.doc_stride,
        self.recipe.max_query_length,
      )
    )

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

  def _records(self, split: str):
    return tfrecords.span_schema(self.max_seq_length), {
      "doc_stride": self.recipe.doc_stride,
      "max_query_length": self.recipe.max_query_length,
      "questions": len(self.examples(split)),
    }

  def _task(
    self, held_out: Sequence[str], *arguments: Any
  ) -> squad_task.SquadTask:
    return squad_task.SquadTask(
      *arguments,
      has_impossible=self._has_impossible,
      questions={
        split: squad_task.Questions(self.examples(split), self._windows(split))
        for split in held_out
      },
      recipe=self.recipe,
      null_score_diff_threshold=self.options.null_score_diff_threshold,
      by_characters=self._by_characters(),
    )

  def _by_characters(self) -> bool:
    """Whether answers are compared by characters; see `squad.evaluate_v1`.

    The vocabulary decides by default. Without a tokenizer, as for ensembles,
    the answers of the dev file do.
    """
    if self.options.score_characters is not None:
      return self.options.score_characters
    tokenizer = self.options.tokenizer
    if tokenizer is not None:
      ids = range(tokenizer.vocab_size)
      return squad.uses_characters(map(tokenizer.id_to_piece, ids))
    examples = self.examples(self.eval_splits[0])
    return squad.uses_characters(t for e in examples for t, _ in e.answers)

  def score(self, split: str, predictions: Predictions) -> dict[str, float]:
    if isinstance(predictions, common.ProbabilityTable):
      raise self._other_data(split)
    return squad.score_answers(
      squad.gold_answers(self.examples(split)),
      predictions,
      self._has_impossible,
      self.options.null_score_diff_threshold,
      self._by_characters(),
    )

  def is_labeled(self, split: str) -> bool:
    return super().is_labeled(split) or all(
      example.answers or example.is_impossible
      for example in self.examples(split)
    )

  def majority(self, split: str) -> dict[str, float]:
    """Scores that no question has an answer; nothing for SQuAD 1.1.

    An answer there is a span of one context, and no span is in most contexts.
    """
    if not self._has_impossible:
      return {}
    gold = squad.gold_answers(self.examples(split))
    return squad.evaluate_v2(
      gold, dict.fromkeys(gold, ""), by_characters=self._by_characters()
    )


class LabelJob(Job):
  """A task that predicts a class or a number for each example.

  Subclasses also define

      _task_type()          the class of its `LabelTask`
      ids(split)            the ids of the examples in files of predictions
      gold(split)           the correct classes <int>[N], or numbers <float>[N]
      evaluate(split, x)    the metrics of predicted classes or numbers [N]
  """

  def is_labeled(self, split: str) -> bool:
    return super().is_labeled(split) or all(
      example.label is not None for example in self.examples(split)
    )

  def check(self, splits: Sequence[str]) -> None:
    super().check(splits)
    for split in splits:
      if split != "train":
        common.check_names(f"{split} id", self.ids(split))

  def _task(
    self, held_out: Sequence[str], *arguments: Any, **others: Any
  ) -> finetuning_task.FinetuningTask:
    return self._task_type()(
      *arguments,
      labels=self.labels,
      ids={split: self.ids(split) for split in held_out},
      evaluate=self.evaluate,
      **others,
    )

  def score(self, split: str, predictions: Predictions) -> dict[str, float]:
    if (
      not isinstance(predictions, common.ProbabilityTable)
      or predictions.labels != tuple(self.labels or ())
      or list(predictions.ids) != self.ids(split)
    ):
      raise self._other_data(split)
    values = predictions.values
    if self.labels is not None:
      values = np.argmax(values, axis=1)
    return self.evaluate(split, values)

  def majority(self, split: str) -> dict[str, float]:
    """Scores the most frequent class of the training data, or its mean."""
    train = self.gold("train")
    answer = train.mean()
    if self.labels is not None:
      answer = np.bincount(train).argmax()
    return self.evaluate(split, np.full(len(self.examples(split)), answer))


class RaceJob(LabelJob):
  """RACE, from its folder or its archive; `race_v2` is for v2 models."""

  best_metric = "accuracy"
  labels = tuple(race.LETTERS)

  def __init__(self, name: str, options: Options):
    super().__init__("race", race.RECIPES[name], options)

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

  def _records(self, split: str):
    schema = tfrecords.multiple_choice_schema(
      self.max_seq_length, len(race.LETTERS)
    )
    examples = [dataclasses.astuple(e) for e in self.examples(split)]
    return schema, {
      "max_qa_length": self.recipe.max_qa_length,
      "questions": finetuning_records.cache_key(examples=examples),
    }

  def _task_type(self):
    return race_task.RaceTask

  def ids(self, split: str) -> list[str]:
    return [example.example_id for example in self.examples(split)]

  def gold(self, split: str) -> np.ndarray:
    return np.array([example.label for example in self.examples(split)])

  def evaluate(self, split: str, predictions: np.ndarray) -> dict[str, float]:
    levels = [example.level for example in self.examples(split)]
    return race.accuracy_by_level(predictions, self.gold(split), levels)


class _TextJob(LabelJob):
  """Classes or numbers for texts."""

  def _features(self, split: str) -> Iterator[dict[str, Any]]:
    return classification.make_features(
      self.examples(split),
      self.options.tokenizer,
      self.max_seq_length,
      self.labels,
    )

  def _records(self, split: str):
    schema = tfrecords.classification_schema
    if self.labels is None:
      schema = tfrecords.regression_schema
    return schema(self.max_seq_length), {
      "labels": None if self.labels is None else list(self.labels),
      "number": len(self.examples(split)),
      "columns": dict(self.options.columns),
    }

  def _task_type(self):
    return classification_task.ClassificationTask

  def ids(self, split: str) -> list[str]:
    return [example.guid for example in self.examples(split)]

  def gold(self, split: str) -> np.ndarray:
    labels = [example.label for example in self.examples(split)]
    if self.labels is None:
      # In the precision of the records.
      return np.float32([float(label) for label in labels])
    class_of = {label: i for i, label in enumerate(self.labels)}
    return np.array([class_of[label] for label in labels], np.int64)


class GlueJob(_TextJob):
  """One of the nine tasks of GLUE."""

  def __init__(self, name: str, options: Options):
    super().__init__(name, glue.GLUE_RECIPES[name], options)
    self._glue_task = task = glue.GLUE_TASKS[name]
    self.labels = task.labels
    self.has_pairs = len(task.texts) > 1
    self.best_metric = task.metrics[0]
    self.eval_splits, self.test_splits = task.dev_splits, task.test_splits

  def sources(self, split: str) -> list[str]:
    data_dir = self.options.data_dir
    return [glue.find_file(data_dir, self._glue_task, split)]

  def _read(self, split: str) -> list[common.TextExample]:
    return glue.read_split(
      self.options.data_dir, self._glue_task, split, self.options.note
    )

  def evaluate(self, split: str, predictions: np.ndarray) -> dict[str, float]:
    return glue.evaluate_glue(self._glue_task, predictions, self.gold(split))


class OwnJob(_TextJob):
  """The user's own TSV, CSV or JSON lines.

  Without `Options.labels`, the training data is read to find the classes.
  """

  def __init__(self, name: str, options: Options):
    super().__init__(name, classification.RECIPE, options)
    self._is_regression = name.endswith("regression")
    self.has_pairs = "pair" in name
    self.best_metric = "pearson" if self._is_regression else "accuracy"
    self.labels = options.labels
    if self.labels is None and not self._is_regression:
      path = self.sources("train")[0]
      self.labels = classification.find_labels(self.examples("train"), path)
      for label in self.labels:
        if label.lower() in _MISSING:
          options.note(
            f"{path}: the label {files.quote(label)} is a class, though other "
            "programs write it for a missing value"
          )

  def _is_shared(self, split: str) -> bool:
    """Whether a split is a part of the training file."""
    return bool(self.options.dev_share) and split not in self.test_splits

  def sources(self, split: str) -> list[str]:
    if self._is_shared(split):
      split = "train"
    advice = ", or --dev_share to hold out rows of --train_file"
    if not self.options.files.get(split):
      raise FileNotFoundError(
        f"--task={self.name} needs --{split}_file"
        f"{advice if split == 'dev' else ''}."
      )
    return [self.options.files[split]]

  def _read(self, split: str) -> list[common.TextExample]:
    columns = dict(self.options.columns)
    path, is_test = self.sources(split)[0], split in self.test_splits
    if not self.has_pairs:
      del columns["text_b"]
    if is_test and not self._has_column(split, "label"):
      del columns["label"]
    # Training needs no ids, and they may be in some files only.
    uses_ids = split != "train" or self._is_shared(split)
    if not uses_ids or not self._has_column(split, "id"):
      del columns["id"]
    examples = classification.read_examples(
      path,
      columns,
      None if split == "train" else self.labels,
      self._is_regression,
      may_lack_labels=is_test,
    )
    if "label" in columns and examples and examples[0].label is None:
      self.options.note(
        f"{path}: no {columns['label']} is one of the training data, so these "
        "rows are predicted, but not scored"
      )
    return self._side(examples, split) if self._is_shared(split) else examples

  def _has_column(self, split: str, role: str) -> bool:
    """Whether the file of a split has the column of a role."""
    name, text = self.options.columns[role], self.options.columns["text"]
    if not name:  # The header of an index that pandas writes is empty, too.
      return False
    return name in next(common.read_table(self.sources(split)[0], [text])).cells

  def check(self, splits: Sequence[str]) -> None:
    super().check(splits)
    name = self.options.columns["id"]
    if name and not any(self._has_column(split, "id") for split in splits):
      raise ValueError(
        f"--id_column={name}: none of the files has this column."
      )
    if self._is_regression and "train" in splits:
      targets = self.gold("train")
      if np.ptp(targets) == 0:
        raise ValueError(
          f"{self.sources('train')[0]}: all {len(targets):,} training labels "
          f"are {targets[0]:g}, but a regression needs different ones."
        )

  def _side(
    self, examples: Sequence[common.TextExample], split: str
  ) -> list[common.TextExample]:
    """Returns the examples of the training file that belong to a split."""
    share, path = self.options.dev_share, self.sources(split)[0]
    train, dev = classification.hold_out(examples, share)
    advice = "give another share, or --dev_file."
    if not (train and dev):
      raise ValueError(
        f"--dev_share={share:g} holds out {len(dev):,} of the "
        f"{len(examples):,} rows of {path}, but both sides need at least one: "
        f"{advice}"
      )
    if not self._is_regression:
      lost = {e.label for e in dev} - {e.label for e in train}
      if lost:
        raise ValueError(
          f"--dev_share={share:g} holds out all rows of {path} with the label "
          f"{files.quote(min(lost))}, so that it could not be learned: {advice}"
        )
    if split == "train":
      return train
    self.options.note(
      f"--dev_share={share:g}: {len(train):,} rows of {path} are for training, "
      f"{len(dev):,} are held out"
    )
    return dev

  def _task(
    self,
    held_out: Sequence[str],
    name: str,
    config: modeling.AlbertConfig,
    records: Mapping[str, str],
    *arguments: Any,
  ) -> finetuning_task.FinetuningTask:
    trains = self._is_regression and "train" in records
    targets = self.gold("train") if trains else None
    return super()._task(
      held_out, name, config, records, *arguments, targets=targets
    )

  def _records(self, split: str):
    schema, settings = super()._records(split)
    # Only if used, so that the folders of earlier records keep their names.
    if self._is_shared(split):
      settings["dev_share"] = self.options.dev_share
    return schema, settings

  def evaluate(self, split: str, predictions: np.ndarray) -> dict[str, float]:
    gold = self.gold(split)
    if self.labels is None:
      return classification.of_numbers(predictions, gold)
    return classification.of_classes(predictions, gold, len(self.labels))


def make_job(name: str, options: Options) -> Job:
  """Returns the job of a task, a key of `registry.TASKS`."""
  if name in glue.GLUE_TASKS:
    return GlueJob(name, options)
  head = registry.TASKS[name].head
  by_head = {"squad1": SquadJob, "squad2": SquadJob, "multiple_choice": RaceJob}
  return by_head.get(head, OwnJob)(name, options)


def only_answer(folder: str, split: str) -> Optional[str]:
  """Returns the one answer to all examples of a split; None if they differ.

  It reads the files that `write_predictions` of a task wrote.
  """
  path = _table_path(folder, split)
  if files.exists(path):
    table = common.read_probabilities(path)
    answers = table.predictions
    if not table.labels and np.allclose(table.values, table.values[0], 1e-4, 0):
      answers = [f"{table.values[0]:.4g}"] * len(answers)
  else:
    path = os.path.join(folder, split, squad.PREDICTIONS_FILE)
    answers = list(
      files.read_json(path, dict[str, str], "predict again").values()
    )
  return answers[0] if len(answers) > len(set(answers)) == 1 else None


def _table_path(folder: str, split: str) -> str:
  return os.path.join(folder, f"{split}{common.PROBABILITIES_SUFFIX}")


def predicted_splits(folder: str) -> list[str]:
  """Returns the splits of which a folder has predictions, sorted."""
  found = []
  for name in files.list_dir(folder):
    if name.endswith(common.PROBABILITIES_SUFFIX):
      found.append(name.removesuffix(common.PROBABILITIES_SUFFIX))
    elif files.exists(os.path.join(folder, name, squad.NBEST_FILE)):
      found.append(name)
  return sorted(found)


def read_predictions(folder: str, split: str) -> Predictions:
  """Reads the predictions of a split."""
  table = _table_path(folder, split)
  if files.exists(table):
    return common.read_probabilities(table)
  return squad.read_answers(os.path.join(folder, split))


def average_predictions(
  members: Mapping[str, Predictions], split: str
) -> Predictions:
  """Returns the mean of a split's predictions; the keys are for messages."""
  tables, answers = {}, {}
  for name, predictions in members.items():
    if isinstance(predictions, common.ProbabilityTable):
      tables[f"{split} of {name}"] = predictions
    else:
      answers[name] = predictions
  if tables and answers:
    raise ValueError(
      f"{next(iter(tables))} has probabilities and {next(iter(answers))} "
      "answers of SQuAD: average models of one task."
    )
  if tables:
    return common.average_probabilities(tables)
  return squad.average_answers(list(answers.values()))


def write_predictions(
  folder: str,
  split: str,
  predictions: Predictions,
  null_score_diff_threshold: Optional[float] = None,
) -> list[str]:
  """Writes predictions where `read_predictions` finds them; returns the paths.

  Higher null odds of SQuAD 2.0 than the threshold mean no answer.
  """
  if not isinstance(predictions, common.ProbabilityTable):
    return squad.write_predictions(
      os.path.join(folder, split), predictions, null_score_diff_threshold
    )
  files.make_folder(folder)
  path = _table_path(folder, split)
  common.write_probabilities(path, predictions)
  return [path]
