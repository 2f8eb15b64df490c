"""How much each layer changes what goes through it.

Of each layer's input and output at a token, the L2 distance and the angle
between them: figure 2 of arXiv 1909.11942. There the shared model's numbers are
smaller and go more smoothly from layer to layer than the unshared one's, and
do not converge to 0.

A layer is an application of a block here: with `inner_group_num` above 1 there
are as many in each of the configuration's layers.
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import modeling


class LayerSimilarity(NamedTuple):
  """Means over all tokens.

  Attributes:
    l2_distance: ||output - input||.
    degrees: arccos of the cosine similarity, 0 to 180.
  """

  l2_distance: float
  degrees: float


def hidden_states(
  model: modeling.AlbertModel, batch: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
  """What goes into each layer, and what comes out of the last.

  Args:
    model: whichever its precision.
    batch: the inputs of `AlbertModel`.

  Returns:
    <float32>[B, S, H] each; the first is the projected embedding.
  """
  inputs = {name: tf.constant(value) for name, value in batch.items()}
  first, _ = model.embedding(inputs["input_ids"], inputs.get("segment_ids"))
  outputs = model(inputs, training=False)["encoder_outputs"]
  return [np.asarray(state, np.float32) for state in (first, *outputs)]


def compare(
  before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Distance and angle of each pair of vectors.

  Args:
    before: <float>[..., H].
    after: <float>[..., H].

  Returns:
    L2 distances <float64>[...], and angles in degrees <float64>[...].

  Raises:
    ValueError: a vector is 0, which has no direction, or not finite.
  """
  before, after = (np.asarray(x, np.float64) for x in (before, after))
  distances = np.linalg.norm(after - before, axis=-1)
  lengths = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (before, after)]
  for length in lengths:
    if not (np.isfinite(length).all() and (length > 0).all()):
      raise ValueError(
        "a hidden state is 0 or not finite, so that there is no angle between "
        "a layer's input and output: the weights are of no use."
      )
  a, b = before / lengths[0], after / lengths[1]
  # Of neighbours, the cosine is too near to 1 for arccos: 2 atan2 of the
  # diagonals of the rhombus that two unit vectors span is exact everywhere.
  angles = 2 * np.arctan2(
    np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1)
  )
  return distances, np.degrees(angles)


def measure(
  model: modeling.AlbertModel, batches: Iterable[Mapping[str, np.ndarray]]
) -> list[LayerSimilarity]:
  """The similarity of input and output for each layer, the first one first.

  Args:
    model: whichever its sharing.
    batches: inputs of `AlbertModel`; padding is 0 in their `input_mask`, if
      there is any.

  Raises:
    ValueError: there is no token, or a hidden state has no direction.
  """
  totals: np.ndarray = np.zeros([0, 2])
  count = 0
  for batch in batches:
    states = hidden_states(model, batch)
    mask = batch.get("input_mask")
    real = np.ones(states[0].shape[:2], bool) if mask is None else mask > 0
    sums = [
      [values.sum() for values in compare(before[real], after[real])]
      for before, after in zip(states, states[1:])
    ]
    totals = np.array(sums) + (totals if count else 0)
    count += int(np.sum(real))
  if not count:
    raise ValueError("there are no tokens to measure layers on.")
  return [LayerSimilarity(*row) for row in (totals / count).tolist()]
