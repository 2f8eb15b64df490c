"""Turns documents into masked, labeled examples for masked LM and SOP.

`sentence_pairs` cuts a document into pairs of segments A and B. This module
joins a pair to `[CLS] A [SEP] B [SEP]`, calls `masking` to choose the tokens to
predict, and pads examples to the features of the records.

arXiv 1909.11942 section 3.1; reference: google-research/albert
create_pretraining_data.py (create_instances_from_document,
write_instance_to_example_files).
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Sequence

import numpy as np

from official_albert import tokenization
from official_albert.tasks.pretraining.data import masking, sentence_pairs
from official_albert.tasks.pretraining.data.settings import (
  ExampleSettings,
  num_to_predict,
)


class Instance(NamedTuple):
  """One example of length L, with M tokens to predict, before padding.

  Attributes:
    original: <int32>[L], `[CLS] A [SEP] B [SEP]`.
    shown: <int32>[L], the masked sequence, which is the model's input.
    positions: <int>[M], the positions to predict, ascending; none with dynamic
      masking.
    boundary: <bool>[L], True at [CLS], [SEP] and every piece that starts a
      word.
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
  cls_id, sep_id, separator = (
    tokenizer.cls_id,
    tokenizer.sep_id,
    len(pair.a) + 1,
  )
  parts = [cls_id], pair.a, [sep_id], pair.b, [sep_id]
  tokens = np.concatenate(parts, dtype=np.int32)
  boundary = tokenizer.word_start_table[tokens]
  boundary[[0, separator, -1]] = True
  shown, positions = tokens, np.zeros(0, np.int64)
  if settings.masking != "dynamic":
    is_compat = settings.masking == "compat"
    positions, _ = masking.choose_ngrams(
      boundary if settings.do_whole_word_mask else np.ones_like(boundary),
      separator,
      num_to_predict(
        len(tokens), settings.masked_lm_prob, settings.max_predictions_per_seq
      ),
      settings.ngram_thresholds,
      rng,
      is_compat,
    )
    pieces = _replacement_ids(
      tokenizer.vocab_size, frozenset() if is_compat else tokenizer.special_ids
    )
    shown = masking.replace_tokens(
      tokens, positions, tokenizer.mask_id, pieces, rng
    )
  return Instance(tokens, shown, positions, boundary, separator, pair.label)


@functools.lru_cache(2)
def _replacement_ids(vocab_size: int, special: frozenset[int]) -> np.ndarray:
  """Returns the ids of random replacements, ascending, <int32>[R].

  Deviation: special pieces are excluded. The original also draws <pad>, [CLS],
  [SEP] and [MASK], and so does --masking=compat.
  """
  return np.delete(np.arange(vocab_size, dtype=np.int32), sorted(special))


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
  rows, columns = np.nonzero(weights)
  restored = shown.copy()
  restored[rows, positions[rows, columns]] = labels[rows, columns]
  repeats = (np.diff(positions) <= 0) & weights[:, 1:]
  # `python -O` would skip assert statements.
  original = _pad([x.original for x in instances], length)
  if repeats.any() or (restored != original).any():
    raise AssertionError(
      "an example has a position twice or does not restore its text."
    )
  return {
    **features,
    "masked_lm_positions": positions,
    "masked_lm_ids": labels,
    "masked_lm_weights": weights.astype(np.float32),
  }


def _pad(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
  """Returns <int32>[N, length], filled with zeros."""
  padded = np.zeros((len(rows), length), np.int32)
  for place, row in zip(padded, rows):
    place[: len(row)] = row
  return padded
