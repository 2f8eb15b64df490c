"""Tests of reading, checking and counting records."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf

import tfrecords
from tools.cli import printing
from tools.records import record_survey

_SCHEMA = tfrecords.pretraining_schema(9, 3)
_UNMASKED = tuple(f for f in _SCHEMA if not f.name.startswith("masked_lm_"))
# BERT's.
_NO_BOUNDARY = tuple(f for f in _SCHEMA if f.name != "token_boundary")


class _Tokenizer:
  vocab_size = 50
  pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
  # Of the ids from 5 on, odd ones start a word.
  word_start_table = np.arange(50) % 2 > 0


def _record(number, **changes):
  """[CLS] 5 [MASK] [MASK] [SEP] 7 8 [SEP]; labels 11, 10 + number, 8."""
  return {
    "input_ids": [2, 5, 4, 4, 3, 7, 8, 3, 0],
    "input_mask": [1] * 8 + [0],
    "segment_ids": [0] * 5 + [1] * 3 + [0],
    "token_boundary": [1, 1, 1, number % 2, 1, 1, 0, 1, 0],
    "masked_lm_positions": [2, 3, 6],
    "masked_lm_ids": [11, 10 + number, 8],
    "masked_lm_weights": np.float32([1, 1, 1]),
    "next_sentence_labels": [number % 2],
    **changes,
  }


def _write(folder, name, records, schema=_SCHEMA):
  with tfrecords.ShardWriter(str(folder / name), schema) as shard:
    for record in records:
      shard.write({feature.name: record[feature.name] for feature in schema})
  return shard.result


def _write_examples(path, *examples):
  """Writes any features, or bytes."""
  with tf.io.TFRecordWriter(str(path)) as file:
    for example in examples:
      if not isinstance(example, bytes):
        proto = tf.train.Example()
        for name, values in example.items():
          feature = proto.features.feature[name]
          is_float = name == "masked_lm_weights"
          kind = feature.float_list if is_float else feature.int64_list
          kind.value.extend(values)
        example = proto.SerializeToString()
      file.write(example)


def _folder(folder, shards, statistics=None, **settings):
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=9,
    max_predictions_per_seq=3,
    features=_SCHEMA,
    tokenizer=tfrecords.TokenizerInfo("0" * 64, 50, True),
    settings=settings,
    random_seed=1,
    splits={"train": tfrecords.Split(tuple(shards), statistics or {})},
  )
  tfrecords.write_manifest(str(folder), manifest)
  return record_survey.read_splits(str(folder))["train"]


def _survey(split, line=None):
  line = line or printing.ProgressLine(io.StringIO())
  return record_survey.survey("train", split, _Tokenizer(), line)


@pytest.fixture
def shards(tmp_path):
  return [
    _write(tmp_path, "a", map(_record, range(3))),
    _write(tmp_path, "b", []),
    _write(tmp_path, "c", [_record(0), _record(1)]),
  ]


@pytest.mark.parametrize("batch", [1, 2, 256])
def test_all_files_are_counted(tmp_path, shards, monkeypatch, batch):
  monkeypatch.setattr(record_survey, "_BATCH", batch)
  split = _folder(tmp_path, shards, {"instances": 5, "documents": 7})
  survey = _survey(split)
  assert survey.records == [3, 0, 2]
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
  assert survey.lengths.tolist() == [0] * 8 + [5, 0]
  assert survey.positions.tolist() == [0, 0, 5, 5, 0, 0, 5, 0, 0]
  for count in (0, 4):
    shown = record_survey.first_examples(split, _Tokenizer(), count)
    labels = [record["masked_lm_ids"][1] for record in shown]
    assert labels == [10, 11, 12, 10][:count]


@pytest.mark.parametrize("schema", [_SCHEMA, _UNMASKED, _NO_BOUNDARY])
def test_files_without_a_manifest(tmp_path, schema):
  record = _record(1)
  if schema == _UNMASKED:
    record["input_ids"] = [2, 5, 11, 11, 3, 7, 8, 3, 0]
  paths = [str(tmp_path / name) for name in "ac"]
  for name, count in (("a", 3), ("c", 1)):
    _write(tmp_path, name, [record] * count, schema)
  split = record_survey.of_files(paths)
  assert split.schema == schema
  survey = _survey(split)
  assert survey.records == [3, 1]
  assert survey.counts.predictions == survey.positions.sum()
  assert survey.counts.predictions == (0 if schema == _UNMASKED else 12)


@pytest.mark.parametrize(
  ("examples", "message"),
  [
    ((), "a has no records"),
    ((b"\x07",), "a is no tf.train.Example"),
    # Neither masks nor words: nothing could be learned.
    (
      ({f.name: [1] for f in _UNMASKED if f.name != "token_boundary"},),
      "their features are input_ids, input_mask, next_sent",
    ),
  ],
)
def test_files_that_are_no_pretraining_records(tmp_path, examples, message):
  _write_examples(tmp_path / "a", *examples)
  with pytest.raises(ValueError, match=message):
    record_survey.of_files([str(tmp_path / "a")])


@pytest.mark.parametrize(
  ("bad", "message"),
  [
    (_record(0, input_ids=[1] * 8), "does not fit the schema: .*input_ids"),
    (_record(0, masked_lm_ids=[11, 10, 3]), r"has 3 times \[SEP\], not 2"),
  ],
)
@pytest.mark.parametrize("batch", [2, 256])
def test_record_that_does_not_fit_is_named(
  tmp_path, monkeypatch, bad, message, batch
):
  monkeypatch.setattr(record_survey, "_BATCH", batch)
  path = str(tmp_path / "a")
  good = _record(0, extra=[1])  # Other features are ignored.
  _write_examples(path, good, good, good, bad, good)
  split = _folder(tmp_path, [])._replace(paths=[path])
  expected = rf"^{path}, record 3 \(counted from 0\),? {message}"
  with pytest.raises(ValueError, match=expected):
    list(record_survey.read_batches(path, split, _Tokenizer()))


def test_whole_words_are_checked_if_the_settings_require_it(tmp_path):
  # 7 8 is a word, of which 8 is to be predicted.
  shards = [_write(tmp_path, "a", [_record(0)])]
  assert _survey(_folder(tmp_path, shards)).records == [1]
  with pytest.raises(ValueError, match="masked in part"):
    _survey(_folder(tmp_path, shards, do_whole_word_mask=True))


def test_manifest_that_contradicts_the_records(tmp_path, shards):
  other = dataclasses.replace(shards[2], records=3)
  with pytest.raises(ValueError, match="c has 2 records, but .* says 3"):
    _survey(_folder(tmp_path, [*shards[:2], other]))
  for statistics, message in (
    ({"label_1_share": 0.75}, "0.75, but its records have 0.4"),
    ({"instances": 6}, "6, but its records have 5"),
  ):
    (name,) = statistics
    message = rf"manifest says {name} {message} \(split 'train'\)"
    with pytest.raises(ValueError, match=message):
      _survey(_folder(tmp_path, shards, statistics))
  assert _survey(_folder(tmp_path, shards, {"mean_length": 8.0000001}))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
