"""Joins pairs of segments to examples, masks them, and pads them to features.

A pair becomes `[CLS] A [SEP] B [SEP]`. It is divided into units: words, or
single pieces without whole-word masking. The units are visited in random order.
Each visit draws a length n with p(n) ~ 1/n and takes n units from that
position. It takes fewer units at the end of a segment or of the budget of
predictions, and none if one of them is already taken. Of the chosen tokens, 80%
become [MASK], 10% stay and 10% become a random piece.

Deviation: the lengths come from the same seeded generator as everything else.
The original draws them from NumPy's global generator, which its --random_seed
does not seed, so two runs never write the same records.

arXiv 1909.11942 section 3.1 and 4.1; reference: google-research/albert
create_pretraining_data.py (create_instances_from_document,
create_masked_lm_predictions, write_instance_to_example_files).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Sequence

import numpy as np

from official_albert import tokenization
from official_albert.tasks.pretraining import record_rules
from official_albert.tasks.pretraining.data import sentence_pairs
from official_albert.tasks.pretraining.data.settings import (
  KEEP_SHARE,
  MASK_SHARE,
  ExampleSettings,
)


class Instance(NamedTuple):
  """One example of length L, with M tokens to predict, before padding.

  Attributes:
    original: <int32>[L], `[CLS] A [SEP] B [SEP]`.
    shown: <int32>[L], the masked sequence, which is the model's input.
    positions: <int>[M], those to predict, ascending; none with dynamic masks.
    boundary: <bool>[L], True at [CLS], [SEP] and each start of a word.
    first_separator: the position of the first [SEP].
    label: 0 for segments in order, 1 for swapped or random segments.
  """

  original: np.ndarray
  shown: np.ndarray
  positions: np.ndarray
  boundary: np.ndarray
  first_separator: int
  label: int


def create_instance(
  pair: sentence_pairs.Pair,
  tokenizer: tokenization.Tokenizer,
  settings: ExampleSettings,
  rng: np.random.Generator,
) -> Instance:
  """Joins a pair to a sequence and masks it, unless masking is dynamic."""
  separator, sep = len(pair.a) + 1, [tokenizer.sep_id]
  parts = [tokenizer.cls_id], pair.a, sep, pair.b, sep
  tokens = np.concatenate(parts, dtype=np.int32)
  boundary = tokenizer.word_start_table[tokens]
  boundary[[0, separator, -1]] = True
  shown, positions = tokens, np.zeros(0, np.int64)
  if settings.masking != "dynamic":
    is_compat = settings.masking == "compat"
    positions = choose_ngrams(
      boundary if settings.do_whole_word_mask else np.ones_like(boundary),
      separator,
      settings.num_to_predict(len(tokens)),
      settings.ngram_thresholds,
      rng,
      is_compat,
    )
    pieces = _replacement_ids(
      tokenizer.vocab_size, frozenset() if is_compat else tokenizer.special_ids
    )
    # Drawn for each token, even within an n-gram.
    choice, chosen = rng.random(len(positions)), tokens[positions]
    random = pieces[rng.integers(len(pieces), size=len(positions))]
    kept = np.where(choice < MASK_SHARE + KEEP_SHARE, chosen, random)
    shown = tokens.copy()
    shown[positions] = np.where(choice < MASK_SHARE, tokenizer.mask_id, kept)
  return Instance(tokens, shown, positions, boundary, separator, pair.label)


@functools.lru_cache(2)
def _replacement_ids(vocab_size: int, special: frozenset[int]) -> np.ndarray:
  """Returns the ids of random replacements, ascending, <int32>[R].

  Deviation: special pieces are excluded. The original also draws <pad>, [CLS],
  [SEP] and [MASK], and so does --masking=compat.
  """
  return np.delete(np.arange(vocab_size, dtype=np.int32), sorted(special))


def choose_ngrams(
  starts: np.ndarray,
  first_separator: int,
  budget: int,
  thresholds: np.ndarray,
  rng: np.random.Generator,
  across_separator: bool = False,
) -> np.ndarray:
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
    rng: the source of randomness.
    across_separator: as in the original, for --masking=compat.

  Returns:
    The chosen positions <int64>[M], ascending.
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
    # All units but [CLS], the first [SEP] and the second.
    units = rng.permutation(last - 2) + 1
    units += units >= middle
    ends = np.where(units < middle, middle, last)
  lengths = 1 + np.searchsorted(thresholds, rng.random(len(units)), "right")
  ends = np.minimum(units + lengths, ends)
  return places[_take_ngrams(edges, units, ends, budget)]


def _take_ngrams(
  edges: np.ndarray, units: np.ndarray, ends: np.ndarray, budget: int
) -> np.ndarray:
  """Takes each n-gram in order if it is free and fits into the budget.

  `edges` <int>[U + 1] are the starts of the units and the end of the last.
  N-gram n has the units from units[n] to ends[n] - 1, or the first few of them.
  """
  edge = edges.tolist()
  covered = bytearray(edge[-1])
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
    budget -= size
    if not budget:
      break
  return np.flatnonzero(np.frombuffer(covered, np.uint8))


def pad_instances(
  instances: Sequence[Instance], settings: ExampleSettings
) -> dict[str, np.ndarray]:
  """Pads N examples to the features of the records and checks them.

  Returns:
    <int32>[N, S] `input_ids`, `input_mask`, `segment_ids`, `token_boundary`;
    <int32>[N, P] `masked_lm_positions`, `masked_lm_ids`; <float32>[N, P]
    `masked_lm_weights`; <int32>[N, 1] `next_sentence_labels`. With dynamic
    masking, features that start with `masked_lm_` are missing.
  """
  length = settings.max_seq_length
  shown = _pad([x.shown for x in instances], length)
  place = np.arange(length)
  is_real = place < [[len(x.shown)] for x in instances]
  is_b = is_real & (place > [[x.first_separator] for x in instances])
  features = {
    "input_ids": shown,
    "input_mask": is_real.astype(np.int32),
    # [CLS] A [SEP] is segment 0, B [SEP] is 1.
    "segment_ids": is_b.astype(np.int32),
    "token_boundary": _pad([x.boundary for x in instances], length),
    "next_sentence_labels": np.array([[x.label] for x in instances], np.int32),
  }
  if settings.masking == "dynamic":
    return features
  most = settings.max_predictions_per_seq
  positions = _pad([x.positions for x in instances], most)
  labels = _pad([x.original[x.positions] for x in instances], most)
  weights = np.arange(most) < [[len(x.positions)] for x in instances]
  masks = positions, labels, weights.astype(np.float32)
  features |= dict(zip(record_rules.MASKED, masks))
  restored = record_rules.put_labels_back(features)
  # `python -O` would skip assert statements.
  if (restored != _pad([x.original for x in instances], length)).any():
    raise AssertionError("an example does not restore its text.")
  return features


def _pad(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
  """Returns <int32>[N, length], filled with zeros."""
  padded = np.zeros((len(rows), length), np.int32)
  for place, row in zip(padded, rows):
    place[: len(row)] = row
  return padded
