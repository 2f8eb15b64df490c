"""Shards to batches of examples of similar length; see `length_buckets`."""

from __future__ import annotations

from typing import Mapping, Sequence

import tensorflow as tf

from tfrecords import length_buckets, reader


def read_dataset(
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
  """As `reader.read_dataset`, but batches are only as long as they need to be.

  Each example comes once an epoch, but for the window at the border of two
  epochs in the order of neither. The batches of all replicas that make up one
  update have one length and do not depend on the number of replicas.

  Args:
    directory: folder with the shards and their manifest.
    split: one of its splits.
    batch_size: B, of one replica.
    bucket_lengths: the lengths that batches may have, ascending; the last is
      that of the records.
    seed: of the order.
    start_example: where an update begins.
    repeat: see `reader.read_dataset`, also for the next two.
    shuffle: if not, batches come by length, window after window.
    shuffle_buffer: examples in a shuffled block.
    context: which of several input pipelines this is.

  Returns:
    Dataset of dicts: each feature of the schema [B, ...], of sequences the
    last axis is None, and `example_weight` <float32>[B].

  Raises:
    FileNotFoundError, ValueError: see `reader.read_dataset`.
  """
  update = batch_size * context.num_replicas_in_sync
  window = update * length_buckets.WINDOW_BATCHES
  first_window, within = divmod(start_example, window)
  if within % update:
    raise ValueError(
      f"start_example is {start_example}, but an update takes {update} "
      "examples, and one begins at a multiple of that."
    )
  manifest, serialized = reader.open_stream(
    directory,
    split,
    batch_size,
    seed=seed,
    start_example=first_window * window,
    repeat=repeat,
    shuffle=shuffle,
    shuffle_buffer=shuffle_buffer,
  )
  if tuple(bucket_lengths[-1:]) != (manifest.max_seq_length,):
    raise ValueError(
      f"the longest of the buckets {list(bucket_lengths)} must be that of the "
      f"records in {directory}, {manifest.max_seq_length} tokens."
    )
  sequences = length_buckets.sequence_features(
    manifest.features, manifest.max_seq_length
  )
  key = tf.constant([seed, 1])

  def sort(number: tf.Tensor, records: tf.Tensor):
    """A window <string>[N] to updates [N / G, G, ...] and their lengths."""
    missing = -tf.shape(records)[0] % update
    batch, weight = reader.parse(
      manifest.features, records, tf.shape(records)[0] + missing
    )
    lengths = length_buckets.lengths_of(batch["input_mask"])
    rows = length_buckets.batch_rows(
      lengths,
      update,
      tf.random.experimental.stateless_fold_in(key, number),
      shuffle,
    )
    batch = {
      name: tf.gather(x, rows)
      for name, x in reader.weigh(batch, weight).items()
    }
    return batch, tf.reduce_max(tf.gather(lengths, rows), axis=1)

  def cut(batch: Mapping[str, tf.Tensor], longest: tf.Tensor):
    """An update [G, ...] to the batches [G / B, B, ...] of its replicas."""
    batch = length_buckets.trim(batch, sequences, bucket_lengths, longest)
    return {
      name: tf.reshape(
        x, tf.concat([[update // batch_size, batch_size], tf.shape(x)[1:]], 0)
      )
      for name, x in batch.items()
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
    serialized.batch(window, drop_remainder=repeat)
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
