"""Settings of fine-tuning: a task's recipe and its data."""

from __future__ import annotations

import dataclasses
from typing import Callable, Mapping, Optional, Sequence

from official_albert import tokenization
from official_albert.settings import check, setting


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The settings for fine-tuning on one task, as in arXiv 1909.11942, Table 14.

  `train_batch_size` counts windows of SQuAD, and questions of RACE with four
  sequences each. If `num_train_steps` is 0, there are `num_train_epochs`, and
  the rate rises during the first tenth of the steps.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float = setting(
    0.0,
    "Dropout of hidden states and attention; by default that of Table 14.",
    least=0,
    below=1,
  )
  classifier_dropout: float = setting(
    0.1,
    "Dropout before the head; by default that of Table 14.",
    least=0,
    below=1,
  )
  max_seq_length: int = 512
  num_train_epochs: float = 0.0

  def __post_init__(self):
    check(self)


@dataclasses.dataclass(frozen=True)
class TaskOptions:
  """The location of a task's data and the settings for its preparation.

  Attributes (without those that have the help of a flag):
    tokenizer: None if no records are built.
    recipe: fields of the recipe to change.
    chosen_threshold: that of an earlier evaluation of SQuAD 2.0, until the next
      one.
    thresholds: those of labels by an earlier evaluation, until the next one.
    labels: the labels of an earlier run, for data without labels.
    trained_on: the form of the rows of an earlier run of embeddings.
    note: called with lines for the log.
  """

  data_dir: str = setting(
    "",
    "Folder of the task, or one that contains it: of GLUE, SQuAD or RACE.",
    is_path=True,
  )
  train_file: str = setting(
    "", "The train data, if it has no official name.", is_path=True
  )
  dev_file: str = setting(
    "", "The dev data, if it has no official name.", is_path=True
  )
  test_file: str = setting(
    "", "The test data, if it has no official name.", is_path=True
  )
  dev_share: float = setting(
    0.0,
    "Share of the rows of --train_file to hold out, instead of --dev_file; 0: "
    "none, or that of the run.",
    least=0,
    most=1,
  )
  text_column: str = setting("text", "Column of the text.")
  text_b_column: str = setting("text_b", "Column of the second text of a pair.")
  text_c_column: str = setting(
    "text_c", "Column of a text that does not belong to the first."
  )
  label_column: str = setting(
    "label",
    "Column of the label; for several labels of a text, of lists of them, or "
    "comma-separated columns with 0 and 1.",
  )
  label_separator: str = setting(
    ",", "What separates the labels in a cell of several."
  )
  class_weights: str = setting(
    "",
    "Weights of the classes in the loss: balanced, by their numbers in the "
    "training data, or LABEL=WEIGHT,..., where others have 1; for several "
    "labels of a text, of the texts that have the label.",
  )
  id_column: str = setting("", "Column of the ids; by default the row numbers.")
  cache_dir: str = setting(
    "",
    "Folder for records; by default the folder records in --output_dir.",
    is_path=True,
  )
  max_seq_length: int = setting(
    0, "Maximum tokens of an example; 0: as in the paper.", least=0
  )
  max_train_examples: int = setting(
    0,
    "Train on this many examples, evenly spaced in the data; 0: all.",
    least=0,
  )
  max_eval_examples: int = setting(
    0,
    "Evaluate and predict this many, evenly spaced in the data; 0: all.",
    least=0,
  )
  length_bucketing: bool = setting(
    True,
    "Put examples of similar length into a batch, and compute no padding; "
    "otherwise, and always on TPUs, all are padded to the maximum.",
  )
  recompute_activations: bool = setting(
    False,
    "Keep only the input of each block for the gradient: less memory, more "
    "time.",
  )
  null_score_diff_threshold: Optional[float] = setting(
    None,
    "SQuAD 2.0: higher null odds mean no answer. By default 0 for exact and f1 "
    "of the dev file; its best value for test data and exports.",
  )
  skip_invalid: bool = setting(
    False,
    "Leave out, and count, invalid rows of your own tables, such as empty "
    "texts, and invalid questions of SQuAD; otherwise they are refused.",
  )
  tokenizer: Optional[tokenization.Tokenizer] = None
  recipe: Mapping[str, float] = dataclasses.field(default_factory=dict)
  chosen_threshold: Optional[float] = None
  thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
  labels: Optional[Sequence[str]] = None
  trained_on: str = ""
  note: Callable[[str], None] = print

  def file_of(self, split: str) -> str:
    """Returns the user's file of a split, or ""."""
    return getattr(self, f"{split}_file", "")

  @property
  def columns(self) -> dict[str, str]:
    """The columns of the user's own data by role."""
    roles = ("text", "text_b", "label", "id")
    return {role: getattr(self, f"{role}_column") for role in roles}
