"""From the name of a task to its data, its settings and its model.

A `Job` is what tools.run_finetuning needs to know of a task: the paper's
settings, which splits there are, and how to make a `FinetuningTask` of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional, Sequence

from official_albert import config as config_lib
from official_albert import tokenization
from tasks import finetuning_task

MODEL_SETTINGS = ("albert_dropout", "classifier_dropout")


@dataclasses.dataclass(frozen=True)
class Options:
  """Where the data is, and what is made of it.

  Attributes:
    data_dir: the task's folder, or one that holds it.
    cache_dir: where records go.
    tokenizer: the encoder's.
    max_seq_length: S; 0 takes the recipe's.
    max_train_examples, max_eval_examples: so many, evenly spaced; 0 takes
      all.
    files: of the splits that the user names himself, the files.
    columns: of the user's own data, by their roles: text, text_b, label, id.
    length_bucketing: see `FinetuningTask`.
    recipe: another recipe of the same task, such as race_v2.
    null_score_diff_threshold: of SQuAD 2.0.
    labels: of a run that was trained before, for data without any.
    note: is told what is being done.
  """

  data_dir: str
  cache_dir: str
  tokenizer: tokenization.Tokenizer
  max_seq_length: int = 0
  max_train_examples: int = 0
  max_eval_examples: int = 0
  files: Mapping[str, str] = dataclasses.field(default_factory=dict)
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  length_bucketing: bool = True
  recipe: str = ""
  null_score_diff_threshold: Optional[float] = None
  labels: Optional[Sequence[str]] = None
  note: Callable[[str], None] = print

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
  recipe: Any
  best_metric: str
  eval_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  def __init__(self, options: Options):
    self.options = options
    self._read_splits: dict[str, Sequence[Any]] = {}

  def examples(self, split: str) -> Sequence[Any]:
    """The examples of a split that are wanted; read once."""
    if split not in self._read_splits:
      self._read_splits[split] = self.options.limit(split, self._read(split))
    return self._read_splits[split]

  def _read(self, split: str) -> Sequence[Any]:
    raise NotImplementedError

  @property
  def max_seq_length(self) -> int:
    """S."""
    return self.options.max_seq_length or self.recipe.max_seq_length

  @property
  def flags(self) -> dict[str, Any]:
    """The recipe's values for flags of a training run."""
    names = (
      "learning_rate",
      "train_batch_size",
      "num_train_steps",
      "num_warmup_steps",
    )
    recipe = dataclasses.asdict(self.recipe)
    return {name: recipe[name] for name in names if name in recipe}

  def has_split(self, split: str) -> bool:
    """Whether there is data for a split."""
    raise NotImplementedError

  def num_train_examples(self) -> int:
    """Examples in an epoch, of SQuAD windows."""
    return len(self.examples("train"))

  def make_task(
    self,
    splits: Sequence[str],
    config: config_lib.AlbertConfig,
    settings: finetuning_task.ModelSettings,
    seed: int,
  ) -> finetuning_task.FinetuningTask:
    """Reads the splits, makes their records, and the task on them.

    Raises:
      ValueError, OSError: the data is not as it should be.
    """
    raise NotImplementedError

  def majority(self, split: str) -> dict[str, float]:
    """The metrics of who always gives the commonest answer."""
    raise NotImplementedError
