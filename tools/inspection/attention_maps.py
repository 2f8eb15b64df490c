"""Where each head of each layer looks, computed from the weights.

The model itself keeps no probabilities, so they are computed a second time by
the plain formula, in NumPy, from each layer's input; and what they attend to is
taken through the rest of the attention and compared with the model's own.

Letters: B batch, S query position, T key position (T = S), N heads, D head
size, H = N * D hidden. A layer is an application of a block, as in
layer_similarity.py.
"""

from __future__ import annotations

import math
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from official_albert import modeling
from tools.inspection import layer_similarity

# Of float32 sums in another order.
TOLERANCE = 1e-5
# As the model adds to the scores of padding; exp(-10000) is 0.
_MASKED_SCORE = -10000.0


class HeadStatistics(NamedTuple):
  """Of one head, means over all tokens that attend.

  Attributes:
    distance: positions between a token and what it attends to.
    entropy: of the probabilities, in nats; log T where all are alike.
    cls_share: what [CLS] gets.
    sep_share: what all [SEP] get.
    self_share: what the token itself gets.
  """

  distance: float
  entropy: float
  cls_share: float
  sep_share: float
  self_share: float


def probabilities(
  x: np.ndarray,
  mask: np.ndarray,
  weights: modeling.AttentionWeights,
  heads: int,
) -> np.ndarray:
  """softmax(q k^T / sqrt(D)) over the real tokens.

  Args:
    x: <float32>[B, S, H].
    mask: <int32>[B, T].
    weights: arrays.
    heads: N.

  Returns:
    <float32>[B, N, S, T].
  """
  q, k, _ = _split(x, weights, heads)
  scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
  scores = scores + (1 - mask[:, None, None, :]) * np.float32(_MASKED_SCORE)
  scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
  return scores / scores.sum(axis=-1, keepdims=True)


def attended(
  x: np.ndarray,
  probs: np.ndarray,
  weights: modeling.AttentionWeights,
  epsilon: float,
) -> np.ndarray:
  """LayerNorm(x + W_o (probs v)): the attention's output, <float32>[B, S, H].

  Args:
    x: <float32>[B, S, H].
    probs: <float32>[B, N, S, T].
    weights: arrays.
    epsilon: added to the variance.
  """
  v = _split(x, weights, probs.shape[1])[2]
  context = np.swapaxes(probs @ v, 1, 2).reshape(x.shape)  # [B, S, H]
  y = x + context @ weights.output_kernel + weights.output_bias
  y = y - y.mean(axis=-1, keepdims=True)
  y = y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + epsilon)
  return y * weights.gamma + weights.beta


def _split(x, weights, heads):
  """Query, key and value, <float32>[B, N, S, D] each."""
  batch, length, width = x.shape
  qkv = x @ weights.qkv_kernel + weights.qkv_bias  # [B, S, 3 * H]
  qkv = qkv.reshape(batch, length, 3, heads, width // heads)
  return np.transpose(qkv, [2, 0, 3, 1, 4])


def maps(
  model: modeling.AlbertModel, batch: Mapping[str, np.ndarray]
) -> Iterator[np.ndarray]:
  """The probabilities of each layer, <float32>[B, N, S, T], first to last.

  Args:
    model: in float32.
    batch: the inputs of `AlbertModel`.

  Raises:
    ValueError: they do not give the model's own attention output, or are not
      finite.
  """
  ids = batch["input_ids"]
  mask = batch.get("input_mask", np.ones_like(ids))
  states = layer_similarity.hidden_states(model, batch)
  for layer, (attention, _) in enumerate(model.encoder.blocks()):
    (weights,) = attention.weights_for(1)
    weights = modeling.AttentionWeights(*map(np.asarray, weights))
    x = states[layer]
    probs = probabilities(x, mask, weights, model.config.num_attention_heads)
    ours = attended(x, probs, weights, attention.layer_norm.epsilon)
    theirs = attention(tf.constant(x), tf.constant(mask)).numpy()
    difference = np.abs(ours - theirs).max()
    allowed = TOLERANCE * max(1.0, np.abs(theirs).max())
    if not difference <= allowed:
      raise ValueError(
        f"attention computed from the weights of layer {layer + 1} differs by "
        f"{difference:.3g} from the model's own, more than {allowed:.3g}: no "
        "map of it can be believed."
      )
    yield probs


def measure(
  model: modeling.AlbertModel,
  batches: Iterable[Mapping[str, np.ndarray]],
  sep_id: int,
) -> list[list[HeadStatistics]]:
  """The statistics of each head of each layer.

  Args:
    model: in float32.
    batches: inputs of `AlbertModel`, [CLS] first.
    sep_id: of [SEP].

  Raises:
    ValueError: see `maps`; or there is no token.
  """
  totals: np.ndarray = np.zeros([0])
  count = 0
  for batch in batches:
    ids = np.asarray(batch["input_ids"])
    real = np.asarray(batch.get("input_mask", np.ones_like(ids))) > 0
    sums = np.array(
      [_sums(probs, real, ids == sep_id) for probs in maps(model, batch)]
    )
    totals = sums + (totals if count else 0)
    count += int(real.sum())
  if not count:
    raise ValueError("there are no tokens to measure attention on.")
  return [
    [HeadStatistics(*head) for head in layer]
    for layer in (totals / count).tolist()
  ]


def _sums(
  probs: np.ndarray, real: np.ndarray, is_sep: np.ndarray
) -> np.ndarray:
  """`HeadStatistics`, added up over tokens: <float64>[N, 5].

  Args:
    probs: <float32>[B, N, S, T].
    real: <bool>[B, S], False for padding, which attends too, but to no end.
    is_sep: <bool>[B, T].
  """
  positions = np.arange(probs.shape[-1])
  far = np.abs(positions[:, None] - positions)  # [S, T]
  logs = np.log(np.where(probs > 0, probs, 1))
  per_token: Sequence[np.ndarray] = (  # [B, N, S] each
    (probs * far).sum(axis=-1),
    -(probs * logs).sum(axis=-1),
    probs[..., 0],
    (probs * is_sep[:, None, None, :]).sum(axis=-1),
    np.diagonal(probs, axis1=-2, axis2=-1),
  )
  stacked = np.stack(per_token, axis=-1).astype(np.float64)  # [B, N, S, 5]
  return (stacked * real[:, None, :, None]).sum(axis=(0, 2))
