"""Settings to fine-tune with on one's own texts, where nobody has a table.

Three epochs at the rate, batch and dropouts that the paper (arXiv 1909.11942,
Table 14) uses most often for single sentences and pairs; 128 tokens, because
most texts that people classify are no longer and it costs a quarter of 512.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune.

  Attributes:
    learning_rate: the peak, of AdamW.
    train_batch_size: examples in one update.
    num_train_epochs: passes over the training data, a tenth of them with a
      rising rate.
    albert_dropout: of hidden states and attention, within the encoder.
    classifier_dropout: of the pooled output.
    max_seq_length: tokens of an example at most, special ones included.
  """

  learning_rate: float = 2e-5
  train_batch_size: int = 32
  num_train_epochs: float = 3.0
  albert_dropout: float = 0.0
  classifier_dropout: float = 0.1
  max_seq_length: int = 128


RECIPES: Mapping[str, Recipe] = {
  "text_classification": Recipe(),
  "text_regression": Recipe(),
  "text_pair_classification": Recipe(),
  "text_pair_regression": Recipe(),
}
