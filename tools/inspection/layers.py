"""Measures what each layer changes, and where each attention head looks.

Figure 2 of arXiv 1909.11942 shows the L2 distance and the angle between the
input and the output of each layer: smaller and smoother from layer to layer
with shared weights than without, and not converging to 0.

A layer is an application of a block; with `inner_group_num` above 1 there are
several in each of the configuration's layers.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling

Batch = Mapping[str, np.ndarray]


class LayerSimilarity(NamedTuple):
  """Means over all tokens.

  Attributes:
    l2_distance: ||output - input||.
    degrees: angle between output and input, 0 to 180.
  """

  l2_distance: float
  degrees: float


class HeadStatistics(NamedTuple):
  """Means over all tokens that attend.

  Attributes:
    distance: positions between a token and what it attends to.
    entropy: of the probabilities, in nats; log T if they are equal.
    cls_share: probability of [CLS].
    sep_share: probability of all [SEP].
    self_share: probability of the token itself.
  """

  distance: float
  entropy: float
  cls_share: float
  sep_share: float
  self_share: float


def hidden_states(
  model: modeling.AlbertModel, batch: Batch
) -> list[np.ndarray]:
  """Returns the input of each layer, then the output of the last.

  Args:
    model: in any precision.
    batch: the inputs of `AlbertModel`.

  Returns:
    <float32>[B, S, H] each; the first is the projected embedding.
  """
  inputs = {name: tf.constant(value) for name, value in batch.items()}
  first, _ = model.embedding(inputs["input_ids"], inputs.get("segment_ids"))
  outputs = model(inputs, training=False)["encoder_outputs"]
  return [np.asarray(state, np.float32) for state in (first, *outputs)]


def attention_maps(
  model: modeling.AlbertModel, batch: Batch
) -> Iterator[np.ndarray]:
  """Yields the attention probabilities of each layer, <float>[B, N, S, T].

  Args:
    model: in float32.
    batch: the inputs of `AlbertModel`.
  """
  mask = batch.get("input_mask", np.ones_like(batch["input_ids"]))
  states = hidden_states(model, batch)
  for (attention, _), x in zip(model.encoder.blocks(), states):
    x, mask = tf.constant(x), tf.constant(mask)
    yield attention(x, mask, return_probs=True).numpy()


def compare(
  before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the distance and angle of each pair of vectors.

  Args:
    before: <float>[..., H].
    after: <float>[..., H].

  Returns:
    L2 distances and angles in degrees, <float64>[...] each.

  Raises:
    ValueError: a vector is 0, which has no direction, or not finite.
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
  return distances, np.degrees(2 * np.arctan2(*diagonals))


def measure_similarity(
  model: modeling.AlbertModel, batches: Iterable[Batch]
) -> list[LayerSimilarity]:
  """Compares the input and output of each layer, first to last.

  Args:
    model: with any sharing.
    batches: the inputs of `AlbertModel`; padding is 0 in `input_mask`.

  Raises:
    ValueError: there is no token, or a hidden state has no direction.
  """

  def sums(batch: Batch, real: np.ndarray) -> np.ndarray:
    states = [state[real] for state in hidden_states(model, batch)]
    return np.array(
      [
        [values.sum() for values in compare(before, after)]
        for before, after in zip(states, states[1:])
      ]
    )

  return [LayerSimilarity(*row) for row in _token_means(batches, sums).tolist()]


def measure_attention(
  model: modeling.AlbertModel, batches: Iterable[Batch], sep_id: int
) -> list[list[HeadStatistics]]:
  """Measures each head of each layer.

  Args:
    model: in float32.
    batches: the inputs of `AlbertModel`, [CLS] first.
    sep_id: id of [SEP].

  Raises:
    ValueError: there is no token.
  """

  def sums(batch: Batch, real: np.ndarray) -> np.ndarray:
    is_sep = np.asarray(batch["input_ids"]) == sep_id
    maps = attention_maps(model, batch)
    return np.array([_head_sums(probs, real, is_sep) for probs in maps])

  means = _token_means(batches, sums)
  return [[HeadStatistics(*head) for head in layer] for layer in means.tolist()]


def _token_means(batches: Iterable[Batch], sums) -> np.ndarray:
  """Divides the totals of `sums(batch, real)` by the number of tokens."""
  total, count = 0, 0
  for batch in batches:
    ids = np.asarray(batch["input_ids"])
    real = np.asarray(batch.get("input_mask", np.ones_like(ids))) > 0
    total = total + sums(batch, real)
    count += int(real.sum())
  if not count:
    raise ValueError("there are no tokens to measure.")
  return total / count


def _head_sums(
  probs: np.ndarray, real: np.ndarray, is_sep: np.ndarray
) -> np.ndarray:
  """Returns `HeadStatistics` summed over tokens, <float64>[N, 5].

  Args:
    probs: <float>[B, N, S, T].
    real: <bool>[B, S], False for padding, which does not count.
    is_sep: <bool>[B, T].
  """
  positions = np.arange(probs.shape[-1])
  distance = np.abs(positions[:, None] - positions)  # [S, T]
  logs = np.log(np.where(probs > 0, probs, 1))
  per_token: Sequence[np.ndarray] = (  # [B, N, S] each
    (probs * distance).sum(axis=-1),
    -(probs * logs).sum(axis=-1),
    probs[..., 0],
    (probs * is_sep[:, None, None, :]).sum(axis=-1),
    np.diagonal(probs, axis1=-2, axis2=-1),
  )
  stacked = np.stack(per_token, axis=-1).astype(np.float64)  # [B, N, S, 5]
  return (stacked * real[:, None, :, None]).sum(axis=(0, 2))
