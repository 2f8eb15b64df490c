"""Settings of pretraining examples, which flags and dynamic masking need too.

Only NumPy is imported.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

# Static masks are drawn once, when records are made; dynamic masks in each
# epoch of the training; compat masks once, with all quirks of the original.
MASKING_KINDS = ("static", "dynamic", "compat")
PAIR_KINDS = ("sop", "nsp", "none")
# The original has no "none".
COMPAT_PAIR_KINDS = ("sop", "nsp")

# Shares of the chosen tokens; the others become random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1

# [CLS] A [SEP] B [SEP] with one token in A and one in B.
_MIN_SEQ_LENGTH = 5


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
  """Settings of an example, with the names and defaults of the original.

  Attributes:
    max_seq_length: S.
    max_predictions_per_seq: P, the maximum number of predictions in a sequence.
    masked_lm_prob: share of a sequence's tokens to predict, above 0.
    ngram: maximum number of words in a masked n-gram.
    favor_shorter_ngram: p(n) ~ 1/n; otherwise the longest are the likeliest.
    do_whole_word_mask: whether to mask whole words instead of single pieces.
    short_seq_prob: share of documents cut to a random shorter length.
    masking: one of `MASKING_KINDS`. With "dynamic", records are not masked and
      the segments of "sop" are not swapped; training does both.
    sentence_pair: "sop": A and B in order (label 0) or swapped (1);
      "nsp": B follows A (0) or is from another document (1); "none": always
      in order, always 0.
  """

  max_seq_length: int = 512
  max_predictions_per_seq: int = 20
  masked_lm_prob: float = 0.15
  ngram: int = 3
  favor_shorter_ngram: bool = True
  do_whole_word_mask: bool = True
  short_seq_prob: float = 0.1
  masking: str = "static"
  sentence_pair: str = "sop"

  def __post_init__(self):
    for name, least in (
      ("max_seq_length", _MIN_SEQ_LENGTH),
      ("max_predictions_per_seq", 1),
      ("ngram", 1),
    ):
      if getattr(self, name) < least:
        raise ValueError(
          f"{name} is {getattr(self, name)}, but must be at least {least}."
        )
    for name in ("masked_lm_prob", "short_seq_prob"):
      if not 0 <= getattr(self, name) <= 1:
        raise ValueError(
          f"{name} is {getattr(self, name)}, but must be from 0 to 1."
        )
    if self.masked_lm_prob == 0:
      raise ValueError(
        "masked_lm_prob is 0, but must be above 0, because training needs "
        "predictions; for records without masks, use --masking=dynamic."
      )
    for name, kinds in (
      ("masking", MASKING_KINDS),
      ("sentence_pair", PAIR_KINDS),
    ):
      if getattr(self, name) not in kinds:
        raise ValueError(
          f"{name} is {getattr(self, name)!r}, but must be one of "
          f"{', '.join(kinds)}."
        )
    if self.masking == "compat" and self.sentence_pair not in COMPAT_PAIR_KINDS:
      raise ValueError(
        f"sentence_pair is {self.sentence_pair!r}, but masking compat has only "
        f"the kinds of the original: {', '.join(COMPAT_PAIR_KINDS)}."
      )

  @functools.cached_property
  def ngram_thresholds(self) -> np.ndarray:
    """See `ngram_thresholds`."""
    return ngram_thresholds(self.ngram, self.favor_shorter_ngram)


def ngram_probabilities(
  ngram: int, favor_shorter_ngram: bool = True
) -> np.ndarray:
  """Returns p(n) ~ 1/n for n = 1..ngram, or the reverse, <float64>[ngram].

  For ngram 3 they are 6/11, 3/11 and 2/11.
  """
  weights = 1.0 / np.arange(1, ngram + 1)
  probabilities = weights / weights.sum()
  return probabilities if favor_shorter_ngram else probabilities[::-1]


def ngram_thresholds(ngram: int, favor_shorter_ngram: bool) -> np.ndarray:
  """Returns the cumulative probabilities but the last, <float64>[ngram - 1].

  n is 1 plus the number of thresholds that a uniform draw reaches.
  """
  return np.cumsum(ngram_probabilities(ngram, favor_shorter_ngram))[:-1]


def num_to_predict(
  length: int, masked_lm_prob: float, max_predictions_per_seq: int
) -> int:
  """Returns the number of predictions in a sequence, at least 1.

  `length` includes [CLS] and [SEP]. Halves are rounded to even by Python's
  `round`, as in the original.
  """
  wanted = max(1, int(round(length * masked_lm_prob)))
  return min(max_predictions_per_seq, wanted)
