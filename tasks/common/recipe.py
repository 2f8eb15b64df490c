"""Settings of fine-tuning: a task's recipe, and what it changes in a model."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune on one task, as in arXiv 1909.11942, Table 14.

  Attributes:
    learning_rate: the peak, of AdamW.
    train_batch_size: examples in an update; of SQuAD windows, of RACE
      questions with four sequences each.
    num_train_steps: updates.
    num_warmup_steps: how many of them have a rising rate.
    albert_dropout: of hidden states and attention in the encoder.
    classifier_dropout: of the head's input.
    max_seq_length: maximum tokens of a sequence, special ones included.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  max_seq_length: int = 512


@dataclasses.dataclass(frozen=True)
class ModelSettings:
  """What fine-tuning changes about a pretrained model.

  Attributes:
    albert_dropout: of hidden states and attention in the encoder.
    classifier_dropout: of the head's input.
    recompute_activations: see `AlbertModel`.
    layerwise_lr_decay: see `AlbertModel`; 1.0 trains all layers at one rate.
  """

  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  recompute_activations: bool = False
  layerwise_lr_decay: float = 1.0

  def __post_init__(self):
    for name in ("albert_dropout", "classifier_dropout"):
      if not 0 <= getattr(self, name) < 1:
        raise ValueError(
          f"{name} must be at least 0 and under 1, got {getattr(self, name)}."
        )
