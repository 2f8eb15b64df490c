"""Reads batches of examples of similar length, to save padding.

Most sentences are much shorter than the longest one, so a batch padded to 512
tokens is mostly padding. Therefore a window of many batches is sorted by the
bucket of each example, which is the shortest of a few lengths that fits. Then
the window is cut into updates, which are shuffled. An update is a pure function
of the seed and of its position in the stream, for any number of replicas. So a
resumed run has the same batches.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import tensorflow as tf

from official_albert.tfrecords import reader
from official_albert.training import ONE_PIPELINE

# The number of updates that are sorted together. More updates need less
# padding, but mix examples of different lengths less.
WINDOW_UPDATES = 32


@tf.autograph.experimental.do_not_convert
def read_bucketed_dataset(
  directory: str,
  split: str,
  batch_size: int,
  bucket_lengths: Sequence[int],
  *,
  training: bool = True,
  seed: int = 0,
  start_example: int = 0,
  context: tf.distribute.InputContext = ONE_PIPELINE,
  window_updates: int = WINDOW_UPDATES,
) -> tf.data.Dataset:
  """Reads batches like `read_dataset`, but padded to the length of a bucket.

  Each example occurs once per epoch. If a window spans two epochs, their
  batches are mixed. The batches of all replicas in one update have the same
  length and do not depend on the number of replicas. Except for training, each
  window is sorted by length.

  Args (the others: see `read_dataset`):
    batch_size: B, the batch size of one replica.
    bucket_lengths: the possible lengths of batches, ascending. The last is the
      length of the records.
    window_updates: the number of updates that are sorted together.
    start_example: the position of an example at which an update begins.

  Returns:
    Dataset of dicts: each feature of the schema [B, ...], with None as the last
    axis of sequences, and `example_weight` <float32>[B].
  """
  manifest = reader.open_split(directory, split)
  longest, records = manifest.max_seq_length, manifest.split(split).records
  shapes = {feature.name: feature.shape for feature in manifest.features}
  sequences = [name for name, x in shapes.items() if x[-1:] == (longest,)]
  update = batch_size * context.num_replicas_in_sync
  # A window is at most an epoch. Otherwise an update could contain two copies
  # of an example, because they have the same length.
  window = update * max(1, min(window_updates, records // update))
  first_window, within = divmod(start_example, window)
  if within % update:
    raise ValueError(
      f"start_example is {start_example}, but updates of {update} examples "
      "begin at multiples of that: resume with the same batch size."
    )
  key = tf.constant([seed, 1], tf.int64)

  def sort(number: tf.Tensor, records: tf.Tensor) -> Any:
    """Turns a window <string>[N] into updates [U, G, ...] and lengths [U]."""
    size = tf.shape(records)[0]
    size += -size % update
    batch = reader.weigh(reader.parse(manifest.features, records, size))
    # Of several sequences of an example, such as options, the longest counts.
    tokens = tf.reduce_sum(batch["input_mask"], axis=-1)  # [N] or [N, options]
    tokens = tf.reduce_max(tf.reshape(tokens, [size, -1]), axis=1)  # [N]
    buckets = tf.searchsorted(tf.constant(bucket_lengths), tokens)  # [N]
    # Examples of one bucket stay in their order, which is already random.
    rows = tf.reshape(tf.argsort(buckets, stable=True), [-1, update])
    if training:
      window_key = tf.random.experimental.stateless_fold_in(key, number)
      rows = tf.random.experimental.stateless_shuffle(rows, window_key)
    updates = {name: tf.gather(x, rows) for name, x in batch.items()}
    buckets = tf.reduce_max(tf.gather(buckets, rows), axis=1)  # [U]
    return updates, tf.gather(tf.constant(bucket_lengths), buckets)

  def cut(update_batch: Mapping[str, tf.Tensor], length: tf.Tensor) -> Any:
    """Cuts an update [G, ...] into batches [G / B, B, ...] of replicas."""
    batches = {}
    for name, x in update_batch.items():
      shape = shapes.get(name, ())
      if name in sequences:
        x, shape = x[..., :length], (*shape[:-1], length)
      batches[name] = tf.reshape(x, [-1, batch_size, *shape])
    return batches

  updates = (
    reader.read_serialized(
      directory,
      manifest.split(split).shards,
      training,
      seed,
      first_window * window,
    )
    .batch(window, drop_remainder=training)
    .enumerate(first_window)
    .map(sort, num_parallel_calls=1, deterministic=True)
    .prefetch(1)
    .unbatch()
    .skip(within // update)
    .map(cut, num_parallel_calls=reader.parallel_batches(), deterministic=True)
  )
  return reader.finish(
    updates.unbatch(), lambda _, batch: batch, training, context
  )
