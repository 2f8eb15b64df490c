"""Settings of fine-tuning: a task's recipe, and what it changes in a model."""

from __future__ import annotations

import dataclasses

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


@dataclasses.dataclass(frozen=True)
class ModelSettings:
  """What fine-tuning changes in a pretrained model.

  Attributes:
    albert_dropout: the dropout of hidden states and attention in the encoder.
    classifier_dropout: the dropout of the head's input.
    recompute_activations: see `AlbertModel`.
  """

  albert_dropout: float = setting(0.0, least=0, below=1)
  classifier_dropout: float = setting(0.1, least=0, below=1)
  recompute_activations: bool = False

  def __post_init__(self):
    check(self)
