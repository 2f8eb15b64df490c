"""Settings of fine-tuning: a task's recipe, its data, changes of the model."""

from __future__ import annotations

import dataclasses
from typing import Callable, Mapping, Optional, Sequence

from official_albert import tokenization
from official_albert.settings import check, setting


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The settings for fine-tuning on one task.

  Those of the official tasks are in arXiv 1909.11942, Table 14.

  Attributes:
    learning_rate: the peak learning rate of AdamW.
    train_batch_size: examples in an update: windows of SQuAD, questions of
      RACE with four sequences each.
    num_train_steps: the number of updates; 0 if there are `num_train_epochs`.
    num_warmup_steps: the number of updates over which the rate rises.
    albert_dropout: the dropout of hidden states and attention in the encoder.
    classifier_dropout: the dropout of the head's input.
    max_seq_length: the maximum tokens of a sequence, with special ones.
    num_train_epochs: passes over the training data, instead of
      `num_train_steps`. The rate rises during the first tenth.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  max_seq_length: int = 512
  num_train_epochs: float = 0.0

  def __post_init__(self):
    check(self)


@dataclasses.dataclass(frozen=True)
class ModelSettings:
  """What fine-tuning changes in a pretrained model."""

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
  recompute_activations: bool = setting(
    False,
    "Keep only the input of each block for the gradient: less memory, more "
    "time.",
  )

  def __post_init__(self):
    check(self)


@dataclasses.dataclass(frozen=True)
class TaskOptions:
  """The location of a task's data and the settings for its preparation.

  Attributes (without those that have the help of a flag):
    cache_dir: the folder of the records.
    tokenizer: None if no records are built.
    files: the user's file for each split.
    dev_share: 0 uses the file of the dev split.
    columns: the columns of the user's data by role: text, text_b, label, id.
    recipe: fields of the recipe to change.
    null_score_diff_threshold: that of SQuAD 2.0; None chooses one.
    chosen_threshold: that of an earlier evaluation, until the next one.
    labels: the labels of an earlier run, for data without labels.
    note: called with lines for the log.
  """

  data_dir: str = ""
  cache_dir: str = ""
  tokenizer: Optional[tokenization.Tokenizer] = None
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
  files: Mapping[str, str] = dataclasses.field(default_factory=dict)
  dev_share: float = 0.0
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  recipe: Mapping[str, int] = dataclasses.field(default_factory=dict)
  length_bucketing: bool = setting(
    True,
    "Put examples of similar length into a batch; otherwise, and always on "
    "TPUs, all are padded to the maximum.",
  )
  null_score_diff_threshold: Optional[float] = None
  chosen_threshold: Optional[float] = None
  labels: Optional[Sequence[str]] = None
  skip_invalid_questions: bool = setting(
    False,
    "SQuAD: leave out questions with faults, such as an answer that is not at "
    "its answer_start; otherwise, a message counts and names them.",
  )
  note: Callable[[str], None] = print
