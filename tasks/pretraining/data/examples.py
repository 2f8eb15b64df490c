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
  separator = len(pair.a) + 1
  length = separator + len(pair.b) + 2
  tokens = np.empty(length, np.int32)
  tokens[0] = tokenizer.cls_id
  tokens[1:separator] = pair.a
  tokens[separator] = tokenizer.sep_id
  tokens[separator + 1 : -1] = pair.b
  tokens[-1] = tokenizer.sep_id
  boundary = tokenizer.word_start_table[tokens]
  boundary[[0, separator, -1]] = True
  shown, positions = tokens, np.zeros(0, np.int64)
  if settings.masking != "dynamic":
    is_compat = settings.masking == "compat"
    positions, _ = masking.choose_ngrams(
      boundary if settings.do_whole_word_mask else np.ones(length, bool),
      separator,
      num_to_predict(
        length, settings.masked_lm_prob, settings.max_predictions_per_seq
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
  sequence = (len(instances), settings.max_seq_length)
  predictions = (len(instances), settings.max_predictions_per_seq)
  ids, mask, segments, boundary, original = np.zeros((5, *sequence), np.int32)
  positions, labels = np.zeros((2, *predictions), np.int32)
  weights = np.zeros(predictions, np.float32)
  for row, instance in enumerate(instances):
    length = len(instance.original)
    count = len(instance.positions)
    original[row, :length] = instance.original
    ids[row, :length] = instance.shown
    mask[row, :length] = 1
    # [CLS] A [SEP] is segment 0, B [SEP] is 1.
    segments[row, instance.first_separator + 1 : length] = 1
    boundary[row, :length] = instance.boundary
    positions[row, :count] = instance.positions
    labels[row, :count] = instance.original[instance.positions]
    weights[row, :count] = 1.0
  features = {
    "input_ids": ids,
    "input_mask": mask,
    "segment_ids": segments,
    "token_boundary": boundary,
    "next_sentence_labels": np.array(
      [[instance.label] for instance in instances], np.int32
    ).reshape(-1, 1),
  }
  if settings.masking == "dynamic":
    return features
  restored = ids.copy()
  rows, columns = np.nonzero(weights)
  restored[rows, positions[rows, columns]] = labels[rows, columns]
  repeats = (np.diff(positions) <= 0) & (weights[:, 1:] > 0)
  # `python -O` would skip assert statements.
  if repeats.any() or (restored != original).any():
    raise AssertionError(
      "an example has a position twice or does not restore its text."
    )
  return {
    **features,
    "masked_lm_positions": positions,
    "masked_lm_ids": labels,
    "masked_lm_weights": weights,
  }
