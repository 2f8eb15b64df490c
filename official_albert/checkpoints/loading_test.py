"""Tests of the table of names, and of loading by it."""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel
from official_albert.checkpoints import loading, names

_GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
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


def _make(group="one_group", **changes):
  path = str(_GOLDEN / group / "albert_config.json")
  config = AlbertConfig.from_json_file(path)
  return AlbertModel(dataclasses.replace(config, **changes))


def test_names_and_shapes_of_the_released_base_model():
  folder = _GOLDEN / "albert_base_released"
  config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
  with open(folder / "variables.tsv", encoding="utf-8") as file:
    released = {
      line["name"]: tuple(json.loads(line["shape"]))
      for line in csv.DictReader(file, delimiter="\t")
    }
  assert released.pop("global_step") == ()
  rows = names.rows(config, "pretraining")
  assert {row.tf1: row.shape_in(config) for row in rows} == released
  assert len(rows) == 32


@pytest.mark.parametrize("head", sorted(names.HEADS))
def test_names_are_unique(head):
  rows = names.rows(_NARROW, head)
  for side in ("tf1", "own", "hf"):
    found = [getattr(row, side) for row in rows if getattr(row, side)]
    assert len(set(found)) == len(found)
  assert all(row.hf for row in rows) == (head != "squad2")


def test_a_tree_is_saved_under_the_keys_of_the_model(tmp_path):
  model = AlbertModel(_NARROW)
  variables = loading.by_path(model)
  assert len(variables) == len(model.weights)
  copies = {path: tf.Variable(v + 1.0) for path, v in variables.items()}
  shapes = []
  for name, root in (("a", model), ("b", loading.tree(copies))):
    path = tf.train.Checkpoint(model=root).write(str(tmp_path / name))
    reader = tf.train.load_checkpoint(path)
    shapes.append(reader.get_variable_to_shape_map())
  assert shapes[0] == shapes[1]
  # None is for the object graph.
  assert set(map(loading.path_of, shapes[0])) == {None, *variables}
  before = variables["pooler/bias"].numpy()
  status = tf.train.Checkpoint(model=model).read(str(tmp_path / "b"))
  status.assert_consumed()
  assert (variables["pooler/bias"].numpy() == before + 1).all()


def test_every_value_is_loaded():
  model = _make("two_groups")
  path = str(_GOLDEN / "two_groups" / "model.ckpt")
  report = loading.load_tf1_checkpoint(model, path)
  reader = tf.train.load_checkpoint(path)
  variables = loading.tf1_variables(model)
  assert len(variables) == len(model.weights)
  assert set(report.matched) == set(variables)
  for name, variable in variables.items():
    np.testing.assert_array_equal(variable, reader.get_tensor(name))
  # The encoder has no heads; the report lists them.
  assert not report.missing
  assert len(report.unexpected) == 7
  assert all(name.startswith("cls/") for name in report.unexpected)
  assert report.ignored == ("global_step",)
  assert "7 unexpected" in str(report)


def test_optimizer_slots_are_ignored():
  path = str(_GOLDEN / "one_group" / "trained_lamb.ckpt-10")
  report = loading.load_tf1_checkpoint(_make(), path)
  assert "bert/pooler/dense/kernel/adam_v" in report.ignored
  assert len(report.ignored) == 2 * 32 + 1


def test_checkpoints_of_other_models(tmp_path):
  path = str(_GOLDEN / "one_group" / "model.ckpt")
  model = _make(vocab_size=212)
  before = model.get_weights()
  with pytest.raises(ValueError, match=r"word_embeddings has shape \[211, 16"):
    loading.load_tf1_checkpoint(model, path)
  for a, b in zip(before, model.get_weights()):
    np.testing.assert_array_equal(a, b)
  report = loading.load_tf1_checkpoint(_make(num_hidden_groups=2), path)
  assert len(report.missing) == 16
  assert all("group_1" in name for name in report.missing)
  assert "missing in the checkpoint" in str(report)
  with pytest.raises(FileNotFoundError, match="without .index"):
    loading.load_tf1_checkpoint(_make(), str(tmp_path / "none"))
  with pytest.raises(ValueError, match="sharing='ffn' has no TF1 names"):
    loading.tf1_variables(_make(sharing="ffn"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
