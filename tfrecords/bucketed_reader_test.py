"""Tests of the examples, lengths and order of bucketed batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert.tfrecords import (
  bucketed_reader,
  reader,
  reader_test,
  schemas,
)

_LONGEST = 23
_LENGTHS = (5, 11, 14, _LONGEST)
_RECORDS = 61
_SHARDS = 3
_LABEL = schemas.Feature("label_ids", "int64", ())
# With the windows of four updates below: five windows and an example.
_BATCH = 3
_WINDOW = 4 * _BATCH


def _tokens(number):
  return 2 + 7 * number % (_LONGEST - 1)


def _record(number):
  mask = np.arange(_LONGEST) < _tokens(number)
  return {
    "input_ids": mask * (number + 1),
    "input_mask": mask.astype(int),
    "segment_ids": mask * (np.arange(_LONGEST) > 1),
    "example_id": np.array(number),
    "label_ids": np.array(number % 5),
  }


def _write_folder(directory, records=_RECORDS):
  shards = [
    [_record(number) for number in range(index, records, _SHARDS)]
    for index in range(_SHARDS)
  ]
  schema = schemas.finetuning_schema([_LONGEST], _LABEL)
  return reader_test.write_folder(
    directory, schema, {"train": shards}, _LONGEST
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return _write_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch):
  monkeypatch.setattr(reader, "_SHUFFLED_EXAMPLES", 7)


def _read(folder, batch_size=_BATCH, **kwargs):
  kwargs = {"window_updates": 4, **kwargs}
  return bucketed_reader.read_bucketed_dataset(
    folder, "train", batch_size, _LENGTHS, **kwargs
  )


def _ids(folder, batches, batch_size=_BATCH, **kwargs):
  """The examples' numbers <int>[batches, B]."""
  dataset = _read(folder, batch_size, **kwargs)
  rows = [b["example_id"].numpy() for b in itertools.islice(dataset, batches)]
  return np.array(rows)


def test_iterators_end_at_once(folder):
  """A sleeping autotuner would be waited for; see `distribution.untuned`."""
  for training in (True, False):
    for batches in (
      reader.read_dataset(folder, "train", 3, training=training),
      _read(folder, training=training),
    ):
      options = batches.options()
      assert options.autotune.enabled is False and options.deterministic


def test_batches_equal_those_of_the_reader_without_padding(folder):
  whole = reader.read_dataset(folder, "train", _RECORDS, training=False)
  whole = {name: x.numpy() for name, x in next(iter(whole)).items()}
  by_number = np.argsort(whole["example_id"])
  dataset = _read(folder)
  spec = dataset.element_spec
  assert spec["input_ids"] == tf.TensorSpec([_BATCH, None], tf.int32)
  assert spec["example_weight"] == tf.TensorSpec([_BATCH], tf.float32)
  seen = set()
  for batch in itertools.islice(dataset, 30):
    rows = by_number[batch["example_id"]]
    longest = max(_tokens(n) for n in batch["example_id"].numpy())
    length = min(n for n in _LENGTHS if n >= longest)
    seen.add(length)
    for name, values in batch.items():
      expected = whole[name][rows]
      if name in ("input_ids", "input_mask", "segment_ids"):
        assert not expected[:, length:].any()
        expected = expected[:, :length]
      np.testing.assert_array_equal(values, expected)
  assert seen == set(_LENGTHS)


def test_the_longest_option_of_an_example_counts(tmp_path):
  mask = np.arange(_LONGEST) < np.array([[3], [12]])
  inputs = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), mask)
  record = {**inputs, "example_id": np.array(0), "label_ids": np.array(1)}
  schema = schemas.finetuning_schema([2, _LONGEST], _LABEL)
  splits = {"train": [[record] * _BATCH]}
  folder = reader_test.write_folder(tmp_path, schema, splits, _LONGEST)
  batch = next(iter(_read(folder)))
  assert batch["input_ids"].shape == [_BATCH, 2, 14]


def test_windows_have_the_examples_of_the_readers_stream(folder):
  """All examples occur once per epoch, but mixed at the border of two."""
  stream = reader.read_dataset(folder, "train", 1, seed=4)
  numbers = [
    int(batch["example_id"][0])
    for batch in itertools.islice(stream, 12 * _WINDOW)
  ]
  ids = _ids(folder, 12 * 4, seed=4).reshape(12, _WINDOW)
  for index, window in enumerate(ids):
    expected = numbers[index * _WINDOW : (index + 1) * _WINDOW]
    assert sorted(window) == sorted(expected)
  assert len(set(ids[:5].ravel())) == 5 * _WINDOW


def test_batches_have_similar_lengths_and_a_random_order(folder):
  ids = _ids(folder, 6 * 4, seed=2).reshape(6, 4, _BATCH)
  buckets = np.searchsorted(_LENGTHS, _tokens(ids))
  in_order = 0
  for window in buckets:
    window = window.tolist()
    in_order += window == sorted(window)
    by_length = sorted(window, key=lambda update: (max(update), min(update)))
    flat = [bucket for update in by_length for bucket in sorted(update)]
    assert flat == sorted(flat)
  assert in_order < 6
  # Within a bucket it is chance who meets whom, not the exact length.
  lengths = _tokens(ids[buckets.min(-1) == buckets.max(-1)])
  assert (np.diff(lengths) < 0).any() and (np.diff(lengths) > 0).any()


def test_the_order_within_a_window_depends_on_the_seed(folder, monkeypatch):
  """Also if the stream of examples did not."""
  read = reader.read_serialized

  def of_one_seed(directory, shards, training, seed, *others):
    return read(directory, shards, training, 3, *others)

  monkeypatch.setattr(reader, "read_serialized", of_one_seed)
  first, second = (_ids(folder, 20, seed=seed) for seed in (3, 4))
  assert sorted(first[:4].ravel()) == sorted(second[:4].ravel())
  assert (first != second).any()


def test_resumed_stream_continues(folder):
  """Within a window, at its end, and in the window of two epochs."""
  stream = _ids(folder, 50, seed=9)
  assert (stream != _ids(folder, 50, seed=9 + 2**40)).any()
  for start in (3, 4, 21):
    rest = _ids(folder, 50 - start, seed=9, start_example=start * _BATCH)
    np.testing.assert_array_equal(rest, stream[start:])
  with pytest.raises(ValueError, match="is 4, but updates of 3 examples begin"):
    _read(folder, start_example=4)


@pytest.mark.parametrize("pipelines, replicas", [(1, 2), (2, 4)])
def test_updates_do_not_depend_on_the_number_of_replicas(
  folder, pipelines, replicas
):
  update, count = 12, 11
  whole = list(itertools.islice(_read(folder, update, seed=3), count))
  contexts = [
    tf.distribute.InputContext(pipelines, pipeline, replicas)
    for pipeline in range(pipelines)
  ]
  one = update // replicas
  streams = [iter(_read(folder, one, seed=3, context=x)) for x in contexts]
  for expected in whole:
    parts = [
      next(stream) for stream in streams for _ in range(replicas // pipelines)
    ]
    for name, values in expected.items():
      together = np.concatenate([part[name] for part in parts])
      np.testing.assert_array_equal(together, values)


@pytest.mark.parametrize("batch_size", [3, 64])
def test_an_evaluation_has_each_example_once(folder, batch_size):
  batches = list(_read(folder, batch_size, training=False))
  assert len(batches) == -(-_RECORDS // batch_size)
  weights = np.concatenate([b["example_weight"] for b in batches])
  ids = np.concatenate([b["example_id"] for b in batches])
  assert weights.size == ids.size == len(batches) * batch_size
  assert sorted(ids[weights == 1]) == list(range(_RECORDS))
  assert (weights == 0).sum() == weights.size - _RECORDS
  lengths = [b["input_ids"].shape[1] for b in batches]
  for first in range(0, len(lengths), 4):
    assert lengths[first : first + 4] == sorted(lengths[first : first + 4])


@pytest.mark.parametrize("records, batch_size", [(7, 2), (2, 3)])
def test_few_examples(tmp_path, records, batch_size):
  """No example repeats before all others of the epoch."""
  folder = _write_folder(tmp_path, records)
  ids = _ids(folder, 12, batch_size, seed=1).ravel()
  epoch = records // batch_size * batch_size
  if epoch:
    assert len(set(ids[:epoch])) == epoch
  counts = np.bincount(ids, minlength=records)
  # Twelve batches are four or twelve windows; the last epoch is cut off.
  assert counts.max() - counts.min() <= 1
