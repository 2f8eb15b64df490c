"""Tests of the order of examples, of resuming, and of damaged folders."""

import gzip
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert.tfrecords import reader, schemas, writer

_SEQ, _PREDICTIONS = 7, 2
_SHARD_SIZES = (11, 5, 0, 7)
_RECORDS = sum(_SHARD_SIZES)
_SCHEMA = schemas.pretraining_schema(_SEQ, _PREDICTIONS)


def _record(number):
  """A record whose first id is its number."""
  return {
    x.name: number + np.arange(x.length, dtype=x.dtype).reshape(x.shape)
    for x in _SCHEMA
  }


def write_records(path, schema, records):
  """Writes records, dicts of lists or arrays, and returns their shard."""
  encoded = [
    writer.encode_examples(
      schema, {x.name: np.asarray(record[x.name])[None] for x in schema}
    )[0]
    for record in records
  ]
  return writer.write_shard(str(path), encoded)


def write_folder(directory, schema, splits, length, **changes):
  """Writes a folder, given the shards of each split: lists of records."""
  directory.mkdir(exist_ok=True)
  written = {}
  for split, shards in splits.items():
    results = []
    for index, records in enumerate(shards):
      name = schemas.shard_name(split, index, len(shards))
      results.append(write_records(directory / name, schema, records))
    written[split] = schemas.Split(tuple(results), {})
  manifest = schemas.Manifest(
    task=changes.pop("task", "toy"),
    max_seq_length=length,
    max_predictions_per_seq=changes.pop("predictions", 0),
    features=schema,
    tokenizer=schemas.TokenizerInfo(changes.pop("sha256", "0" * 64), 97, True),
    settings=changes,
    random_seed=1,
    splits=written,
  )
  schemas.write_manifest(str(directory), manifest)
  return str(directory)


def _write_folder(directory):
  records = map(_record, itertools.count())
  shards = [list(itertools.islice(records, size)) for size in _SHARD_SIZES]
  splits = {"train": shards, "empty": []}
  return write_folder(directory, _SCHEMA, splits, _SEQ)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return _write_folder(tmp_path_factory.mktemp("data"))


def _numbers(folder, count, batch_size=1, **kwargs):
  """The numbers of the stream's first `count` examples."""
  dataset = reader.read_dataset(folder, "train", batch_size, **kwargs)
  batches = itertools.islice(dataset, -(-count // batch_size))
  ids = [b["input_ids"].numpy()[:, 0] for b in batches]
  return np.concatenate(ids)[:count].tolist() if ids else []


def test_batches_have_static_shapes_32_bit_types_and_the_values(folder):
  dataset = reader.read_dataset(folder, "train", 3, training=False)
  assert dataset.element_spec == {
    feature.name: tf.TensorSpec(
      (3, *feature.shape), tf.int32 if feature.dtype == "int64" else tf.float32
    )
    for feature in _SCHEMA
  } | {"example_weight": tf.TensorSpec((3,), tf.float32)}
  batch = next(iter(dataset))
  for name, values in _record(0).items():
    np.testing.assert_array_equal(batch[name][0], values)
  np.testing.assert_array_equal(batch["next_sentence_labels"], [[0], [1], [2]])
  np.testing.assert_array_equal(batch["example_weight"], [1, 1, 1])


def test_each_epoch_has_each_example_once_in_an_order_of_its_seed(folder):
  tf.random.set_seed(1)
  stream = _numbers(folder, 3 * _RECORDS, seed=4)
  epochs = [stream[i : i + _RECORDS] for i in range(0, len(stream), _RECORDS)]
  in_order = list(range(_RECORDS))
  assert [sorted(epoch) for epoch in epochs] == [in_order] * 3
  assert len({tuple(epoch) for epoch in [in_order, *epochs]}) == 4
  tf.random.set_seed(2)
  tf.random.uniform(())
  assert _numbers(folder, 30, seed=4) == stream[:30]
  assert _numbers(folder, 30, seed=4, batch_size=5) == stream[:30]
  assert _numbers(folder, 30, seed=5) != stream[:30]
  assert _numbers(folder, 30, seed=4 + 2**40) != stream[:30]


@pytest.mark.parametrize("block", [4, 16384])
def test_resumed_stream_continues(folder, block, monkeypatch):
  monkeypatch.setattr(reader, "_SHUFFLED_EXAMPLES", block)
  stream = _numbers(folder, 61, seed=9)
  # In the first epoch, in and at the border of a block of 4 and of 16384, at
  # the border of an epoch, and in later epochs.
  for start in (1, 4, _RECORDS, 31):
    resumed = _numbers(folder, 30, batch_size=5, start_example=start, seed=9)
    assert resumed == stream[start : start + 30]


def test_skipped_records_are_not_parsed(tmp_path):
  _write_folder(tmp_path)
  stream = _numbers(str(tmp_path), _RECORDS)
  first = tmp_path / schemas.shard_name("train", 0, len(_SHARD_SIZES))
  records = [r.numpy() for r in tf.data.TFRecordDataset(str(first))]
  with tf.io.TFRecordWriter(str(first)) as shard:
    shard.write(b"\x07" * len(records[0]))  # Keeps the file's size.
    for record in records[1:]:
      shard.write(record)
  place = stream.index(0)
  after = stream[place + 1 : place + 4]
  assert _numbers(str(tmp_path), 3, start_example=place + 1) == after
  with pytest.raises(tf.errors.InvalidArgumentError):
    _numbers(str(tmp_path), 1, start_example=place)


def _with_place(batch, first_example):
  numbers = batch["input_ids"][:, 0]
  places = first_example + tf.range(tf.size(numbers), dtype=tf.int64)
  return {"number": numbers, "place": places, **batch}


def test_evaluation_drops_nothing_and_pads_the_last_batch(folder):
  def transform(batch, first_example):
    doubled = 2 * batch["masked_lm_weights"]
    return {**_with_place(batch, first_example), "masked_lm_weights": doubled}

  dataset = reader.read_dataset(
    folder, "train", 9, training=False, transform=transform
  )
  batches = list(dataset.as_numpy_iterator())
  places = np.concatenate([batch["place"] for batch in batches])
  numbers = np.concatenate([batch["number"] for batch in batches])
  assert places.tolist() == list(range(27))
  assert numbers.tolist() == [*range(_RECORDS), 22, 22, 22, 22]
  assert sum(b["example_weight"].sum() for b in batches) == _RECORDS
  # Padding has no weight, even if the transform sets the weights.
  weights = np.array([1] * 5 + [0] * 4)
  np.testing.assert_array_equal(batches[-1]["example_weight"], weights)
  np.testing.assert_array_equal(
    batches[-1]["masked_lm_weights"],
    2 * (batches[-1]["number"] * weights)[:, None] + np.outer(weights, [0, 2]),
  )


# Workers with one and two devices each.
@pytest.mark.parametrize(
  ("pipelines", "local", "start"), [(2, 1, 0), (2, 2, 30)]
)
def test_pipelines_share_the_stream(folder, pipelines, local, start):
  steps, replicas = 5, pipelines * local

  def batches(count, *context):
    dataset = reader.read_dataset(
      folder,
      "train",
      2,
      seed=3,
      start_example=start,
      transform=_with_place,
      context=tf.distribute.InputContext(*context),
    )
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert dataset.element_spec["place"] == tf.TensorSpec((2,), tf.int64)
    found = itertools.islice(dataset.as_numpy_iterator(), count)
    return [[batch["number"], batch["place"]] for batch in found]

  whole = np.array(batches(steps * replicas))  # [steps x replicas, 2, B]
  places = whole[:, 1].ravel().tolist()
  assert places == list(range(start, start + len(places)))
  stream = _numbers(folder, start + len(places), seed=3)
  assert whole[:, 0].ravel().tolist() == stream[start:]
  expected = whole.reshape(steps, pipelines, local, 2, 2)
  for worker in range(pipelines):
    share = np.array(batches(steps * local, pipelines, worker, replicas))
    share = share.reshape(steps, local, 2, 2)
    np.testing.assert_array_equal(share, expected[:, worker])


@pytest.mark.parametrize(
  ("split", "message"),
  [
    ("heldout", "no split 'heldout', only empty, train"),
    ("empty", "'empty' split of .* has no records"),
  ],
)
def test_wrong_splits(folder, split, message):
  with pytest.raises(ValueError, match=message):
    reader.read_dataset(folder, split, 2)


def test_missing_and_damaged_shards_are_named(tmp_path):
  _write_folder(tmp_path)
  path = tmp_path / schemas.shard_name("train", 1, len(_SHARD_SIZES))
  content = path.read_bytes()
  flipped = bytearray(content)
  flipped[len(content) // 2] ^= 1
  path.write_bytes(flipped)
  with pytest.raises(tf.errors.DataLossError):
    _numbers(str(tmp_path), _RECORDS, training=False)
  with pytest.raises(ValueError, match=f"{path.name} is damaged after its fi"):
    list(reader.read_records(str(path)))
  path.write_bytes(gzip.compress(content))
  with pytest.raises(ValueError, match="its first 0 records, or is compressed"):
    list(reader.read_records(str(path)))
  path.write_bytes(content[:-1])
  with pytest.raises(ValueError, match=f"{path.name} has .* damaged"):
    reader.read_dataset(str(tmp_path), "train", 2)
  os.remove(path)
  # TensorFlow's own names of local files stand for gs:// here.
  for folder in (str(tmp_path), f"file://{tmp_path}"):
    with pytest.raises(FileNotFoundError, match=f"{path.name} is missing"):
      reader.read_dataset(folder, "train", 2)
