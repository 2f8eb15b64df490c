"""Initial weights with which a short training learns sooner.

From random weights, a small encoder spends most of a short training on two
things that need no training (docs/results/quality.md). The architecture does
not change, and all weights are trained as usual.

`attend_to_neighbors`: heads that find the words next to a masked one. With rows
p_i = (sin(i f_1), cos(i f_1), sin(i f_2), ...) of the position table, the inner
product of p_i, rotated by the angles d f_j, and p_k is largest at k = i + d. So
a head whose key matrix picks some frequencies, and whose query matrix picks and
rotates them, looks at offset d.

`embed_from_text`: embeddings that tell which tokens occur near the same tokens.
The positive pointwise mutual information of pairs of tokens, factorized, gives
word vectors (Levy and Goldberg, Neural Word Embedding as Implicit Matrix
Factorization, 2014; contexts as in Levy, Goldberg and Dagan, 2015: weights by
distance, and a smoothed distribution).
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import record_rules
from official_albert.tfrecords import reader

# The lowest frequency, in radians a position, is the inverse. The highest is 1.
_LONGEST = 10.0
# The size of the position embeddings compared with the other tables'.
_POSITION_SCALE = 2.0
# The score of the position that a head looks at, before the softmax, if
# positions were all that an embedding has.
_SCORE = 9.0

# Tokens to count, and the largest distance of a pair.
_TOKENS = 4_000_000
_WINDOW = 4
_BATCH = 8192
# The power of the contexts' frequencies.
_SMOOTHING = 0.75
# Steps of the result: coarser than the differences between processors, because
# workers must agree.
_STEP = 1 / 64


def attend_to_neighbors(model: modeling.AlbertModel) -> None:
  """Replaces position embeddings and half of the query and key kernels.

  The position table becomes sinusoids, and a projection E -> H is scaled to
  keep the size of its input. In all layers, the first half of the heads
  (rounded up) looks at the offsets -1, 1, -2, 2, ... from the query's position;
  the others keep their random weights.

  The variables are float32, and E is at least 2. Source of the sinusoids: arXiv
  1706.03762, section 3.5.
  """
  config = model.config
  size, heads = config.embedding_size, config.num_attention_heads
  width = config.hidden_size // heads  # D
  frequencies = _LONGEST ** -np.linspace(0.0, 1.0, size // 2)  # [E / 2]
  positions = np.arange(config.max_position_embeddings)
  angles = np.outer(positions, frequencies)
  table = np.zeros([len(positions), size])
  table[:, : size // 2 * 2 : 2] = np.sin(angles)
  table[:, 1::2] = np.cos(angles)
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
  # The matrix [E, D] that picks D / 2 frequencies, each with sine and cosine.
  # With an odd D, it has one column less.
  chosen = np.linspace(0, len(frequencies), width // 2, endpoint=False)
  chosen = np.repeat(chosen.astype(int), 2)
  pairs = np.arange(len(chosen))
  pick = np.eye(size)[:, 2 * chosen + pairs % 2]
  # A score is a sum of D products of normalized elements, divided by sqrt(D).
  scale = np.sqrt(_SCORE / np.sqrt(width))
  for head in range(-(-heads // 2)):
    offset = (head // 2 + 1) * (-1, 1)[head % 2]
    angle = offset * frequencies[chosen]
    # (sin, cos)(a) becomes (sin, cos)(a + angle).
    sine = np.where(pairs % 2, -1, 1) * np.sin(angle)
    rotated = pick * np.cos(angle) + pick[:, pairs ^ 1] * sine
    columns = slice(head * width, head * width + len(pairs))
    for attention in itertools.chain(*model.encoder.attentions):
      for layer, part in ((attention.query, rotated), (attention.key, pick)):
        kernel = layer.kernel.numpy()  # [H, N D]
        kernel[:, columns] = scale * (from_hidden @ part)
        layer.kernel.assign(kernel)


def embed_from_text(
  model: modeling.AlbertModel, input_dir: str, manifest: tfrecords.Manifest
) -> None:
  """Replaces the word embeddings of tokens that occur in the text.

  `input_dir` is a folder of pretraining records, with masks or without them.
  """
  config, table = model.config, model.embedding.word_embeddings
  counts = count_pairs(input_dir, manifest)
  vectors = word_vectors(counts, config.embedding_size)
  vectors *= config.initializer_range
  table.assign(np.where(vectors.any(axis=1, keepdims=True), vectors, table))


def count_pairs(
  input_dir: str, manifest: tfrecords.Manifest
) -> sparse.csr_matrix:
  """Counts pairs of tokens within 4 positions, each 1 / distance.

  Returns:
    A symmetric matrix <float64>[V, V].
  """
  size = manifest.tokenizer.vocab_size
  total = sparse.csr_matrix((size, size))
  tokens = 0
  for batch in reader.read_dataset(
    input_dir, "train", _BATCH, manifest=manifest, training=False
  ).as_numpy_iterator():
    real = batch["input_mask"] * batch["example_weight"][:, None] > 0
    ids = batch["input_ids"]
    if "masked_lm_ids" in batch:
      ids = record_rules.put_labels_back(batch)
    firsts, seconds, weights = [], [], []
    for distance in range(1, _WINDOW + 1):
      both = real[:, distance:]  # Padding is at the end.
      firsts.append(ids[:, :-distance][both])
      seconds.append(ids[:, distance:][both])
      weights.append(np.full(len(firsts[-1]), 1 / distance))
    pairs = np.concatenate(firsts), np.concatenate(seconds)
    total += sparse.csr_matrix((np.concatenate(weights), pairs), (size, size))
    tokens += int(real.sum())
    if tokens >= _TOKENS:
      break
  return total + total.T


def word_vectors(counts: sparse.csr_matrix, embedding_size: int) -> np.ndarray:
  """Computes a vector for each token of the vocabulary from `count_pairs`.

  Returns:
    <float32>[V, E]. The root mean square of a row is 1, or 0 if the token does
    not occur. Columns from V - 1 on are 0.
  """
  weights = np.asarray(counts.sum(axis=1))[:, 0]
  smoothed = weights**_SMOOTHING
  counts = counts.tocoo()
  # log(P(a, b) / (P(a) P(b))), with the smoothed P(b).
  information = np.log(
    counts.data * smoothed.sum() / (weights[counts.row] * smoothed[counts.col])
  )
  used = information > 0
  matrix = sparse.csr_matrix(
    (information[used], (counts.row[used], counts.col[used])), counts.shape
  )
  vectors = np.zeros((len(weights), embedding_size))
  if used.any():
    start = np.random.default_rng(0).normal(size=len(weights))
    rank = min(embedding_size, len(weights) - 1)
    left, values, _ = linalg.svds(matrix, rank, v0=start)
    vectors[:, :rank] = left * np.sqrt(values)
  norms = np.sqrt(np.mean(vectors**2, axis=1, keepdims=True))
  vectors /= np.where(norms > 1e-6, norms, np.inf)
  return (_STEP * np.round(vectors / _STEP)).astype(np.float32)
