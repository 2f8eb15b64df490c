"""Settings of pretraining examples, also for flags and dynamic masking."""

from __future__ import annotations

import dataclasses
import functools
from typing import Optional

import numpy as np

from official_albert.settings import check, setting

# Shares of the chosen tokens; the rest becomes random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1
# The paper's share of tokens to mask.
MASKED_LM_PROB = 0.15

# [CLS] A [SEP] B [SEP] with one token in A and one in B.
_MIN_SEQ_LENGTH = 5
# Attention over more would need more than 200 GB, with 12 heads in bfloat16.
_MAX_SEQ_LENGTH = 2**16


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
  """Settings of an example, named as in google-research/albert.

  Deviation: the number of predictions follows from the other settings. The
  original's is 20 for any length, which is 3.9% of 512 tokens.
  """

  max_seq_length: int = setting(
    512,
    "Tokens of an example, including [CLS] and [SEP].",
    least=_MIN_SEQ_LENGTH,
    most=_MAX_SEQ_LENGTH,
  )
  max_predictions_per_seq: Optional[int] = setting(
    None,
    "Maximum number of masked tokens of an example; default: masked_lm_prob x "
    "max_seq_length, rounded.",
    least=1,
    most=_MAX_SEQ_LENGTH,
  )
  masked_lm_prob: float = setting(
    MASKED_LM_PROB, "Share of tokens to mask.", least=0, most=1
  )
  ngram: int = setting(
    3, "Maximum length of an n-gram.", least=1, most=_MAX_SEQ_LENGTH
  )
  favor_shorter_ngram: bool = setting(
    True, "Draw n with p(n) ~ 1/n, or in reverse."
  )
  do_whole_word_mask: bool = setting(True, "Mask all pieces of a word or none.")
  short_seq_prob: float = setting(
    0.1, "Share of documents cut to a random shorter length.", least=0, most=1
  )
  masking: str = setting(
    "static",
    "static: masks are drawn here, once for each duplicate; dynamic: in each "
    "epoch of the training, as are the swaps of sop; compat: here, with the "
    "original's quirks.",
    ("static", "dynamic", "compat"),
  )
  sentence_pair: str = setting(
    "sop",
    "sop: A and B in order (label 0) or swapped (1); nsp: B follows A (0) or "
    "is from another document (1); none: always in order.",
    ("sop", "nsp", "none"),
  )

  def __post_init__(self):
    check(self)
    if self.max_predictions_per_seq is None:
      predictions = num_to_predict(self.max_seq_length, self.masked_lm_prob)
      object.__setattr__(self, "max_predictions_per_seq", predictions)
    if self.masked_lm_prob == 0:
      raise ValueError(
        "masked_lm_prob is 0, but must be above 0, because training needs "
        "predictions; for records without masks, use --masking=dynamic."
      )
    if (self.masking, self.sentence_pair) == ("compat", "none"):
      raise ValueError(
        "sentence_pair is 'none', but masking compat has only the kinds of "
        "the original: sop, nsp."
      )

  @functools.cached_property
  def ngram_thresholds(self) -> np.ndarray:
    """The cumulative probabilities except 1, <float64>[ngram - 1].

    p(n) ~ 1/n for n = 1..ngram, or the reverse; for ngram 3 they are 6/11, 3/11
    and 2/11. n is 1 plus the number of thresholds that a uniform draw reaches.
    """
    weights = 1.0 / np.arange(1, self.ngram + 1)
    probabilities = weights / weights.sum()
    if not self.favor_shorter_ngram:
      probabilities = probabilities[::-1]
    return np.cumsum(probabilities)[:-1]


def num_to_predict(
  length: int,
  masked_lm_prob: float = MASKED_LM_PROB,
  max_predictions_per_seq: Optional[int] = None,
) -> int:
  """Returns the number of predictions in a sequence, at least 1.

  `length` includes [CLS] and [SEP]. Halves are rounded to even by Python's
  `round`, as in the original.
  """
  wanted = max(1, int(round(length * masked_lm_prob)))
  return min(max_predictions_per_seq or wanted, wanted)
