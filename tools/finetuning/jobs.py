"""From the name of a task to its data, its settings and its model.

A `Job` is what tools.run_finetuning needs to know of a task: the paper's
settings, which splits there are, and how to make a `FinetuningTask` of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional, Sequence

from official_albert import modeling, tokenization
from tasks import common


@dataclasses.dataclass(frozen=True)
class Options:
  """Where the data is, and what is made of it.

  Attributes:
    data_dir: the task's folder, or one that holds it.
    cache_dir: where records go.
    tokenizer: the encoder's; None if no task is to be made.
    max_seq_length: S; 0 takes the recipe's.
    max_train_examples, max_eval_examples: so many, evenly spaced; 0 takes
      all.
    files: of the splits that the user names himself, the files.
    columns: of the user's own data, by their roles: text, text_b, label, id.
    recipe: changes to the recipe's other fields, such as doc_stride.
    length_bucketing: see `FinetuningTask`.
    null_score_diff_threshold: of SQuAD 2.0.
    labels: of a run that was trained before, for data without any.
    note: is told what is being done.

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

  def limit(self, split: str, examples: Sequence[Any]) -> Sequence[Any]:
    """As many examples of a split as are wanted, from all over it."""
    most = (
      self.max_train_examples if split == "train" else self.max_eval_examples
    )
    if not most or most >= len(examples):
      return examples
    return [examples[i * len(examples) // most] for i in range(most)]


class Job:
  """One task with its data.

  Attributes:
    name: of the task.
    recipe: its `Recipe`: rate, batch, steps, dropouts, length.
    best_metric: what chooses the best checkpoint; the highest is the best.
    eval_splits: with labels; the first one is evaluated while training.
    test_splits: to be predicted, of those there are.
  """

  name: str
  best_metric: str
  eval_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  def __init__(self, recipe: Any, options: Options):
    """Reads nothing yet.

    Args:
      recipe: the task's, in which `options.recipe` changes what it names.
      options: where the data is, and what is made of it.

    Raises:
      ValueError: the recipe has no such field.
    """
    known = {field.name for field in dataclasses.fields(recipe)}
    for name in options.recipe:
      if name not in known:
        raise ValueError(f"--{name} says nothing to this task: leave it out.")
    self.recipe = dataclasses.replace(recipe, **options.recipe)
    self.options = options
    self._read_splits: dict[str, Sequence[Any]] = {}

  def examples(self, split: str) -> Sequence[Any]:
    """The examples of a split that are wanted; read once."""
    if split not in self._read_splits:
      self._read_splits[split] = self.options.limit(split, self._read(split))
    return self._read_splits[split]

  @property
  def max_seq_length(self) -> int:
    """S."""
    return self.options.max_seq_length or self.recipe.max_seq_length

  def has_split(self, split: str) -> bool:
    """Whether there is data for a split."""
    try:
      self.sources(split)
    except FileNotFoundError:
      return False
    return True

  def num_train_examples(self) -> int:
    """Examples in an epoch, of SQuAD windows."""
    return len(self.examples("train"))

  def make_task(
    self,
    splits: Sequence[str],
    config: modeling.AlbertConfig,
    settings: common.ModelSettings,
    seed: int,
  ) -> common.FinetuningTask:
    """Reads the splits, makes their records, and the task on them.

    Raises:
      ValueError, OSError: the data is not as it should be.
    """
    # Before records of a large task are made in vain.
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

  # What a job has to say.

  def sources(self, split: str) -> list[str]:
    """The files of a split.

    Raises:
      FileNotFoundError: there is no data for it; says what is missing.
    """
    raise NotImplementedError

  def _read(self, split: str) -> Sequence[Any]:
    """All examples of a split."""
    raise NotImplementedError

  def _records(self, split: str) -> str:
    """Makes the records of a split, or finds them; returns their folder."""
    raise NotImplementedError

  def _task(
    self, held_out: Sequence[str], *arguments: Any
  ) -> common.FinetuningTask:
    """The task, which can be scored on and predict the splits `held_out`.

    Args:
      held_out: all splits that are not trained on.
      *arguments: of `FinetuningTask`.
    """
    raise NotImplementedError

  def score(self, split: str, predictions: Any) -> dict[str, float]:
    """The metrics of predictions that were written, by whatever model.

    Args:
      split: with labels.
      predictions: of `split_predictions.read`.

    Raises:
      ValueError: they are of other examples, or of another task.
    """
    raise NotImplementedError

  def majority(self, split: str) -> dict[str, float]:
    """The metrics of who always gives the commonest answer."""
    raise NotImplementedError


def check_table(
  split: str, table: Any, labels: Sequence[str], ids: Sequence[str]
) -> None:
  """Refuses predictions that the labels of a split do not belong to.

  Args:
    split: its name.
    table: of `split_predictions.read`.
    labels: the task's; none for a regression.
    ids: of the examples, in their order.

  Raises:
    ValueError: they are SQuAD's, have other labels, or are of other examples.
  """
  if not isinstance(table, common.ProbabilityTable):
    raise ValueError(
      f"the predictions of {split} are answers to SQuAD's questions: name "
      "their --task."
    )
  if table.labels != tuple(labels):
    raise ValueError(
      f"the predictions of {split} have the labels "
      f"{', '.join(table.labels) or 'of a regression'}, but the task has "
      f"{', '.join(labels) or 'none'}: name their --task."
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
