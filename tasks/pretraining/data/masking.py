"""N-gram whole-word masking: which tokens a model must predict, and how.

A sequence is cut into units (words, or single pieces without whole-word
masking). Units are visited in random order; each visit draws a length n with
p(n) ~ 1/n and takes the n units from there on, fewer where the segment ends
or the budget of predictions would be overdrawn, none where one of them is
taken already. Of the chosen tokens 80% become [MASK], 10% stay, 10% become a
random piece.

Deviation: the lengths come from the same seeded generator as all else. The
original draws them from NumPy's global one, which its --random_seed leaves
alone, so that it never writes the same records twice.

arXiv 1909.11942 section 3.1 and 4.1; reference: google-research/albert
create_pretraining_data.py (create_masked_lm_predictions).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasks.pretraining.data.example_settings import KEEP_SHARE, MASK_SHARE


class MaskedTokens(NamedTuple):
  """The choice of M tokens of a sequence of length L.

  Attributes:
    tokens: <int32>[L], the sequence as the model gets it.
    positions: <int32>[M], ascending.
    labels: <int32>[M], the tokens that were there.
    ngram_lengths: units taken by each n-gram, in the order they were chosen.
  """

  tokens: np.ndarray
  positions: np.ndarray
  labels: np.ndarray
  ngram_lengths: list[int]


def choose_ngrams(
  starts: np.ndarray,
  first_separator: int,
  budget: int,
  thresholds: np.ndarray,
  rng: np.random.Generator,
) -> tuple[np.ndarray, list[int]]:
  """Chooses whole n-grams of units, at most `budget` tokens in total.

  Deviation: no n-gram reaches across [SEP]. The original's list of words skips
  [CLS] and [SEP] without breaking there, so that the last word of A and the
  first of B can be one n-gram, and a piece that does not start a word is glued
  to the word before the [SEP].

  Args:
    starts: <bool>[L], True where a unit starts and at [CLS] and both [SEP]. A
      segment begins with a unit whatever stands there, for truncation may have
      cut its first word.
    first_separator: position of the first [SEP]; the second is at L - 1.
    budget: tokens to choose.
    thresholds: <float64>[ngram - 1], see `example_settings.ngram_thresholds`.
    rng: draws the order of units and the lengths.

  Returns:
    <int64>[M] chosen positions, ascending, and the lengths of the n-grams in
    units, in the order they were chosen.
  """
  starts = starts.copy()
  starts[[1, first_separator + 1]] = True
  edges = np.flatnonzero(starts)
  last = len(edges) - 1  # Index of the second [SEP].
  middle = int(np.searchsorted(edges, first_separator))
  units = rng.permutation(last - 2) + 1  # Without [CLS], ...
  units += units >= middle  # ... the first [SEP] and the second.
  lengths = 1 + np.searchsorted(thresholds, rng.random(last - 2), "right")
  ends = np.minimum(units + lengths, np.where(units < middle, middle, last))

  return take_ngrams(edges, units, ends, budget)


def take_ngrams(
  edges: np.ndarray, units: np.ndarray, ends: np.ndarray, budget: int
) -> tuple[np.ndarray, list[int]]:
  """Takes n-grams in turn, each if it is free and the budget allows.

  Args:
    edges: <int>[U + 1], ascending, where units begin; the last one's end.
    units: <int>[N], each n-gram's first unit, in the order of the visits.
    ends: <int>[N], the unit that each n-gram ends before. It may shrink to
      one unit where the budget is short.
    budget: tokens to take, at most.

  Returns:
    <int64>[M] places taken, ascending, and the units of each n-gram taken.
  """
  edge = edges.tolist()
  covered = bytearray(edge[-1])
  taken = []
  for unit, end in zip(units.tolist(), ends.tolist()):
    start = edge[unit]
    size = edge[end] - start
    while size > budget and end > unit + 1:
      end -= 1
      size = edge[end] - start
    # Skipped rather than cut, as in the original: words stay whole.
    if size > budget or covered.find(1, start, start + size) >= 0:
      continue
    covered[start : start + size] = b"\x01" * size
    taken.append(end - unit)
    budget -= size
    if not budget:
      break
  return np.flatnonzero(np.frombuffer(covered, np.uint8)), taken


def replace_tokens(
  tokens: np.ndarray,
  positions: np.ndarray,
  mask_id: int,
  replacement_ids: np.ndarray,
  rng: np.random.Generator,
) -> np.ndarray:
  """A copy of `tokens` with 80% / 10% / 10% of `positions` replaced.

  Each token draws for itself, also within an n-gram.

  Args:
    tokens: <int32>[L].
    positions: <int>[M].
    mask_id: id of [MASK].
    replacement_ids: <int32>[R], the pieces that a random one is drawn from.
    rng: draws both what to do and the random pieces.

  Returns:
    <int32>[L].
  """
  choice = rng.random(len(positions))
  random = replacement_ids[
    rng.integers(len(replacement_ids), size=len(positions))
  ]
  kept = tokens[positions]
  replaced = tokens.copy()
  replaced[positions] = np.where(
    choice < MASK_SHARE,
    mask_id,
    np.where(choice < MASK_SHARE + KEEP_SHARE, kept, random),
  )
  return replaced
