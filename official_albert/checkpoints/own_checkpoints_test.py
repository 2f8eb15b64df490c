"""Tests of our checkpoints, and of the choice of a model's weights."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, modeling, training
from official_albert.checkpoints import (
  checkpoint_files,
  loading,
  own_checkpoints,
  portable,
  tf1_checkpoints,
)
from official_albert.checkpoints import names as checkpoint_names

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


def test_heads(tmp_path):
  source = _read("regression.ckpt", head="multiple_choice")
  own_checkpoints.write(source, str(tmp_path / "one"))
  # Only the record tells it from a regression.
  assert own_checkpoints.read(str(tmp_path / "one")).head == "multiple_choice"
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


def test_an_edited_record(tmp_path):
  own_checkpoints.write(_read("model.ckpt", head="none"), str(tmp_path))
  for record in (
    [1],
    {"data": [1]},
    {"data": {"tokenizer": "x"}},
    {"data": {"settings": {"labels": 3}}},
  ):
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="values of other types than a run"):
      own_checkpoints.read(str(tmp_path))
  (tmp_path / "run.json").write_text('{"data": {"head": ["none"]}}')
  with pytest.raises(ValueError, match="unknown head"):
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


# The choice of a model's weights.

_CONFIG = AlbertConfig(
  vocab_size=13,
  embedding_size=4,
  hidden_size=6,
  num_hidden_layers=1,
  num_attention_heads=3,
  intermediate_size=5,
  max_position_embeddings=7,
)


def _stored(head="pretraining", classes=0):
  """Returns shapes by name."""
  return {
    row.tf1: row.shape_in(_CONFIG, classes)
    for row in checkpoint_names.rows(_CONFIG, head)
  }


def _select(stored, **arguments):
  values = {
    name: checkpoint_files.StoredValue(name, shape, pytest.fail)  # Not read.
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
  checkpoint = _select(_stored(head, classes))
  assert checkpoint.head == head
  assert len(checkpoint.rows) == len(_stored(head, classes))
  assert not checkpoint.missing and not checkpoint.unexpected
  assert checkpoint.step == 0
  assert bool(checkpoint.notes) == (head == "regression")


def test_names_that_are_not_carried():
  stored = {**_stored(), "beta1_power": (), "global_step": ()}
  checkpoint = _select(stored, head="none")
  assert len(checkpoint.unexpected) == 8
  assert checkpoint.unexpected["beta1_power"].endswith("with head none")
  assert "global_step" in checkpoint.tensors


def test_optimizer_state_on_request():
  stored = _stored()
  for name in list(stored):
    stored[f"{name}/adam_m"] = stored[f"{name}/adam_v"] = stored[name]
  without = _select(stored)
  assert not without.slots
  assert set(without.unexpected.values()) == {portable.OPTIMIZER_STATE}
  assert len(_select(stored, include_optimizer=True).slots) == 2 * 32
  del stored["bert/pooler/dense/bias/adam_m"]
  with pytest.raises(ValueError, match="holds 63 of the 64 optimizer slots"):
    _select(stored, include_optimizer=True)


@pytest.mark.parametrize(
  "changes, head, message",
  [
    ({"bert/pooler/dense/bias": None}, "", "lacks bert/pooler/dense/bias"),
    (
      {"bert/embeddings/word_embeddings": (14, 4)},
      "",
      r"shape \[14, 4\] in there but \[13, 4",
    ),
    (None, "", "no variable with an ALBERT name; its first is 'weights'"),
    ({}, "squad1", "has no squad1 head"),
    ({}, "squad", "unknown head 'squad'"),
  ],
)
def test_weights_that_do_not_fit(changes, head, message):
  stored = {"weights": (3,)} if changes is None else {**_stored(), **changes}
  stored = {name: shape for name, shape in stored.items() if shape}
  with pytest.raises(ValueError, match=message):
    _select(stored, head=head)


def test_some_heads_need_no_pooler():
  stored = {n: s for n, s in _stored("squad1").items() if "pooler" not in n}
  checkpoint = _select(stored)
  assert len(checkpoint.missing) == 2 and not checkpoint.has_pooler


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
