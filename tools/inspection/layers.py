"""Measures how layers change their input.

Figure 2 of arXiv 1909.11942 shows the L2 distance and the angle between the
input and the output of each layer: smaller and smoother from layer to layer
with shared weights than without, and not converging to 0.

A layer is an application of a block; with `inner_group_num` above 1 there are
several in each of the configuration's layers.
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling, tokenization

_BATCH_SIZE = 16


def measure(
  model: modeling.AlbertModel,
  tokenizer: tokenization.Tokenizer,
  sentences: Sequence[str],
  max_seq_length: int,
) -> dict[str, Any]:
  """Returns `layers`, as means over all tokens, and `sentences` of the JSON.

  Sentences are truncated to `max_seq_length`. A tokenizer of another model is a
  ValueError.
  """
  size = model.config.vocab_size
  if tokenizer.vocab_size != size:
    raise ValueError(
      f"the tokenizer has {tokenizer.vocab_size} pieces, but the model has "
      f"vocab_size {size}: set --spm_model_file or --vocab_file to the model's "
      "own."
    )
  special = tokenizer.cls_id, tokenizer.sep_id
  rows, cut = [], 0
  for text in sentences:
    ids = tokenizer.encode(text)
    row, _ = tokenization.pack_pair(ids, None, max_seq_length, *special)
    rows.append(row)
    cut += len(row) < len(ids) + 2
  rows.sort(key=len)
  layers: Any = np.float64(0)
  for start in range(0, len(rows), _BATCH_SIZE):
    ids = tf.ragged.constant(rows[start : start + _BATCH_SIZE], tf.int32)
    mask = tf.ones_like(ids).to_tensor()
    states = run(model, ids.to_tensor(tokenizer.pad_id), mask)
    real = mask.numpy() > 0
    layers = layers + [
      compare(before[real], after[real]).sum(axis=0)
      for before, after in itertools.pairwise(states)
    ]
  count = sum(map(len, rows))
  return {
    "layers": [
      {"layer": number, "l2_distance": distance, "degrees": degrees}
      for number, (distance, degrees) in enumerate((layers / count).tolist(), 1)
    ],
    "sentences": {"count": len(rows), "tokens": count, "cut": cut},
  }


def run(
  model: modeling.AlbertModel, ids: tf.Tensor, mask: tf.Tensor
) -> list[np.ndarray]:
  """Returns the projected embedding and each layer's output, [B, S, H]."""
  x, _ = model.embedding(ids, None)
  features = {"input_ids": ids, "input_mask": mask}
  outputs = model(features, training=False)["encoder_outputs"]
  return [state.numpy() for state in (x, *outputs)]


def compare(before: np.ndarray, after: np.ndarray) -> np.ndarray:
  """Returns L2 distances and angles in degrees, 0 to 180, as <float64>[..., 2].

  The vectors are <float>[..., H]. Vectors without a direction, or that are not
  finite, are a ValueError.
  """
  before, after = (np.asarray(x, np.float64) for x in (before, after))
  distances = np.linalg.norm(after - before, axis=-1)
  norms = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (before, after)]
  if not all(np.isfinite(norm).all() and (norm > 0).all() for norm in norms):
    raise ValueError(
      "a hidden state is 0 or not finite, so a layer's input and output have "
      "no angle: the weights are unusable."
    )
  a, b = before / norms[0], after / norms[1]
  # arccos is inaccurate near a cosine of 1. The diagonals of the rhombus that
  # two unit vectors span give the exact angle.
  diagonals = (np.linalg.norm(x, axis=-1) for x in (a - b, a + b))
  angles = np.degrees(2 * np.arctan2(*diagonals))
  return np.stack([distances, angles], axis=-1)
