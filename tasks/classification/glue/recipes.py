"""Settings to fine-tune with on GLUE: arXiv 1909.11942, Table 14.

The run_glue.sh of google-research/albert has the same rates, batches, steps and
warm-ups for eight tasks (not WNLI). It can't set the encoder's dropout of QQP,
RTE and WNLI, which there is a setting of the model's JSON.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How to fine-tune on one task.

  Attributes:
    learning_rate: the peak, of AdamW.
    train_batch_size: examples in one update.
    num_train_steps: updates.
    num_warmup_steps: of them, with a rising rate.
    albert_dropout: of hidden states and attention, within the encoder.
    classifier_dropout: of the pooled output.
    max_seq_length: tokens of an example at most, special ones included.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float
  classifier_dropout: float = 0.1
  max_seq_length: int = 512


# Rate, batch, steps, warm-up, the encoder's dropout.
GLUE_RECIPES: Mapping[str, Recipe] = {
  "cola": Recipe(1e-5, 16, 5336, 320, 0.0),
  "sst2": Recipe(1e-5, 32, 20935, 1256, 0.0),
  "mrpc": Recipe(2e-5, 32, 800, 200, 0.0),
  "stsb": Recipe(2e-5, 16, 3598, 214, 0.0),
  "qqp": Recipe(5e-5, 128, 14000, 1000, 0.1),
  "mnli": Recipe(3e-5, 128, 10000, 1000, 0.0),
  "qnli": Recipe(1e-5, 32, 33112, 1986, 0.0),
  "rte": Recipe(3e-5, 32, 800, 200, 0.1),
  "wnli": Recipe(2e-5, 16, 2000, 250, 0.1),
}
