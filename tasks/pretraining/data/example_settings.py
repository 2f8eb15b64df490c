"""The settings of examples, apart from the code that makes examples.

Flags and masking while training need these alone. numpy only.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

# Drawn once, when records are made; anew in each epoch, while training; or
# once with all quirks of the original.
MASKING_KINDS = ("static", "dynamic", "compat")
PAIR_KINDS = ("sop", "nsp", "none")
# The original has no "none".
COMPAT_PAIR_KINDS = ("sop", "nsp")

# Of the chosen tokens; the rest becomes random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1

# [CLS] A [SEP] B [SEP] with one token in A and one in B.
_MIN_SEQ_LENGTH = 5


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
  """What shapes an example; names and defaults are those of the original.

  Attributes:
    max_seq_length: S.
    max_predictions_per_seq: P, most predictions in a sequence.
    masked_lm_prob: share of a sequence's tokens to predict, above 0.
    ngram: most words in a masked n-gram.
    favor_shorter_ngram: p(n) ~ 1/n; the longest are the likeliest otherwise.
    do_whole_word_mask: mask whole words rather than single pieces.
    short_seq_prob: share of documents cut to a random shorter length.
    masking: when masks are drawn, one of `MASKING_KINDS`. With "dynamic"
      examples are unmasked here, and the swap of "sop" is left to training,
      too.
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
        "masked_lm_prob is 0, but must be above 0, or there is nothing to "
        "learn from; records without masks are made with --masking=dynamic."
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
        f"what the original has: {', '.join(COMPAT_PAIR_KINDS)}."
      )

  @functools.cached_property
  def ngram_thresholds(self) -> np.ndarray:
    """See `ngram_thresholds`."""
    return ngram_thresholds(self.ngram, self.favor_shorter_ngram)


def ngram_probabilities(
  ngram: int, favor_shorter_ngram: bool = True
) -> np.ndarray:
  """<float64>[ngram]: p(n) ~ 1/n for n = 1..ngram, or in reverse.

  6/11, 3/11, 2/11 for ngram 3.
  """
  weights = 1.0 / np.arange(1, ngram + 1)
  probabilities = weights / weights.sum()
  return probabilities if favor_shorter_ngram else probabilities[::-1]


def ngram_thresholds(ngram: int, favor_shorter_ngram: bool) -> np.ndarray:
  """<float64>[ngram - 1]: a uniform draw is at or above as many as n - 1."""
  return np.cumsum(ngram_probabilities(ngram, favor_shorter_ngram))[:-1]


def num_to_predict(
  length: int, masked_lm_prob: float, max_predictions_per_seq: int
) -> int:
  """Predictions in a sequence of `length` tokens, [CLS] and [SEP] counted.

  At least one, as in the original; a half is rounded to the even neighbour
  (Python's `round`).
  """
  wanted = max(1, int(round(length * masked_lm_prob)))
  return min(max_predictions_per_seq, wanted)
