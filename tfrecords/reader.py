"""Reads batches from shards, in an order that can be resumed at any example.

The order of the training examples is a pure function of (seed, epoch): each
epoch permutes the shards, interleaves several of them, and shuffles block by
block. All random choices are stateless, so the number of examples seen so far
is the only state of the stream. `tf.data.Dataset.shuffle` is not suitable: its
seed cannot depend on the epoch, and it depends on the global seed.

Skipped records are not parsed, and skipped blocks are not shuffled.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import tensorflow as tf

from official_albert import distribution, files, machine
from official_albert.tfrecords import schemas
from official_albert.training import ONE_PIPELINE

# Number of shards that are interleaved.
_CYCLE_LENGTH = 8
# Number of examples in a shuffled block.
_SHUFFLED_EXAMPLES = 16384
_FILE_BUFFER_BYTES = 1 << 20
# Number of batches that are read at the same time, at most, and in advance.
_PARALLEL_BATCHES = 16
_PREFETCHED_BATCHES = 4

Batch = Mapping[str, tf.Tensor]


# AutoGraph would convert the functions below, which takes half a second.
@tf.autograph.experimental.do_not_convert
def read_dataset(
  directory: str,
  split: str,
  batch_size: int,
  *,
  manifest: Optional[schemas.Manifest] = None,
  training: bool = True,
  seed: int = 0,
  start_example: int = 0,
  transform: Optional[Callable[[Batch, tf.Tensor], Batch]] = None,
  context: tf.distribute.InputContext = ONE_PIPELINE,
) -> tf.data.Dataset:
  """Reads batches of a split, with each example once per epoch.

  For training, the stream has endless epochs in random order, and a batch may
  span two epochs. Starting at example k gives exactly the rest of the stream
  from example k. Otherwise there is one epoch in the order of the files. Its
  last batch is padded with copies of its last example, whose `example_weight`
  and `masked_lm_weights` are 0.

  Deviation: the original drops the last partial batch of an evaluation.

  >>> from official_albert.tfrecords import reader
  >>> batches = reader.read_dataset("quickstart/records/64", "train", 3)
  >>> batch = next(iter(batches))
  >>> batch["input_ids"].shape, batch["masked_lm_ids"].shape
  (TensorShape([3, 64]), TensorShape([3, 4]))

  `manifest` is that of the folder, if its shards have been checked. `transform`
  is called with the features of a batch and the position <int64>[] of its first
  example in the stream over all epochs; it returns the batch to yield, and
  AutoGraph does not convert it.
  `context` is one of several input pipelines: batches are assigned to the
  replicas in turn, and each pipeline yields those of its own, consecutive ones.

  Returns:
    Dataset of dicts with static shapes: each feature of the schema, or of
    `transform`, <int32>[B, ...] or <float32>[B, ...], and `example_weight`
    <float32>[B].
  """
  manifest = open_split(directory, split, manifest)
  shards = manifest.split(split).shards
  serialized = read_serialized(directory, shards, training, seed, start_example)

  def read_batch(number: tf.Tensor, serialized: tf.Tensor) -> Batch:
    batch = parse(manifest.features, serialized, batch_size)
    if transform is not None:
      batch = transform(batch, start_example + number * batch_size)
    return weigh(batch)

  batches = serialized.batch(batch_size, drop_remainder=training)
  return finish(batches, read_batch, training, context)


def open_split(
  directory: str, split: str, checked: Optional[schemas.Manifest] = None
) -> schemas.Manifest:
  """Returns the manifest; checks the shards, unless it is `checked`."""
  manifest = checked or schemas.read_manifest(directory)
  described = manifest.split(split)
  if not described.records:
    raise ValueError(f"the {split!r} split of {directory} has no records.")
  if not checked:
    check_shards(directory, described)
  return manifest


def read_serialized(
  directory: str,
  shards: Sequence[schemas.Shard],
  training: bool,
  seed: int,
  start_example: int,
) -> tf.data.Dataset:
  """Returns the serialized examples of `read_dataset`, <string>[]."""
  shards = [shard for shard in shards if shard.records]
  paths = tf.constant([os.path.join(directory, s.file) for s in shards])
  if not training:
    return _records_of(paths)
  records = sum(shard.records for shard in shards)
  block = min(_SHUFFLED_EXAMPLES, records)
  first_epoch, skipped = divmod(start_example, records)

  def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
    skip = tf.where(epoch == first_epoch, tf.constant(skipped, tf.int64), 0)
    return _shuffled(paths, block, seed, epoch, skip)

  epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
  return epochs.flat_map(epoch_records)


def _records_of(paths: tf.Tensor) -> tf.data.Dataset:
  return tf.data.TFRecordDataset(paths, buffer_size=_FILE_BUFFER_BYTES)


def _shuffled(
  paths: tf.Tensor, block: int, seed: int, epoch: tf.Tensor, skip: tf.Tensor
) -> tf.data.Dataset:
  """Returns the serialized records of an epoch from record `skip` on."""
  key = tf.random.experimental.stateless_fold_in(
    tf.constant([seed, 0], tf.int64), epoch
  )
  records = tf.data.Dataset.from_tensor_slices(
    tf.random.experimental.stateless_shuffle(paths, key)
  ).interleave(
    _records_of,
    cycle_length=min(_CYCLE_LENGTH, len(paths)),
    num_parallel_calls=min(_CYCLE_LENGTH, len(paths)),
    deterministic=True,
  )
  first_block = skip // block

  def shuffle_block(index: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    # + 1, because the epoch itself is the key for shuffling the shards.
    block_key = tf.random.experimental.stateless_fold_in(key, index + 1)
    return tf.random.experimental.stateless_shuffle(rows, block_key)

  return (
    records.skip(first_block * block)
    .batch(block)
    .enumerate(first_block)
    .map(shuffle_block)
    .prefetch(1)
    .unbatch()
    .skip(skip % block)
  )


def finish(
  batches: tf.data.Dataset,
  function: Callable[[tf.Tensor, Any], Batch],
  training: bool,
  context: tf.distribute.InputContext,
) -> tf.data.Dataset:
  """Maps the batches of one pipeline by number and batch; prefetches them."""
  batches, pipelines = batches.enumerate(), context.num_input_pipelines
  if pipelines > 1:
    replicas = context.num_replicas_in_sync // pipelines
    own = context.input_pipeline_id
    batches = batches.filter(
      lambda number, _: number // replicas % pipelines == own
    )
  batches = batches.map(function, num_parallel_calls=parallel_batches())
  if training:
    # Otherwise the workers would synchronize before each step to check that
    # there is a batch.
    batches = batches.apply(
      tf.data.experimental.assert_cardinality(
        tf.data.experimental.INFINITE_CARDINALITY
      )
    )
  options = tf.data.Options()
  options.deterministic = True
  batches = batches.prefetch(_PREFETCHED_BATCHES).with_options(options)
  return distribution.untuned(batches)


def parallel_batches() -> int:
  """Returns how many batches this machine reads at the same time."""
  return min(machine.cpu_count(), _PARALLEL_BATCHES)


def check_shards(directory: str, *splits: schemas.Split) -> None:
  """Checks that shards exist and, on a disk, have the sizes of the manifest.

  In a bucket there are no incomplete objects, and one listing shows all names,
  while sizes would take a request for each shard.
  """
  names = set(files.list_dir(directory))
  for shard in itertools.chain(*(split.shards for split in splits)):
    path = os.path.join(directory, shard.file)
    if shard.file not in names:
      raise FileNotFoundError(
        f"shard {path} is missing, but the manifest lists it: copy the whole "
        "folder, or build it again."
      )
    size = shard.bytes if files.is_remote(path) else os.path.getsize(path)
    if size != shard.bytes:
      raise ValueError(
        f"shard {path} has {size:,} bytes, but the manifest says "
        f"{shard.bytes:,}: the file is damaged or incomplete; copy it again."
      )


def read_records(path: str) -> Iterator[bytes]:
  """Yields the serialized records of a file; names a damaged one."""
  number = 0
  try:
    records = distribution.untuned(tf.data.TFRecordDataset(path))
    for record in records.as_numpy_iterator():
      yield record
      number += 1
  except tf.errors.DataLossError as error:
    raise ValueError(
      f"{path} is damaged after its first {number} records"
      f"{', or is compressed' * (not number)}: copy it or build it again."
    ) from error


def parse_spec(
  features: Sequence[schemas.Feature],
) -> dict[str, tf.io.FixedLenFeature]:
  """Returns the schema in the form for `tf.io.parse_example`."""
  return {
    feature.name: tf.io.FixedLenFeature(
      feature.shape, tf.dtypes.as_dtype(feature.dtype)
    )
    for feature in features
  }


def parse(
  features: Sequence[schemas.Feature],
  batch: tf.Tensor,
  batch_size: Union[int, tf.Tensor],
) -> Batch:
  """Parses serialized records <string>[1..B] into features [B, ...].

  Adds `example_weight` <float32>[B], which is 0 for padding rows.
  """
  real = tf.shape(batch)[0]
  padding = tf.repeat(batch[-1:], batch_size - real)
  batch = tf.reshape(tf.concat([batch, padding], axis=0), [batch_size])
  parsed = tf.io.parse_example(batch, parse_spec(features))
  # 32 bits are enough for ids and positions, and faster on accelerators.
  parsed = {
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in parsed.items()
  }
  weight = tf.cast(tf.range(batch_size) < real, tf.float32)
  return {**parsed, "example_weight": weight}


def weigh(batch: Batch) -> Batch:
  """Applies `example_weight` to `masked_lm_weights`."""
  if "masked_lm_weights" not in batch:
    return batch
  weights = batch["masked_lm_weights"] * batch["example_weight"][:, None]
  return {**batch, "masked_lm_weights": weights}
