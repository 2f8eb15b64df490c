"""Tests of our checkpoints: written folders equal those of a run."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, modeling, training
from official_albert.checkpoints import (
  checkpoint_files,
  loading,
  own_checkpoints,
  tf1_checkpoints,
)

_GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"


def _read(name, **arguments):
  return tf1_checkpoints.read_tf1_checkpoint(
    str(_GOLDEN / "one_group" / name), **arguments
  )


def _check_same(a, b):
  assert set(a.tensors) == set(b.tensors)
  for name in a.tensors:
    np.testing.assert_array_equal(a.tensors[name], b.tensors[name])


def test_a_folder_is_written_and_read_exactly(tmp_path):
  source = _read("model.ckpt")
  (tmp_path / "pieces").write_bytes(b"pieces")
  source.tokenizer = checkpoint_files.TokenizerFile(
    str(tmp_path / "pieces"), "sentencepiece", lower_case=False
  )
  folder = str(tmp_path / "out")
  prefix = own_checkpoints.write(source, folder)
  assert prefix.endswith("/model.ckpt-0")
  for path in (folder, prefix):
    again = own_checkpoints.read(path)
    _check_same(source, again)
    assert again.head == "pretraining" and again.config == source.config
    assert again.tokenizer.path.endswith("tokenizer.model")
    assert not again.tokenizer.lower_case
  recorded = training.read_run(folder)["data"]["tokenizer"]
  assert recorded["sha256"] == source.tokenizer.sha256()


def test_a_head_with_labels(tmp_path):
  source = _read("classifier.ckpt")
  source.labels = ("no", "maybe", "yes")
  own_checkpoints.write(source, str(tmp_path))
  again = own_checkpoints.read(str(tmp_path))
  assert again.head == "classification" and again.labels == source.labels
  model = modeling.AlbertForSequenceClassification(source.config, 3)
  report = training.warm_start(model, str(tmp_path))
  assert not report.missing and not report.unexpected
  np.testing.assert_array_equal(
    model.classifier.output_weights, source.tensors["output_weights"]
  )


def test_the_record_tells_heads_with_one_class_apart(tmp_path):
  source = _read("regression.ckpt", head="multiple_choice")
  own_checkpoints.write(source, str(tmp_path))
  assert own_checkpoints.read(str(tmp_path)).head == "multiple_choice"


def test_a_run_resumes_with_optimizer_state(tmp_path):
  # The encoder alone, as models with heads belong to tasks/.
  source = _read("trained_lamb.ckpt-10", head="none", include_optimizer=True)
  folder = str(tmp_path)
  own_checkpoints.write(source, folder)

  class Holder(tf.keras.Model):
    def __init__(self):
      super().__init__()
      self.albert = AlbertModel(source.config)

  model = Holder()
  optimizer = training.make_optimizer(
    "lamb", training.WarmupPolynomialDecay(0.00176, 12, 4)
  )
  optimizer._create_all_weights(model.trainable_variables)
  examples_seen = tf.Variable(np.int64(3))
  manager = training.CheckpointManager(
    folder, 1, model=model, optimizer=optimizer, examples_seen=examples_seen
  )
  assert manager.initialize(model, "").startswith("resumed from")
  assert int(optimizer.iterations) == 10 and int(examples_seen) == 0
  for name, variable in loading.tf1_variables(model).items():
    for slot in ("m", "v"):
      np.testing.assert_array_equal(
        optimizer.get_slot(variable, slot),
        source.tensors[f"{name}/adam_{slot}"],
      )


def test_an_encoder_alone_and_the_state_of_a_run(tmp_path):
  source = _read("model.ckpt", head="none")
  model = AlbertModel(source.config)
  loading.load_tf1_checkpoint(model, str(_GOLDEN / "one_group" / "model.ckpt"))
  source.config.to_json_file(str(tmp_path / "albert_config.json"))
  loss_scale = tf.Variable(2.0)
  training.CheckpointManager(
    str(tmp_path / "best"), 1, model=model, scale=loss_scale
  ).save(5)
  read = own_checkpoints.read(str(tmp_path / "best"))
  assert read.head == "none" and len(read.tensors) == 26 and read.step == 5
  assert list(read.unexpected.values()) == ["state of the run"]


@pytest.mark.parametrize(
  "record, message",
  [
    ([1], "has values of other types than a run writes"),
    (None, "has values of other types"),
    ({"data": [1]}, "has values of other types"),
    ({"data": {"tokenizer": "x"}}, "has values of other types"),
    ({"data": {"settings": {"labels": 3}}}, "has values of other types"),
    ({"data": {"head": ["none"]}}, "unknown head"),
  ],
)
def test_an_edited_record(record, message, tmp_path):
  own_checkpoints.write(_read("model.ckpt", head="none"), str(tmp_path))
  (tmp_path / "run.json").write_text(json.dumps(record))
  with pytest.raises(ValueError, match=message):
    own_checkpoints.read(str(tmp_path))
  (tmp_path / "run.json").write_text("{}")
  assert own_checkpoints.read(str(tmp_path)).head == "none"


def test_other_checkpoints_are_refused(tmp_path):
  with pytest.raises(ValueError, match="give --from=tf1"):
    own_checkpoints.read(str(_GOLDEN / "one_group" / "model.ckpt"))
  model = AlbertModel(_read("model.ckpt").config)
  training.CheckpointManager(str(tmp_path), 1, model=model).save(1)
  with pytest.raises(ValueError, match="no albert_config.json beside"):
    own_checkpoints.read(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
