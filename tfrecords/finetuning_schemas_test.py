"""Tests of what the records of fine-tuning hold, against the original."""

from __future__ import annotations

import pytest

from tfrecords import finetuning_schemas

_INPUTS = {
  "input_ids": ("int64", (7,)),
  "input_mask": ("int64", (7,)),
  "segment_ids": ("int64", (7,)),
  "example_id": ("int64", ()),
}


def as_dict(schema):
  fields = {f.name: (f.dtype, f.shape) for f in schema}
  assert len(fields) == len(schema)
  return fields


def test_a_class_is_a_number_and_a_score_a_float():
  classes = as_dict(finetuning_schemas.classification_schema(7))
  assert classes == {**_INPUTS, "label_ids": ("int64", ())}
  scores = as_dict(finetuning_schemas.regression_schema(7))
  assert scores == {**_INPUTS, "label_ids": ("float32", ())}


def test_spans():
  assert as_dict(finetuning_schemas.span_schema(7)) == {
    **_INPUTS,
    "p_mask": ("float32", (7,)),
    "start_positions": ("int64", ()),
    "end_positions": ("int64", ()),
    "is_impossible": ("int64", ()),
  }


def test_each_option_is_a_sequence():
  fields = as_dict(finetuning_schemas.multiple_choice_schema(7, 3))
  assert fields == {
    "input_ids": ("int64", (3, 7)),
    "input_mask": ("int64", (3, 7)),
    "segment_ids": ("int64", (3, 7)),
    "example_id": ("int64", ()),
    "label_ids": ("int64", ()),
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
