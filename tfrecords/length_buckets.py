"""Groups sequences of similar length into batches, to save padding.

Most sentences are much shorter than the longest one. Padded to 512 tokens, a
batch is mostly padding. So a window of many batches is sorted by the bucket of
each example, the shortest of a few lengths that is long enough, and cut into
batches, which are shuffled. A batch is a pure function of the seed and of its
place in the stream, so a resumed run has the same batches. A window is cut into
whole updates, so they do not depend on the number of replicas.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from tfrecords import schemas

MASK = "input_mask"

# Number of batches that are sorted together. More batches need less padding,
# but an example then shares its batches with fewer others.
_WINDOW_BATCHES = 32


def default_lengths(max_length: int) -> tuple[int, ...]:
  """Returns 16, 24, 32, 48, 64, 96, 128 and so on; the last is `max_length`.

  Each is at most 1.5 times the one before, and few shapes are compiled.
  """
  lengths, power = [], 16
  while power < max_length:
    lengths += [n for n in (power, power + power // 2) if n < max_length]
    power *= 2
  return (*lengths, max_length)


def check_lengths(lengths: Sequence[int], max_length: int) -> None:
  """Checks the lengths of buckets.

  Raises:
    ValueError: they are not positive and ascending, or do not end with
      `max_length`.
  """
  ascending = all(a < b for a, b in zip([0, *lengths], lengths))
  if not ascending or list(lengths[-1:]) != [max_length]:
    raise ValueError(
      f"bucket_lengths are {list(lengths)}, but must be positive, ascend, and "
      f"end with the length of the records, {max_length}."
    )


def window_batches(records: int, batch_size: int) -> int:
  """Returns the number of batches to sort together.

  A window is at most an epoch. Otherwise a batch could have two copies of an
  example, as they have the same length.
  """
  return max(1, min(_WINDOW_BATCHES, records // batch_size))


def sequence_features(
  features: Sequence[schemas.Feature], max_length: int
) -> list[str]:
  """Returns the names of the features that have a value for each token.

  Raises:
    ValueError: `input_mask`, which determines the lengths, is not among them.
  """
  names = [f.name for f in features if f.shape[-1:] == (max_length,)]
  if MASK not in names:
    raise ValueError(
      f"length buckets need {MASK} with {max_length} values in every record."
    )
  return names


def bucket_of(mask: tf.Tensor, lengths: Sequence[int]) -> tf.Tensor:
  """Returns the bucket of each example, an index of `lengths`.

  Args:
    mask: <int32>[N, S], or [N, options, S] for several sequences; 1 for tokens,
      then 0.
    lengths: ascending; the last is S.

  Returns:
    <int32>[N].
  """
  tokens = tf.reduce_sum(mask, axis=-1)
  longest = tf.reduce_max(tf.reshape(tokens, [tf.shape(mask)[0], -1]), axis=1)
  return tf.searchsorted(tf.constant(lengths), longest)


def batch_rows(
  buckets: tf.Tensor, batch_size: int, seed: tf.Tensor, shuffle: bool
) -> tf.Tensor:
  """Cuts the examples of a window into batches.

  Args:
    buckets: <int32>[N]; N is a multiple of `batch_size`. Examples of one bucket
      stay in their order, which is already random.
    batch_size: G.
    seed: <int64>[2].
    shuffle: whether the batches are shuffled; otherwise the shortest come
      first.

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
    names: features with a value for each token, [B, ..., S].
    length: <int32>[], at least the length of the longest row.

  Returns:
    The features, where those in `names` are [B, ..., length].
  """
  return {
    name: x[..., :length] if name in names else x for name, x in batch.items()
  }
