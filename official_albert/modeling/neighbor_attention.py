"""Initial weights with which attention heads look at neighboring positions.

From random weights, a small encoder first learns only how frequent each piece
is, and spends most of a short training until its heads find the words next to a
masked one (docs/results/quality.md). `attend_to_neighbors` starts there. The
architecture does not change, and all weights are trained as usual.

With rows p_i = (sin(i f_1), cos(i f_1), sin(i f_2), ...) of the position table,
the inner product of p_i, rotated by the angles d f_j, and p_k is largest at k =
i + d. So a head whose key matrix picks some frequencies, and whose query matrix
picks and rotates them, looks at offset d.
"""

from __future__ import annotations

import itertools

import numpy as np

from official_albert.modeling import model as model_lib

# The lowest frequency, in radians a position, is the inverse. The highest is 1.
_LONGEST = 10.0
# The size of the position embeddings compared with the other tables'.
_POSITION_SCALE = 2.0
# The score of the position that a head looks at, before the softmax, if
# positions were all that an embedding has.
_SCORE = 9.0


def attend_to_neighbors(model: model_lib.AlbertModel) -> None:
  """Replaces position embeddings and half of the query and key kernels.

  The position table becomes sinusoids, and a projection E -> H is scaled to
  keep the size of its input. In all layers, the first half of the heads
  (rounded up) looks at the offsets -1, 1, -2, 2, ... from the query's position;
  the others keep their random weights.

  Source of the sinusoids: arXiv 1706.03762, section 3.5.

  Args:
    model: changed in place. Its variables are float32, and E is at least 2.
  """
  config = model.config
  size, heads = config.embedding_size, config.num_attention_heads
  width = config.hidden_size // heads  # D
  frequencies = _LONGEST ** -np.linspace(0.0, 1.0, size // 2)  # [E / 2]
  positions = np.arange(config.max_position_embeddings)
  angles = np.outer(positions, frequencies)
  table = np.zeros([len(positions), size])
  table[:, : size // 2 * 2] = np.stack(
    [np.sin(angles), np.cos(angles)], axis=2
  ).reshape(len(positions), -1)
  embedding = model.embedding
  embedding.position_embeddings.assign(
    _POSITION_SCALE * config.initializer_range * table
  )
  # From hidden states back to embeddings.
  from_hidden: np.ndarray = np.eye(size)  # [H, E]
  if embedding.projection:
    # An orthogonal projection keeps the size of its input, so the first block
    # has normalized inputs, too, and its inverse amplifies nothing. Rounded,
    # because workers with different processors must agree.
    left, _, right = np.linalg.svd(
      embedding.projection.kernel.numpy().astype(np.float64),
      full_matrices=False,
    )
    gain = np.sqrt(config.hidden_size / size)
    projection = np.round(gain * left @ right, 6)
    embedding.projection.kernel.assign(projection)
    from_hidden = projection.T / gain**2
  queries, keys = [], []
  for head in range(-(-heads // 2)):
    offset = (head // 2 + 1) * (-1, 1)[head % 2]
    pick, rotated = _directions(frequencies, size, width, offset)
    queries.append(from_hidden @ rotated)
    keys.append(from_hidden @ pick)
  # A score is a sum of D products of normalized elements, divided by sqrt(D).
  scale = np.sqrt(_SCORE / np.sqrt(width))
  for attention in itertools.chain(*model.encoder.attentions):
    for layer, parts in ((attention.query, queries), (attention.key, keys)):
      kernel = layer.kernel.numpy()  # [H, N D]
      for head, part in enumerate(parts):
        start = head * width
        kernel[:, start : start + part.shape[1]] = scale * part
      layer.kernel.assign(kernel)


def _directions(
  frequencies: np.ndarray, size: int, width: int, offset: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns matrices [E, D] that pick D / 2 frequencies, plain and rotated.

  With an odd D, they have one column less.
  """
  pick = np.zeros([size, width // 2 * 2])
  rotated = np.zeros_like(pick)
  chosen = np.linspace(0, len(frequencies), width // 2, endpoint=False)
  for column, frequency in enumerate(chosen.astype(int)):
    rows = slice(2 * frequency, 2 * frequency + 2)
    columns = slice(2 * column, 2 * column + 2)
    sin = np.sin(offset * frequencies[frequency])
    cos = np.cos(offset * frequencies[frequency])
    pick[rows, columns] = np.eye(2)
    # (sin, cos)(a) becomes (sin, cos)(a + offset * f).
    rotated[rows, columns] = [[cos, -sin], [sin, cos]]
  return pick, rotated
