"""Tests of the table against the release and against models."""

from __future__ import annotations

import csv
import json
import pathlib

import pytest

from official_albert import AlbertConfig, AlbertModel, modeling
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import variable_paths

_RELEASED = (
  pathlib.Path(__file__).parents[1] / "testdata" / "albert_base_released"
)
_NARROW = AlbertConfig(
  vocab_size=31,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_hidden_groups=3,
  inner_group_num=2,
  num_attention_heads=5,
  intermediate_size=14,
  max_position_embeddings=9,
  type_vocab_size=3,
)


def test_names_and_shapes_of_the_released_base_model():
  config = AlbertConfig.from_json_file(str(_RELEASED / "albert_config.json"))
  with open(_RELEASED / "variables.tsv", encoding="utf-8") as file:
    released = {
      line["name"]: tuple(json.loads(line["shape"]))
      for line in csv.DictReader(file, delimiter="\t")
    }
  assert released.pop("global_step") == ()
  ours = {
    row.tf1: row.shape_in(config)
    for row in checkpoint_names.rows(config, "pretraining")
  }
  assert ours == released
  assert len(ours) == 32


def test_every_variable_of_a_model_has_a_row():
  model = modeling.AlbertForSequenceClassification(_NARROW, 4)
  variables = variable_paths.by_path(model)
  rows = checkpoint_names.rows(_NARROW, "classification")
  assert {row.own for row in rows} == set(variables)
  for row in rows:
    shape = row.shape_in(_NARROW, classes=4)
    assert tuple(variables[row.own].shape) == shape, row
  # 5 + 2 outside the blocks, 16 in each of 3 * 2 blocks, pooler, head.
  assert len(rows) == 7 + 96 + 2 + 2


def test_names_are_unique():
  for head in checkpoint_names.HEADS:
    rows = checkpoint_names.rows(_NARROW, head)
    for side in ("tf1", "own", "hf"):
      names = [getattr(row, side) for row in rows if getattr(row, side)]
      assert len(set(names)) == len(names)
    assert all(row.hf for row in rows) == (head != "squad2")


def test_only_kernels_are_transposed():
  rows = checkpoint_names.rows(_NARROW, "pretraining")
  transposed = {row.tf1 for row in rows if row.transposed}
  assert "bert/pooler/dense/kernel" in transposed
  assert "cls/seq_relationship/output_weights" not in transposed
  assert "bert/embeddings/word_embeddings" not in transposed
  # Projection, pooler and transform, 6 in each of 6 blocks.
  assert len(transposed) == 3 + 36


def test_equal_widths_need_no_projection():
  config = AlbertConfig(
    vocab_size=31,
    embedding_size=8,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=5,
  )
  names = {row.own for row in checkpoint_names.encoder_rows(config)}
  assert names == {
    f"albert/{path}" for path in variable_paths.by_path(AlbertModel(config))
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
