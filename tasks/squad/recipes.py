"""How the paper fine-tunes on SQuAD.

Source: arXiv 1909.11942, table 14; windows and decoding are the defaults of
run_squad_v1.py and run_squad_v2.py of google-research/albert.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Settings of fine-tuning on one version of SQuAD.

  Attributes:
    learning_rate: the peak, at the end of the warm-up.
    train_batch_size: windows in a step.
    num_train_steps: in all.
    num_warmup_steps: of them, at the start.
    albert_dropout: of hidden states and attention.
    classifier_dropout: of the head that decides if there is an answer; SQuAD
      1.1 has none.
    max_seq_length: tokens of a window with its question.
    doc_stride: tokens from one window of a context to the next.
    max_query_length: tokens of a question; the rest is cut.
    n_best_size: candidates of a question.
    max_answer_length: tokens of an answer, at most.
    start_n_top: starts that are kept when predicting; SQuAD 2.0 only.
    end_n_top: ends that are kept for each of them; SQuAD 2.0 only.
  """

  learning_rate: float
  train_batch_size: int
  num_train_steps: int
  num_warmup_steps: int
  albert_dropout: float
  classifier_dropout: float
  max_seq_length: int
  doc_stride: int = 128
  max_query_length: int = 64
  n_best_size: int = 20
  max_answer_length: int = 30
  start_n_top: int = 5
  end_n_top: int = 5


RECIPES = {
  "squad_v1": Recipe(
    learning_rate=5e-5,
    train_batch_size=48,
    num_train_steps=3649,
    num_warmup_steps=365,
    albert_dropout=0.0,
    classifier_dropout=0.1,
    max_seq_length=384,
  ),
  "squad_v2": Recipe(
    learning_rate=3e-5,
    train_batch_size=48,
    num_train_steps=8144,
    num_warmup_steps=814,
    albert_dropout=0.0,
    classifier_dropout=0.1,
    max_seq_length=512,
  ),
}
