"""Settings to fine-tune on RACE with.

"race" is the paper's (arXiv 1909.11942, Table 14), "race_v2" that of the
README of google-research/albert for the v2 models: a lower rate and no dropout
in the encoder, because the first one diverges with them. With these, the
original reports 0.640 (base v1) to 0.868 (xxlarge v2) on the development set.
Not yet run here.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Mapping


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune.

  Attributes:
    learning_rate: its peak.
    train_batch_size: questions in an update, each of four sequences.
    num_train_steps: updates.
    num_warmup_steps: of these, those in which the rate rises.
    albert_dropout: of the encoder, in the hidden layers and the attention.
    classifier_dropout: of the pooled output.
    max_seq_length: tokens in a sequence at most.
    max_qa_length: of these, tokens of question and option at most.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float
  classifier_dropout: float
  max_seq_length: int
  max_qa_length: int


_RACE = Recipe(
  learning_rate=2e-5,
  train_batch_size=32,
  num_train_steps=12_000,
  num_warmup_steps=1_000,
  albert_dropout=0.1,
  classifier_dropout=0.1,
  max_seq_length=512,
  # Of the original's run_race.py; Table 14 does not name it.
  max_qa_length=128,
)

RECIPES: Mapping[str, Recipe] = types.MappingProxyType(
  {
    "race": _RACE,
    "race_v2": dataclasses.replace(
      _RACE, learning_rate=1e-5, albert_dropout=0.0
    ),
  }
)
