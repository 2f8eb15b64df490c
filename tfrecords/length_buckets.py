"""Batches of sequences of similar length, each padded no further than needed.

Most sentences are much shorter than the longest: padded to 512 tokens, most of
a batch is padding. Here a window of many batches is sorted by the shortest of
a few lengths that holds each example, cut into batches, and the batches are put
in random order. A batch is a pure function of the seed and its place in the
stream, so a resumed run sees the same ones; and since the batch of a whole
update is cut out before it is handed to the replicas, it does not depend on
their number.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from tfrecords import schemas

MASK = "input_mask"

# Batches that are sorted together: more of them waste less on padding, but
# give an example fewer others to share a batch with.
_WINDOW_BATCHES = 32


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


def check_lengths(lengths: Sequence[int], max_length: int) -> None:
  """Whether batches may have these lengths.

  Raises:
    ValueError: they do not ascend from 1 or more to `max_length`.
  """
  ascending = all(a < b for a, b in zip([0, *lengths], lengths))
  if not ascending or list(lengths[-1:]) != [max_length]:
    raise ValueError(
      f"bucket_lengths are {list(lengths)}, but must be positive, ascend, and "
      f"end with the length of the records, {max_length}."
    )


def window_batches(records: int, batch_size: int) -> int:
  """How many batches to sort together, of a split with so many records.

  No more than an epoch has: else copies of an example, which are equally long,
  would meet in a batch.
  """
  return max(1, min(_WINDOW_BATCHES, records // batch_size))


def sequence_features(
  features: Sequence[schemas.Feature], max_length: int
) -> list[str]:
  """Names of the features that have a value for each token.

  Raises:
    ValueError: `input_mask`, which tells the lengths, is not among them.
  """
  names = [f.name for f in features if f.shape[-1:] == (max_length,)]
  if MASK not in names:
    raise ValueError(
      f"length buckets need {MASK} with {max_length} values in every record."
    )
  return names


def bucket_of(mask: tf.Tensor, lengths: Sequence[int]) -> tf.Tensor:
  """The place in `lengths` of the shortest that holds an example.

  Args:
    mask: <int32>[N, S] or, of several sequences, [N, options, S]; 1 for
      tokens, then 0.
    lengths: ascending, the last one S.

  Returns:
    <int32>[N].
  """
  tokens = tf.reduce_sum(mask, axis=-1)
  longest = tf.reduce_max(tf.reshape(tokens, [tf.shape(mask)[0], -1]), axis=1)
  return tf.searchsorted(tf.constant(lengths), longest)


def batch_rows(
  buckets: tf.Tensor, batch_size: int, seed: tf.Tensor, shuffle: bool
) -> tf.Tensor:
  """Which examples of a window make up each of its batches.

  Args:
    buckets: <int32>[N], N a multiple of `batch_size`. Examples of one bucket
      stay in their order, which is random already.
    batch_size: G.
    seed: <int64>[2].
    shuffle: whether the batches come in random order, or the shortest first.

  Returns:
    <int32>[N / G, G].
  """
  rows = tf.reshape(tf.argsort(buckets, stable=True), [-1, batch_size])
  if not shuffle:
    return rows
  return tf.random.experimental.stateless_shuffle(rows, seed)


def trim(
  batch: Mapping[str, tf.Tensor], names: Sequence[str], length: tf.Tensor
) -> dict[str, tf.Tensor]:
  """Cuts sequences to a length.

  Args:
    batch: features [B, ...].
    names: of those with a value for each token, [B, ..., S].
    length: <int32>[], that of the batch's longest row or more.

  Returns:
    The same features, those of `names` [B, ..., length].
  """
  return {
    name: x[..., :length] if name in names else x for name, x in batch.items()
  }
