"""Tests of loading TF1 names into models."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel
from official_albert.checkpoints import loading

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"


def make(group="one_group", **changes):
  config = AlbertConfig.from_json_file(
    str(GOLDEN / group / "albert_config.json")
  )
  return AlbertModel(dataclasses.replace(config, **changes))


def test_every_value_is_loaded():
  model = make("two_groups")
  path = str(GOLDEN / "two_groups" / "model.ckpt")
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
  path = str(GOLDEN / "one_group" / "trained_lamb.ckpt-10")
  report = loading.load_tf1_checkpoint(make(), path)
  assert "bert/pooler/dense/kernel/adam_v" in report.ignored
  assert len(report.ignored) == 2 * 32 + 1


def test_variables_of_the_released_base_model():
  config = AlbertConfig.from_preset("albert_base_v2")
  variables = loading.tf1_variables(AlbertModel(config))
  group = "bert/encoder/transformer/group_0/inner_group_0"
  assert variables[f"{group}/ffn_1/intermediate/output/dense/kernel"].shape == [
    3072,
    768,
  ]
  assert variables["bert/embeddings/word_embeddings"].shape == [30000, 128]
  assert len(variables) == 25


def test_a_checkpoint_of_another_size_is_not_loaded():
  model = make(vocab_size=212)
  before = model.get_weights()
  with pytest.raises(
    ValueError, match=r"word_embeddings has shape \[211, 16\]"
  ):
    loading.load_tf1_checkpoint(model, str(GOLDEN / "one_group" / "model.ckpt"))
  for a, b in zip(before, model.get_weights()):
    np.testing.assert_array_equal(a, b)


def test_missing_names_are_reported():
  model = make(num_hidden_groups=2)
  report = loading.load_tf1_checkpoint(
    model, str(GOLDEN / "one_group" / "model.ckpt")
  )
  assert len(report.missing) == 16
  assert all("group_1" in name for name in report.missing)
  assert "missing in the checkpoint" in str(report)


def test_missing_checkpoints_and_partly_shared_layers(tmp_path):
  with pytest.raises(FileNotFoundError, match="without .index"):
    loading.load_tf1_checkpoint(make(), str(tmp_path / "none"))
  with pytest.raises(ValueError, match="sharing='ffn' has no TF1 names"):
    loading.tf1_variables(make(sharing="ffn"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
