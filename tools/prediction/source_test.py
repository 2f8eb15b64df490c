"""Tests of served models: which model, which texts, which weights."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertForSequenceClassification, checkpoints, runs
from official_albert.inference import source as source_lib
from official_albert.tasks import registry
from official_albert.testing import toy_models
from official_albert.tools.testing import toy_runs

_LABELS = ("bad", "good")


def opened(path, **wanted):
  return source_lib.open_source(str(path), **wanted)


def test_questions(tmp_path):
  toy_runs.write_finetuned(
    str(tmp_path / "run"),
    "squad_v2",
    threshold=-1.5,
    doc_stride=7,
    start_n_top=2,
    end_n_top=4,
  )
  module = opened(tmp_path / "run").module
  assert module.kind == "squad2" and [*module.text_functions()] == ["answer"]
  settings = module.settings()
  # The default, as this run does not record it.
  assert (settings["doc_stride"], settings["max_answer_length"]) == (7, 30)
  assert settings["null_score_diff_threshold"] == -1.5
  assert (module.model.start_n_top, module.model.end_n_top) == (2, 4)


def test_the_encoder_alone_and_another_number_of_layers(tmp_path):
  trained = toy_runs.write_finetuned(str(tmp_path / "run"), "sst2", _LABELS)
  toy_runs.write_pretrained(str(tmp_path / "pretrained"))
  for name, task in (("run", "sst2"), ("pretrained", "encoder")):
    source = opened(tmp_path / name, head="encoder", max_seq_length=20)
    assert (source.module.kind, source.task) == ("encoder", task)
    assert not hasattr(source.module.model, "albert")
    assert source.module.max_seq_length == 20
    source = opened(tmp_path / name, num_hidden_layers=1)
    assert source.module.model.config.num_hidden_layers == 1
  deeper = trained.config.num_hidden_layers + 2
  served = opened(tmp_path / "run", num_hidden_layers=deeper).module.model
  ids = {"input_ids": tf.constant([[2, 7, 9, 6, 3]])}
  logits = served(ids)["logits"]
  other = AlbertForSequenceClassification(
    trained.config.at_depth(deeper), num_classes=len(_LABELS)
  )
  other.set_weights(trained.get_weights())
  np.testing.assert_array_equal(logits, other(ids)["logits"])
  assert np.any(logits != trained(ids)["logits"])


def test_signatures_of_ids_need_no_tokenizer(tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), "sst2", _LABELS)
  source = opened(tmp_path / "run", with_texts=False)
  assert source.module.text_layer is None
  assert source.module.cls_id == 2 and source.tokenizer.kind == "sentencepiece"
  os.remove(tmp_path / "run" / "tokenizer.model")
  source = opened(tmp_path / "run", with_texts=False)
  assert source.module.cls_id is None and source.tokenizer is None
  with pytest.raises(ValueError, match="no tokenizer .*--signatures=ids"):
    opened(tmp_path / "run")


@pytest.mark.parametrize(
  "task, labels", [("text_classification", _LABELS), ("text_regression", None)]
)
def test_classifiers_of_other_formats(task, labels, tmp_path):
  toy_runs.write_finetuned(str(tmp_path / "run"), task, labels)
  ids = {"input_ids": tf.constant([[2, 7, 9, 6, 3]])}
  expected = opened(tmp_path / "run").module.model(ids)["logits"]
  read = checkpoints.read_checkpoint(str(tmp_path / "run"))
  assert (read.task, read.labels, read.notes) == (task, labels or (), [])
  for kind, given in (("hf", task), ("tf1", task), ("official_albert", "")):
    folder = tmp_path / kind
    folder.mkdir()
    checkpoints.WRITERS[kind](read, str(folder))
    module = opened(folder, task=given, max_seq_length=9).module
    np.testing.assert_allclose(module.model(ids)["logits"], expected, atol=1e-6)
    names = labels
    if labels and kind == "tf1":
      names = ("LABEL_0", "LABEL_1")
    assert module.settings()["labels"] == list(names or ())
  with pytest.raises(ValueError, match="give --task, such as"):
    opened(tmp_path / "hf")
  with pytest.raises(ValueError, match="--task=(sst2|cola)"):
    opened(tmp_path / "hf", task="sst2" if labels else "cola")
  with pytest.raises(ValueError, match=f"is of --task={task}: "):
    other = "text_pair_" + task[len("text_") :]
    opened(tmp_path / "official_albert", task=other)


_HEADS = sorted({kind.head for kind in registry.TASKS.values()})


@pytest.mark.parametrize(
  "policy, allowed", [("mixed_bfloat16", 0.02), ("mixed_float16", 0.003)]
)
@pytest.mark.parametrize(
  "head, pooling",
  [(x, "mean") for x in _HEADS]
  + [("embedding", x) for x in ("max", "cls", "pooler")],
)
def test_heads_are_float32_at_half_precision(head, pooling, policy, allowed):
  config = toy_models.config(97, 16)
  ids = tf.constant([[2, 13, 41, 7, 3], [2, 37, 3, 0, 0]])
  features = {"input_ids": ids, "input_mask": tf.sign(ids)}
  features["segment_ids"] = tf.constant([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
  exact, rounded = (
    source_lib.make_model(head, config, 5, {"pooling": pooling}, x)
    for x in (None, policy)
  )
  rng = np.random.default_rng(2)
  values = [x + rng.normal(0, 0.1, x.shape) for x in exact.get_weights()]
  for model in (exact, rounded):
    model.set_weights(values)
  names = {"squad1": "start_logits", "squad2": "cls_logits"}
  name = names.get(head, "embedding" if head == "embedding" else "logits")
  expected, found = (model(features)[name] for model in (exact, rounded))
  assert found.dtype == tf.float32 and found.shape == expected.shape
  error = np.abs(found - expected).max() / np.abs(expected).max()
  assert 1e-6 < error < allowed, error


def test_invalid_folders(tmp_path):
  folder = tmp_path / "run"
  toy_runs.write_finetuned(str(folder), "sst2", _LABELS)
  path = folder / runs.RECORD_FILE
  record = json.loads(path.read_text())

  def change(**data):
    path.write_text(json.dumps({**record, "data": {**record["data"], **data}}))

  change(task="poetry")
  with pytest.raises(ValueError, match="no task 'poetry'"):
    opened(folder)
  del record["data"]["task"]
  change(head="classification")
  with pytest.raises(ValueError, match="does not name its task"):
    opened(folder)
  with pytest.raises(FileNotFoundError, match="no checkpoint at"):
    opened(tmp_path / "nothing")
  assert tf.keras.mixed_precision.global_policy().name == "float32"
