"""Tests of unshared_checkpoints.py, and the front door to it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, modeling, training
from official_albert.checkpoints import pretrained, unshared_checkpoints
from official_albert.testing import toy_vocabulary

_CONFIG = modeling.AlbertConfig(
  vocab_size=41,
  embedding_size=6,
  hidden_size=8,
  num_attention_heads=2,
  num_hidden_layers=3,
  intermediate_size=12,
  sharing="attention",
)


def _write(folder, config=_CONFIG, **data):
  """A run of ours with random weights; returns its encoder."""
  root = tf.Module()
  root.albert = AlbertModel(config)
  root.head = tf.Variable([1.0, 2.0], name="head")
  training.write_run(str(folder), config, {}, data)
  training.CheckpointManager(str(folder), 1, model=root).save(1)
  return root.albert


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_an_encoder_of_layers_that_share_less(tmp_path, sharing):
  stored = _write(tmp_path, dataclasses.replace(_CONFIG, sharing=sharing))
  model = AlbertModel.from_checkpoint(str(tmp_path))
  assert model.config.sharing == sharing
  assert len(model.variables) == len(stored.variables)
  for ours, theirs in zip(model.variables, stored.variables):
    np.testing.assert_array_equal(ours, theirs)
  assert len(model.load_report.matched) == len(stored.variables)
  assert not model.load_report.missing
  assert model.load_report.unexpected == ("head",)


def test_runs_that_share_everything_are_not_its_business(tmp_path):
  _write(tmp_path, dataclasses.replace(_CONFIG, sharing="all"))
  assert unshared_checkpoints.find_config(str(tmp_path)) is None


def test_a_configuration_of_more_layers(tmp_path):
  _write(tmp_path)
  deeper = dataclasses.replace(_CONFIG, num_hidden_layers=4)
  file = str(tmp_path / "deeper.json")
  deeper.to_json_file(file)
  with pytest.raises(ValueError, match="lacks albert/encoder/ffns/3/.*whole"):
    AlbertModel.from_checkpoint(str(tmp_path), file)


def test_the_tokenizer_is_as_recorded(tmp_path):
  _write(tmp_path, tokenizer={"lower_case": False})
  assert pretrained.open_weights(str(tmp_path)).tokenizer is None
  (tmp_path / "spm.model").write_bytes(toy_vocabulary.numbers(41))
  found = pretrained.open_weights(str(tmp_path)).tokenizer
  assert found.kind == "sentencepiece" and not found.lower_case


def test_a_record_that_was_changed(tmp_path):
  _write(tmp_path, tokenizer="spm.model")
  with pytest.raises(ValueError, match="run.json must hold .* as tokenizer"):
    AlbertModel.from_checkpoint(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
