"""Losses that bring the vectors of similar texts together.

Letters: B examples, C candidates, H numbers of a vector.
"""

from __future__ import annotations

import tensorflow as tf

_NEVER = -1e9  # The score of a candidate that does not count.


def cosines(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Returns the cosines <float32>[B, C] of <float32>[B, H] and [C, H]."""
  a, b = (tf.math.l2_normalize(x, -1) for x in (a, b))
  return tf.matmul(a, b, transpose_b=True)


def contrastive(found: tf.Tensor, scale: float, counts: tf.Tensor) -> tf.Tensor:
  """Returns the cross entropy <float32>[B] of each text's own candidate.

  Candidate i belongs to text i; all others count as wrong (InfoNCE, arXiv
  1807.03748, with the batch's other texts as in arXiv 1705.00652).

  Args:
    found: the cosines <float32>[B, C], with C = B, or more for candidates that
      belong to no text.
    scale: their factor.
    counts: <bool>[B, C], whether a candidate counts for a text; its own always
      does.
  """
  rows = tf.shape(found)[0]
  own = tf.eye(rows, tf.shape(found)[1], dtype=tf.bool)
  logits = tf.where(counts | own, scale * found, _NEVER)
  return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(rows), logits)


def order(
  found: tf.Tensor, scores: tf.Tensor, scale: float, weights: tf.Tensor
) -> tf.Tensor:
  """Returns the loss <float32>[] of pairs whose cosines are in wrong order.

  It is log(1 + sum of exp(scale * (cosine i - cosine j))) over all i and j of
  which i has the lower score (CoSENT, kexue.fm/archives/8847).

  Args:
    found: the cosine of each pair of texts, <float32>[B].
    scores: how similar they are, <float32>[B].
    scale: the factor of cosines.
    weights: 1 for pairs and 0 for padding, <float32>[B].
  """
  is_lower = scores[:, None] < scores[None, :]
  counts = is_lower & (weights[:, None] * weights[None, :] > 0)
  logits = scale * (found[:, None] - found[None, :])
  logits = tf.reshape(tf.where(counts, logits, _NEVER), [-1])
  return tf.reduce_logsumexp(tf.concat([[0.0], logits], 0))
