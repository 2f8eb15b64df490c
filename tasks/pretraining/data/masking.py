"""N-gram masking of whole words: chooses and replaces the tokens to predict.

A sequence is divided into units: words, or single pieces without whole-word
masking. The units are visited in random order. Each visit draws a length n with
p(n) ~ 1/n and takes n units from that position. It takes fewer units at the end
of a segment or of the budget of predictions, and none if one of them is already
taken. Of the chosen tokens, 80% become [MASK], 10% stay and 10% become a random
piece.

Deviation: the lengths come from the same seeded generator as everything else.
The original draws them from NumPy's global generator, which its --random_seed
does not seed, so two runs never write the same records.

arXiv 1909.11942 section 3.1 and 4.1; reference: google-research/albert
create_pretraining_data.py (create_masked_lm_predictions).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from official_albert.tasks.pretraining.data.settings import (
  KEEP_SHARE,
  MASK_SHARE,
)


def choose_ngrams(
  starts: np.ndarray,
  first_separator: int,
  budget: int,
  thresholds: np.ndarray,
  rng: np.random.Generator,
  across_separator: bool = False,
) -> tuple[np.ndarray, list[int]]:
  """Chooses whole n-grams of units, at most `budget` tokens in total.

  Deviation: no n-gram reaches across [SEP]. The original's list of words skips
  [CLS] and [SEP] without a break, so the last word of A and the first of B can
  form an n-gram, and a piece at the start of B that does not start a word is
  joined to the last word of A.

  Args:
    starts: <bool>[L], True where a unit starts and at [CLS] and both [SEP]. The
      first token of a segment always starts a unit, because truncation may have
      cut its first word.
    first_separator: the position of the first [SEP]; the second is at L - 1.
    budget: the maximum number of tokens.
    thresholds: <float64>[ngram - 1], see `ExampleSettings`.
    rng: the generator for the order of the units and the lengths.
    across_separator: as in the original, for --masking=compat.

  Returns:
    The chosen positions <int64>[M], ascending, and the number of units of each
    n-gram, in order of selection.
  """
  places = np.arange(len(starts))
  ends: Any
  if across_separator:
    places = np.delete(places[:-1], [0, first_separator])
    edges = np.flatnonzero(starts[places])
    # The first piece always starts a unit; the end of the text closes the last.
    edges = np.concatenate([[0], edges[edges > 0], [len(places)]])
    ends = len(edges) - 1
    units = rng.permutation(ends)
  else:
    starts = starts.copy()
    starts[[1, first_separator + 1]] = True
    edges = np.flatnonzero(starts)
    last = len(edges) - 1  # Index of the second [SEP].
    middle = int(np.searchsorted(edges, first_separator))
    units = rng.permutation(last - 2) + 1  # Without [CLS], ...
    units += units >= middle  # ... the first [SEP] and the second.
    ends = np.where(units < middle, middle, last)
  lengths = 1 + np.searchsorted(thresholds, rng.random(len(units)), "right")
  ends = np.minimum(units + lengths, ends)
  chosen, ngram_lengths = _take_ngrams(edges, units, ends, budget)
  return places[chosen], ngram_lengths


def _take_ngrams(
  edges: np.ndarray, units: np.ndarray, ends: np.ndarray, budget: int
) -> tuple[np.ndarray, list[int]]:
  """Takes each n-gram in order if it is free and fits into the budget.

  `edges` <int>[U + 1] are the starts of the units and the end of the last.
  N-gram n has the units from units[n] to ends[n] - 1, or only the first few of
  them if the budget is short.
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
    # Skip it, as in the original: words stay whole.
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
  """Returns <int32>[L] with [MASK], the token or a random piece at `positions`.

  The choice is made for each token, even within an n-gram.
  """
  choice = rng.random(len(positions))
  random = replacement_ids[
    rng.integers(len(replacement_ids), size=len(positions))
  ]
  replaced = tokens.copy()
  replaced[positions] = np.where(
    choice < MASK_SHARE,
    mask_id,
    np.where(choice < MASK_SHARE + KEEP_SHARE, tokens[positions], random),
  )
  return replaced
