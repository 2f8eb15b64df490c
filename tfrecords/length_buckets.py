"""Batches of sequences of similar length, each padded no further than needed.

Most sentences are much shorter than the longest: padded to 512 tokens, most of
a batch is padding. Here a window of many batches is sorted by length and cut
into batches, which are put in random order and cut to the shortest of a few
lengths that holds them. A batch is a pure function of the seed and its place
in the stream, so a resumed run sees the same ones; and since the batch of a
whole update is cut out before it is handed to the replicas, it does not depend
on their number.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from tfrecords import schemas

# Batches that are sorted together: more of them waste less on padding, but
# give a batch fewer neighbours to be drawn with.
WINDOW_BATCHES = 32

_MASK = "input_mask"


def default_lengths(max_length: int) -> tuple[int, ...]:
  """16, 24, 32, 48, 64, 96, 128 and so on; the last is `max_length`.

  Each is at most half as long again as the one before, so that a program has
  to be made for a few shapes only.
  """
  lengths, power = [], 16
  while power < max_length:
    lengths += [n for n in (power, power + power // 2) if n < max_length]
    power *= 2
  return (*lengths, max_length)


def sequence_features(
  features: Sequence[schemas.Feature], max_length: int
) -> list[str]:
  """Names of the features that have a value for each token.

  Raises:
    ValueError: `input_mask`, which tells the lengths, is not among them.
  """
  names = [f.name for f in features if f.shape[-1:] == (max_length,)]
  if _MASK not in names:
    raise ValueError(
      f"length buckets need {_MASK} with {max_length} values in every record."
    )
  return names


def lengths_of(mask: tf.Tensor) -> tf.Tensor:
  """The tokens of each example, of several sequences the longest.

  Args:
    mask: <int32>[N, S] or [N, options, S], 1 for tokens, then 0.

  Returns:
    <int32>[N].
  """
  lengths = tf.reduce_sum(mask, axis=-1)
  return tf.reduce_max(tf.reshape(lengths, [tf.shape(mask)[0], -1]), axis=1)


def batch_rows(
  lengths: tf.Tensor, batch_size: int, seed: tf.Tensor, shuffle: bool
) -> tf.Tensor:
  """Which examples of a window make up each of its batches.

  Args:
    lengths: <int32>[N], N a multiple of `batch_size`. Examples of one length
      stay in their order, which is random already.
    batch_size: G.
    seed: <int32>[2].
    shuffle: whether the batches come in random order, or by length.

  Returns:
    <int32>[N / G, G].
  """
  rows = tf.reshape(tf.argsort(lengths, stable=True), [-1, batch_size])
  if not shuffle:
    return rows
  return tf.random.experimental.stateless_shuffle(rows, seed)


def trim(
  batch: Mapping[str, tf.Tensor],
  names: Sequence[str],
  buckets: Sequence[int],
  longest: tf.Tensor,
) -> dict[str, tf.Tensor]:
  """Cuts what is padding in all rows.

  Args:
    batch: features [B, ...].
    names: of those with a value for each token, [B, ..., S].
    buckets: the lengths to choose from, ascending.
    longest: <int32>[], tokens of the longest row.

  Returns:
    The same features, those of `names` [B, ..., bucket].
  """
  place = tf.searchsorted(tf.constant(buckets), longest[None])[0]
  length = tf.gather(tf.constant(buckets), place)
  return {
    name: x[..., :length] if name in names else x for name, x in batch.items()
  }
