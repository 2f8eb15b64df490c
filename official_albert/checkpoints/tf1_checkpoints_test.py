"""Tests of TF1 checkpoints, of Hub modules, and of the table of names."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel
from official_albert.checkpoints import (
  checkpoint_files,
  loading,
  tf1_checkpoints,
)
from official_albert.checkpoints import names as checkpoint_names

_GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"


def _golden(group, name):
  return str(_GOLDEN / group / name)


@pytest.mark.parametrize(
  "name, head",
  [
    ("trained_lamb.ckpt-10", "pretraining"),
    ("classifier.ckpt", "classification"),
  ],
)
def test_a_checkpoint_is_read_and_written_exactly(name, head, tmp_path):
  path = _golden("one_group", name)
  has_slots = "lamb" in name
  checkpoint = tf1_checkpoints.read_tf1_checkpoint(
    path, include_optimizer=has_slots
  )
  assert checkpoint.head == head and not checkpoint.unexpected
  assert len(checkpoint.slots) == (64 if has_slots else 0)
  assert checkpoint.step == (10 if has_slots else 0)
  written = tf.train.load_checkpoint(
    tf1_checkpoints.write_tf1_checkpoint(checkpoint, str(tmp_path))
  )
  original = tf.train.load_checkpoint(path)
  shapes = original.get_variable_to_shape_map()
  assert written.get_variable_to_shape_map() == {**shapes, "global_step": []}
  for variable in shapes:
    np.testing.assert_array_equal(
      written.get_tensor(variable), original.get_tensor(variable)
    )
  assert written.get_variable_to_dtype_map()["global_step"] == tf.int64
  config_file = str(tmp_path / "albert_config.json")
  assert AlbertConfig.from_json_file(config_file) == checkpoint.config


def test_a_hub_module_is_read_by_its_variables(tmp_path):
  source = tf1_checkpoints.read_tf1_checkpoint(
    _golden("two_groups", "model.ckpt")
  )
  os.makedirs(tmp_path / "variables")
  os.makedirs(tmp_path / "assets")
  (tmp_path / "saved_model.pb").write_bytes(b"never read")
  (tmp_path / "assets" / "30k-clean.model").write_bytes(b"pieces")
  config = dataclasses.replace(source.config, hidden_dropout_prob=0.1)
  config.to_json_file(str(tmp_path / "assets" / "albert_config.json"))
  checkpoint_files.write_bundle(
    str(tmp_path / "variables" / "variables"),
    {
      f"module/{name}": source.tensors[name]
      for name in source.tensors
      # Modules of v2 lack the sentence order head.
      if not name.startswith(("cls/seq", "global_step"))
    },
  )
  module = tf1_checkpoints.read_tf1_checkpoint(str(tmp_path))
  assert module.head == "masked_lm"
  assert module.tokenizer.path.endswith("30k-clean.model")
  assert len(module.tensors) == len(source.tensors) - 3
  np.testing.assert_array_equal(
    module.tensors["bert/pooler/dense/kernel"],
    source.tensors["bert/pooler/dense/kernel"],
  )
  # Dropouts are kept and noted.
  assert module.config.hidden_dropout_prob == 0.1
  assert "hidden_dropout_prob 0.1" in module.notes[0]


def test_a_checkpoint_of_another_size(tmp_path):
  for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
    shutil.copy(_golden("one_group", name), tmp_path)
  shutil.copy(_golden("two_groups", "albert_config.json"), tmp_path)
  with pytest.raises(ValueError, match="lacks bert/encoder/transformer/group"):
    tf1_checkpoints.read_tf1_checkpoint(str(tmp_path / "model.ckpt"))
  os.remove(tmp_path / "albert_config.json")
  with pytest.raises(ValueError, match="give --albert_config_file"):
    tf1_checkpoints.read_tf1_checkpoint(str(tmp_path / "model.ckpt"))
  config_file = _golden("one_group", "albert_config.json")
  read = tf1_checkpoints.read_tf1_checkpoint(
    str(tmp_path), config_file=config_file
  )
  assert read.head == "pretraining"


def test_groups_that_the_original_rounds_differently(tmp_path):
  checkpoint = tf1_checkpoints.read_tf1_checkpoint(
    _golden("one_group", "model.ckpt")
  )
  checkpoint.config = dataclasses.replace(
    checkpoint.config, num_hidden_layers=22, num_hidden_groups=22
  )
  with pytest.raises(ValueError, match="rounds layer 15 to group 14"):
    tf1_checkpoints.write_tf1_checkpoint(checkpoint, str(tmp_path))
  assert not os.listdir(tmp_path)


def _shapes(config):
  return {
    row.tf1: row.shape_in(config)
    for row in checkpoint_names.encoder_rows(config)
  }


@pytest.mark.parametrize(
  "name", ["albert_base_v2", "albert_xlarge_v2", "albert_xxlarge_zh"]
)
def test_releases_are_recognized_by_their_shapes(name):
  config = dataclasses.replace(
    AlbertConfig.from_preset(name),
    embedding_size=96,
    max_position_embeddings=768,
    num_hidden_groups=2,
    inner_group_num=2,
  )
  inferred, note = tf1_checkpoints.infer_config("there", _shapes(config))
  assert inferred == config
  assert f"{config.num_attention_heads} heads" in note
  assert f"as in {name}" in note


def test_unknown_shapes_need_a_configuration():
  config = AlbertConfig(hidden_size=96, num_attention_heads=3)
  for shapes in (_shapes(config), {"x": (3,)}):
    with pytest.raises(ValueError, match="there has no .*albert_config_file"):
      tf1_checkpoints.infer_config("there", shapes)


# Names, and loading by them.

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
  config = AlbertConfig.from_json_file(_golden(group, "albert_config.json"))
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
  rows = checkpoint_names.rows(config, "pretraining")
  assert {row.tf1: row.shape_in(config) for row in rows} == released
  assert len(rows) == 32


@pytest.mark.parametrize("head", sorted(checkpoint_names.HEADS))
def test_names_are_unique(head):
  rows = checkpoint_names.rows(_NARROW, head)
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
  path = _golden("two_groups", "model.ckpt")
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


def test_checkpoints_of_other_models(tmp_path):
  path = _golden("one_group", "model.ckpt")
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
