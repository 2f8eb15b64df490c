"""Tests of names, of loading by them, and of choosing a model's weights."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, checkpoints, modeling
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable, tensor_bundle
from official_albert.testing import toy_models

_CONFIG = toy_models.config(
  31, 9, num_hidden_groups=2, inner_group_num=2, type_vocab_size=3
)
_ONE_GROUP = str(toy_models.GOLDEN / "one_group" / "model.ckpt")


@pytest.mark.golden
def test_names_and_shapes_of_the_released_base_model():
  folder = toy_models.GOLDEN / "albert_base_released"
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


def test_a_tree_is_saved_under_the_keys_of_the_model(tmp_path):
  model = AlbertModel(_CONFIG)
  variables = portable.by_path(model)
  assert len(variables) == len(model.weights)
  copies = {path: tf.Variable(v + 1.0) for path, v in variables.items()}
  shapes = []
  for name, root in (("a", model), ("b", portable.tree(copies))):
    path = tf.train.Checkpoint(model=root).write(str(tmp_path / name))
    reader = tf.train.load_checkpoint(path)
    shapes.append(reader.get_variable_to_shape_map())
  assert shapes[0] == shapes[1]
  # None is for the object graph.
  assert set(map(portable.path_of, shapes[0])) == {None, *variables}
  before = variables["pooler/bias"].numpy()
  status = tf.train.Checkpoint(model=model).read(str(tmp_path / "b"))
  status.assert_consumed()
  assert (variables["pooler/bias"].numpy() == before + 1).all()


def golden_model(**changes):
  config = toy_models.golden_config("one_group")
  return AlbertModel(dataclasses.replace(config, **changes))


def test_checkpoints_of_other_models(tmp_path):
  model = golden_model(vocab_size=212)
  before = model.get_weights()
  with pytest.raises(ValueError, match=r"word_embeddings has shape \[211, 16"):
    checkpoints.load_tf1_checkpoint(model, _ONE_GROUP)
  for a, b in zip(before, model.get_weights()):
    np.testing.assert_array_equal(a, b)
  model = golden_model(num_hidden_groups=2)
  report = checkpoints.load_tf1_checkpoint(model, _ONE_GROUP)
  assert len(report.missing) == 16
  assert all("group_1" in name for name in report.missing)
  assert "not loaded: bert" in str(report)
  with pytest.raises(ValueError, match="sharing='all', but the model has"):
    checkpoints.load_tf1_checkpoint(golden_model(sharing="ffn"), _ONE_GROUP)


def test_adapters_that_a_checkpoint_lacks_begin_anew(tmp_path):
  plain, model = golden_model(), golden_model(adapter_rank=5)
  adapters = model.encoder.adapters
  for variable in adapters.variables:
    variable.assign(tf.ones_like(variable))
  (tmp_path / "only").mkdir()  # Without a configuration beside the weights.
  for end in ("index", "data-00000-of-00001"):
    shutil.copy(f"{_ONE_GROUP}.{end}", tmp_path / "only")
  path = str(tmp_path / "only" / "model.ckpt")
  for each in (plain, model):
    report = checkpoints.load_tf1_checkpoint(each, path)
    assert not report.missing and len(report.matched) == 25
  assert "new adapters of rank 5 begin without a difference" in str(report)
  assert (
    adapters.ffn_a.numpy() == 1
  ).all() and not adapters.ffn_b.numpy().any()
  inputs = toy_models.golden_inputs("one_group")
  np.testing.assert_array_equal(
    *(x(inputs)["pooled_output"] for x in (plain, model))
  )
  # Of a checkpoint that has them, all values are read.
  for number, variable in enumerate(adapters.variables):
    variable.assign(tf.fill(variable.shape, number + 1.5))
  own = tf.train.Checkpoint(model=model).write(str(tmp_path / "own"))
  other = golden_model(adapter_rank=5)
  report = checkpoints.load_tf1_checkpoint(other, own)
  assert len(report.matched) == 33 and not report.missing + report.unexpected
  for a, b in zip(adapters.variables, other.encoder.adapters.variables):
    np.testing.assert_array_equal(a, b)
  model.config.to_json_file(str(tmp_path / "albert_config.json"))
  before = plain.get_weights()
  for wrong in (plain, golden_model(adapter_rank=4)):
    with pytest.raises(ValueError, match="of rank 5, but .* adapter_rank=[04]"):
      checkpoints.load_tf1_checkpoint(wrong, own)
  np.testing.assert_equal(plain.get_weights(), before)


# The choice of a model's weights.


def stored_shapes(head="pretraining", classes=0):
  return {
    row.tf1: row.shape_in(_CONFIG, classes)
    for row in checkpoint_names.rows(_CONFIG, head)
  }


def select(stored, **arguments):
  values = {
    name: tensor_bundle.LazyArray(shape, pytest.fail)  # Not read.
    for name, shape in stored.items()
  }
  return portable.select("there", _CONFIG, values, **arguments)


@pytest.mark.parametrize(
  "head, classes",
  [
    *((head, 0) for head in ("none", "masked_lm", "pretraining", "squad1")),
    ("squad2", 0),
    ("classification", 3),
    ("regression", 1),
  ],
)
def test_the_head_is_detected(head, classes):
  stored = stored_shapes(head, classes)
  checkpoint = select(stored)
  assert checkpoint.head == head
  assert checkpoint.classes == classes
  assert len(checkpoint.rows) == len(stored)
  assert not checkpoint.missing and not checkpoint.unexpected
  assert checkpoint.step == 0
  assert bool(checkpoint.notes) == (head == "regression")


def test_names_that_are_not_carried_and_other_files():
  stored = {**stored_shapes(), "beta1_power": (), "global_step": ()}
  checkpoint = select(stored, head="none")
  assert len(checkpoint.unexpected) == 8
  assert "beta1_power" in checkpoint.unexpected
  assert "global_step" in checkpoint.tensors
  with pytest.raises(ValueError, match="no variable .*; its first is 'weight'"):
    select({"weight": (3,)})


@pytest.mark.golden
@pytest.mark.parametrize("kind", ["classifier", "regression"])
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_classes_and_values_equal_the_original(group, kind):
  folder = toy_models.GOLDEN / group
  golden = np.load(folder / f"{kind}_outputs.npz")
  expected = golden["logits"].reshape(len(golden["logits"]), -1)
  model = modeling.AlbertForSequenceClassification(
    toy_models.golden_config(group), expected.shape[1]
  )
  path = str(folder / f"{kind}.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
  inputs = tf.nest.map_structure(tf.constant, toy_models.golden_inputs(group))
  for logits_only in (False, True):
    outputs = model(inputs, logits_only=logits_only)
    assert ("sequence_output" in outputs) != logits_only
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
