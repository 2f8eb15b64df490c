"""Reads batches of examples of similar length; see `length_buckets`."""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from tfrecords import length_buckets, reader


def read_bucketed_dataset(
  directory: str,
  split: str,
  batch_size: int,
  bucket_lengths: Sequence[int],
  *,
  seed: int = 0,
  start_example: int = 0,
  repeat: bool = True,
  shuffle: bool = True,
  shuffle_buffer: int = 16384,
  context: tf.distribute.InputContext = reader.ONE_PIPELINE,
) -> tf.data.Dataset:
  """Does what `read_dataset` does, with batches padded to a bucket's length.

  Each example comes once an epoch. If a window spans two epochs, their batches
  are mixed. The batches of all replicas in one update have the same length, and
  do not depend on the number of replicas.

  Args:
    directory: folder with the shards and their manifest.
    split: name of a split.
    batch_size: B, of one replica.
    bucket_lengths: the possible lengths of batches, ascending. The last is
      that of the records.
    seed: seed of the order.
    start_example: place of an example at which an update begins.
    repeat: see `read_dataset`.
    shuffle: whether the order is random; otherwise each window is sorted by
      length.
    shuffle_buffer: number of examples in a shuffled block.
    context: see `read_dataset`.

  Returns:
    Dataset of dicts: each feature of the schema [B, ...], with None as the last
    axis of sequences, and `example_weight` <float32>[B].

  Raises:
    FileNotFoundError, ValueError: see `read_dataset`; or `bucket_lengths` do
      not fit the records, or no update begins at `start_example`.
  """
  manifest = reader.open_split(
    directory,
    split,
    batch_size=batch_size,
    start_example=start_example,
    shuffle_buffer=shuffle_buffer,
    repeat=repeat,
  )
  length_buckets.check_lengths(bucket_lengths, manifest.max_seq_length)
  sequences = length_buckets.sequence_features(
    manifest.features, manifest.max_seq_length
  )
  update = batch_size * context.num_replicas_in_sync
  window = update * length_buckets.window_batches(
    manifest.split(split).records, update
  )
  first_window, within = divmod(start_example, window)
  if within % update:
    raise ValueError(
      f"start_example is {start_example}, but updates of {update} examples "
      "begin at multiples of that: resume with the same batch size."
    )
  key = tf.constant([seed, 1], tf.int64)

  def sort(number: tf.Tensor, records: tf.Tensor):
    """Turns a window <string>[N] into updates [U, G, ...] and lengths [U]."""
    size = tf.shape(records)[0]
    batch, weight = reader.parse(
      manifest.features, records, size + -size % update
    )
    buckets = length_buckets.bucket_of(
      batch[length_buckets.MASK], bucket_lengths
    )
    window_key = tf.random.experimental.stateless_fold_in(key, number)
    rows = length_buckets.batch_rows(buckets, update, window_key, shuffle)
    updates = {
      name: tf.gather(x, rows)
      for name, x in reader.weigh(batch, weight).items()
    }
    longest = tf.reduce_max(tf.gather(buckets, rows), axis=1)
    return updates, tf.gather(tf.constant(bucket_lengths), longest)

  def cut(update_batch: Mapping[str, tf.Tensor], length: tf.Tensor):
    """Cuts an update [G, ...] into batches [G / B, B, ...] of replicas."""
    return {
      name: tf.reshape(x, tf.concat([[-1, batch_size], tf.shape(x)[1:]], 0))
      for name, x in length_buckets.trim(
        update_batch, sequences, length
      ).items()
    }

  shapes = {feature.name: feature.shape for feature in manifest.features}

  def with_shape(batch: Mapping[str, tf.Tensor]):
    shaped = {}
    for name, x in batch.items():
      shape = shapes.get(name, ())
      shape = (*shape[:-1], None) if name in sequences else shape
      shaped[name] = tf.ensure_shape(x, [batch_size, *shape])
    return shaped

  updates = (
    reader.read_serialized(
      directory,
      manifest.split(split).shards,
      seed=seed,
      start_example=first_window * window,
      repeat=repeat,
      shuffle=shuffle,
      shuffle_buffer=shuffle_buffer,
    )
    .batch(window, drop_remainder=repeat)
    .enumerate(first_window)
    .map(sort, num_parallel_calls=1, deterministic=True)
    .prefetch(1)
    .unbatch()
    .skip(within // update)
    .map(cut, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
  )
  numbered = updates.unbatch().map(with_shape).enumerate()
  batches = reader.only_ours(numbered, context).map(lambda _, batch: batch)
  return reader.finish(batches, repeat)
