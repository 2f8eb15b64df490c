"""From texts with `[MASK]` to the best pieces for each, inside the graph."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from official_albert import serving
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph

_WORD_START = "\u2581"


def fill_masks(
  features: Tensors,
  text_layer: in_graph.FillMaskTextLayer,
  top_k: int,
  logits_of: Callable[[Tensors, tf.Tensor], tf.Tensor],
) -> Tensors:
  """Fills masks.

  Args:
    features: of `text_layer`.
    text_layer: has the vocabulary.
    top_k: k, pieces for each mask.
    logits_of: the model; of `input_ids`, `input_mask`, `segment_ids`
      <int32>[B, S] and positions <int32>[B, M] the masked LM's logits
      <float32>[B, M, V].

  Returns:
    For the M masks of each text, in order, and the k best pieces each:
    `tokens` <string>[B, M, k], without the word-start mark; `token_ids`
    <int32>[B, M, k]; `probabilities` <float32>[B, M, k]; `mask_positions`
    <int32>[B, M]. Texts with fewer masks than M have empty tokens,
    probability 0 and position -1 there.

  Raises (when run):
    tf.errors.InvalidArgumentError: a text has no mask, or none that fits.
  """
  features = dict(features)
  positions = features.pop("mask_positions")
  there = positions >= 0
  check = serving.refuse_unless(
    tf.reduce_all(tf.reduce_any(there, axis=1)),
    "every text needs a [MASK], written so and within its first "
    f"{text_layer.max_seq_length - 2} tokens: what is wanted in the others?",
  )
  checked = serving.after_checks([check], {"positions": positions})
  positions = checked["positions"]
  chances = tf.nn.softmax(logits_of(features, tf.maximum(positions, 0)))
  vocabulary = text_layer.text_layer
  # Rows of the model that no piece belongs to cannot be said.
  chances = chances[..., : vocabulary.vocab_size]
  probabilities, ids = tf.math.top_k(chances, top_k)
  tokens = tf.strings.regex_replace(
    vocabulary.pieces(ids), f"^{_WORD_START}", ""
  )
  there_k = tf.broadcast_to(there[..., None], tf.shape(ids))
  return {
    "tokens": tf.where(there_k, tokens, ""),
    "token_ids": tf.where(there_k, ids, 0),
    "probabilities": tf.where(there_k, probabilities, 0.0),
    "mask_positions": positions,
  }
