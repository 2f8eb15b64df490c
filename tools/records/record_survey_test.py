"""Tests of reading records back: what is counted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from tools.records import record_survey

_SCHEMA = tfrecords.pretraining_schema(9, 3)
_UNMASKED = tuple(f for f in _SCHEMA if not f.name.startswith("masked_lm_"))


class _Tokenizer:
  mask_id = 4
  # Of the ids from 5 on, odd ones start a word.
  word_start_table = np.arange(50) % 2 > 0


def _record(number, schema=_SCHEMA):
  """[CLS] 5 [MASK] [MASK] [SEP] 7 8 [SEP], with 10 + number behind a mask."""
  record = {
    "input_ids": [2, 5, 4, 4, 3, 7, 8, 3, 0],
    "input_mask": [1] * 8 + [0],
    "segment_ids": [0] * 5 + [1] * 3 + [0],
    "token_boundary": [1, 1, 1, 1, 1, 1, 0, 1, 0],
    "masked_lm_positions": [2, 3, 6],
    "masked_lm_ids": [11, 10 + number, 8],
    "masked_lm_weights": np.float32([1, 1, 1]),
    "next_sentence_labels": [number % 2],
  }
  return {feature.name: record[feature.name] for feature in schema}


def _write(path, count, schema=_SCHEMA):
  with tfrecords.ShardWriter(str(path), schema) as shard:
    for number in range(count):
      shard.write(_record(number, schema))
  return str(path)


def _survey(paths, schema):
  survey = record_survey.Survey(9, _Tokenizer())
  for path in paths:
    for batch in record_survey.batches(path, schema):
      survey.add(batch.features)
  return survey


@pytest.mark.parametrize(
  "schema",
  [
    _SCHEMA,
    _UNMASKED,
    tuple(f for f in _SCHEMA if f.name != "token_boundary"),  # BERT's.
  ],
)
def test_schema_of_a_file(tmp_path, schema):
  path = _write(tmp_path / "a", 1, schema)
  assert record_survey.infer_schema(path) == schema


def test_files_that_are_no_pretraining_records(tmp_path):
  path = str(tmp_path / "a")
  for record, message in (
    (None, "a has no records"),
    (b"\x07", "does not hold tf.train.Example"),
    (b"", "holds no pretraining records; their features are none"),
  ):
    with tf.io.TFRecordWriter(path) as file:
      if record is not None:
        file.write(record)
    with pytest.raises(ValueError, match=message):
      record_survey.infer_schema(path)
  # Neither masks nor words: nothing could be learned.
  schema = tuple(f for f in _UNMASKED if f.name != "token_boundary")
  with pytest.raises(ValueError, match="input_ids, input_mask, next_sent"):
    record_survey.infer_schema(_write(tmp_path / "b", 1, schema))


@pytest.mark.parametrize("batch", [1, 2, 256])
def test_all_files_are_counted(tmp_path, monkeypatch, batch):
  monkeypatch.setattr(record_survey, "_BATCH", batch)
  paths = [_write(tmp_path / "a", 3), _write(tmp_path / "b", 0)]
  paths.append(_write(tmp_path / "c", 2))
  survey = _survey(paths, _SCHEMA)
  assert survey.statistics() == {
    "instances": 5,
    "tokens": 40,
    "mean_length": 8.0,
    "padding_share": 5 / 45,
    "segment_a_share": 25 / 40,
    "label_1_share": 2 / 5,
    "predictions": 15,
    "mean_predictions": 3.0,
    "masked_share_of_tokens": 15 / 40,
    "mask_token_share": 10 / 15,
    "kept_share": 5 / 15,
    "random_share": 0.0,
  }
  assert (survey.label_0, survey.label_1) == (3, 2)
  assert survey.lengths.tolist() == [0] * 8 + [5, 0]
  assert survey.positions.tolist() == [0, 0, 5, 5, 0, 0, 5, 0, 0]
  # Labels 11 and 11 are two words, 11 and 10 or 12 one; 8 starts none.
  assert survey.run_words.tolist() == [5, 3, 2] + [0] * 6


def test_first_number_of_each_batch(tmp_path, monkeypatch):
  monkeypatch.setattr(record_survey, "_BATCH", 2)
  path = _write(tmp_path / "a", 5)
  found = list(record_survey.batches(path, _SCHEMA))
  assert [b.first for b in found] == [0, 2, 4]
  assert [b.features["masked_lm_ids"][0, 1] for b in found] == [10, 12, 14]


def test_unmasked_records(tmp_path):
  path = _write(tmp_path / "a", 3, _UNMASKED)
  survey = _survey([path], _UNMASKED)
  assert survey.counts.instances == 3
  assert survey.counts.predictions == 0
  assert survey.positions.sum() == survey.run_words.sum() == 0


def _other(**changes):
  features = {
    name: tf.train.Feature(
      float_list=tf.train.FloatList(value=value)
      if name == "masked_lm_weights"
      else None,
      int64_list=None
      if name == "masked_lm_weights"
      else tf.train.Int64List(value=value),
    )
    for name, value in {**_record(0), **changes}.items()
    if value is not None
  }
  return tf.train.Example(
    features=tf.train.Features(feature=features)
  ).SerializeToString()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"input_ids": [1] * 8}, "its input_ids has 8 values of int64, not 9"),
    ({"segment_ids": None}, "it has no segment_ids"),
    (
      {"masked_lm_weights": [1.0]},
      "its masked_lm_weights has 1 values of float32, not 3",
    ),
    ({"extra": [1]}, "it also has extra"),
  ],
)
def test_record_that_does_not_fit_is_named(tmp_path, changes, message):
  path = str(tmp_path / "a")
  with tf.io.TFRecordWriter(path) as file:
    for change in ({}, {}, changes, {}):
      file.write(_other(**change))
  with pytest.raises(ValueError) as error:
    list(record_survey.batches(path, _SCHEMA, exact=True))
  assert str(error.value) == (
    f"{path}, record 2 (counted from 0), does not fit the schema: {message}."
  )


def test_other_features_may_be_there(tmp_path):
  path = str(tmp_path / "a")
  with tf.io.TFRecordWriter(path) as file:
    file.write(_other(extra=[1]))
  (batch,) = record_survey.batches(path, _SCHEMA)
  assert "extra" not in batch.features


def test_bytes_that_are_no_example(tmp_path):
  path = str(tmp_path / "a")
  with tf.io.TFRecordWriter(path) as file:
    file.write(b"\x07")
  with pytest.raises(ValueError, match="record 0 .* no tf.train.Example"):
    list(record_survey.batches(path, _SCHEMA))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
