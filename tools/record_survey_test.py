"""Tests of reading records back: what is counted, what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import schemas, writer
from tools import record_survey

_SCHEMA = schemas.pretraining_schema(9, 2)


class _Tokenizer:
  special_ids = frozenset(range(5))
  mask_id = 4

  def id_to_piece(self, id):
    return f"▁{id}"


def _record(number):
  return {
    "input_ids": [2, 5, 4, 3, 7, 8, 3, 0, 0],
    "input_mask": [1] * 7 + [0] * 2,
    "segment_ids": [0] * 4 + [1] * 3 + [0] * 2,
    "token_boundary": [1] * 7 + [0] * 2,
    "masked_lm_positions": [2, 0],
    "masked_lm_ids": [10 + number, 0],
    "masked_lm_weights": np.float32([1, 0]),
    "next_sentence_labels": [number % 2],
  }


def _write(path, count):
  with writer.ShardWriter(str(path), _SCHEMA) as shard:
    for number in range(count):
      shard.write(_record(number))
  return str(path)


def test_schema_of_a_file(tmp_path):
  path = _write(tmp_path / "a", 1)
  assert record_survey.infer_schema(path) == _SCHEMA


def test_files_that_are_no_pretraining_records(tmp_path):
  path = str(tmp_path / "a")
  for record, message in (
    (None, "a has no records"),
    (b"\x07", "does not hold tf.train.Example"),
    (b"", "holds no pretraining records; their features are "),
  ):
    with tf.io.TFRecordWriter(path) as file:
      if record is not None:
        file.write(record)
    with pytest.raises(ValueError, match=message):
      record_survey.infer_schema(path)


@pytest.mark.parametrize("batch", [1, 2, 256])
def test_all_files_are_counted_and_the_first_examples_shown(
  tmp_path, capsys, monkeypatch, batch
):
  monkeypatch.setattr(record_survey, "_BATCH", batch)
  paths = [_write(tmp_path / "a", 3), _write(tmp_path / "b", 0)]
  paths.append(_write(tmp_path / "c", 2))
  statistics = record_survey.survey(paths, _SCHEMA, _Tokenizer(), 4)
  shown = capsys.readouterr().out
  # Numbers 0, 1, 2 of the first file and 0 of the last.
  assert re.findall(r"\{4:(\d+)\}", shown) == ["10", "11", "12", "10"]
  assert [f"Example {n}:" in shown for n in range(5)] == [True] * 4 + [False]
  assert statistics == {
    "instances": 5,
    "tokens": 35,
    "mean_length": 7.0,
    "padding_share": 10 / 45,
    "segment_a_share": 20 / 35,
    "label_1_share": 2 / 5,
    "predictions": 5,
    "mean_predictions": 1.0,
    "masked_share_of_tokens": 5 / 35,
    "mask_token_share": 1.0,
    "kept_share": 0.0,
    "random_share": 0.0,
  }


def test_unmasked_records(tmp_path, capsys):
  schema = schemas.unmasked_schema(9)
  path = str(tmp_path / "a")
  with writer.ShardWriter(path, schema) as shard:
    names = {feature.name for feature in schema}
    shard.write({k: v for k, v in _record(1).items() if k in names})
  assert record_survey.infer_schema(path) == schema
  statistics = record_survey.survey([path], schema, _Tokenizer(), 1)
  assert "7 of 9 tokens, 0 to predict" in capsys.readouterr().out
  assert statistics == {
    "instances": 1,
    "tokens": 7,
    "mean_length": 7.0,
    "padding_share": 2 / 9,
    "segment_a_share": 4 / 7,
    "label_1_share": 1.0,
  }


def test_record_that_does_not_fit_is_named_with_its_file(tmp_path):
  path = _write(tmp_path / "a", 1)
  other = schemas.pretraining_schema(8, 2)
  with pytest.raises(ValueError, match="a has a record that does not fit"):
    record_survey.survey([path], other, _Tokenizer(), 0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
