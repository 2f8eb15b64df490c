"""Tests of sources: formats, weights, heads, metrics, refusals."""

from __future__ import annotations

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, checkpoints, modeling, runs, training
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_vocabulary
from official_albert.tools.hub import sources as hub_sources
from official_albert.tools.testing import toy_runs

_GOLDEN = (
  pathlib.Path(__file__).resolve().parents[2] / "official_albert" / "testdata"
)
_BOTH = ("masked_lm", "sentence_order")
_POOLER = "bert/pooler/dense/kernel"


@pytest.fixture
def pieces(tmp_path):
  """A tokenizer with fewer pieces than the models of the goldens."""
  path = tmp_path / "pieces.model"
  path.write_bytes(toy_vocabulary.numbers(89))
  return checkpoints.TokenizerFile(str(path), "sentencepiece")


def _pooler(source):
  return source.model.albert.pooler.kernel.numpy()


def test_checkpoints_of_other_formats_and_archives(pieces, tmp_path):
  path = str(_GOLDEN / "two_groups" / "model.ckpt")
  tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
  try:
    source = hub_sources.read(path, tokenizer=pieces)
    assert source.model.albert.pooler.compute_dtype == "float32"
    policy = tf.keras.mixed_precision.global_policy().name
    assert policy == "mixed_bfloat16"  # The caller's is left.
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  source = hub_sources.read(path, tokenizer=pieces)
  assert (source.kind, source.heads, source.step) == ("tf1", _BOTH, 0)
  assert not source.data
  stored = tf.train.load_checkpoint(path).get_tensor(_POOLER)
  np.testing.assert_array_equal(_pooler(source), stored)
  folder = _GOLDEN / "hf_one_group" / "sequence_classification"
  with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
    archive.add(folder, "model")
  path = str(tmp_path / "model.tar.gz")
  source = hub_sources.read(path, tokenizer=pieces)
  assert (source.kind, source.heads) == ("hf", ())
  stored = checkpoints.read_checkpoint(str(folder)).tensors[_POOLER]
  np.testing.assert_array_equal(_pooler(source), stored)


@pytest.mark.parametrize("sharing", ["all", "ffn"])
def test_runs_have_a_best_and_a_latest(tmp_path, sharing):
  folder = toy_runs.write_pretrained(
    str(tmp_path / "run"), sharing=sharing, num_hidden_layers=2
  )
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = model_lib.AlbertForPretraining(config)
  keeper = training.BestCheckpoint(folder, model, "loss")
  keeper.offer(5, 1, {"loss": 2.5, "accuracy": 0.25})
  source = hub_sources.read(folder)
  assert (source.step, source.heads) == (5, _BOTH)
  assert source.config.sharing == sharing
  assert source.tokenizer.path == f"{folder}/tokenizer.model"
  np.testing.assert_array_equal(_pooler(source), model.albert.pooler.kernel)
  latest = f"{folder}/model.ckpt-1"
  for arguments in ((folder, "latest"), (latest,)):
    source = hub_sources.read(*arguments)
    assert source.step == 1
    reader = tf.train.load_checkpoint(latest)
    name = "model/albert/pooler/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(_pooler(source), reader.get_tensor(name))


def test_fine_tuned_runs_and_the_best_of_several(tmp_path):
  folder = toy_runs.write_pretrained(str(tmp_path / "task" / "seed_7"))
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = modeling.AlbertForSequenceClassification(config, 3)
  training.CheckpointManager(folder, 1, model=model).save(9)
  record = runs.read_run(folder)
  record["data"].update(task="mnli", settings={"labels": ["a", "b", "c"]})
  (tmp_path / "task" / "seed_7" / "run.json").write_text(json.dumps(record))
  summary = {"seeds": {"6": {}, "7": {}}, "best_seed": 7}
  (tmp_path / "task" / "summary.json").write_text(json.dumps(summary))
  source = hub_sources.read(str(tmp_path / "task"))
  assert (source.step, source.heads) == (9, ())
  assert source.data["task"] == "mnli"
  np.testing.assert_array_equal(_pooler(source), model.albert.pooler.kernel)


def _refused(message, *arguments, **keywords):
  with pytest.raises((ValueError, OSError), match=message):
    hub_sources.read(*arguments, **keywords)


def test_refusals(tmp_path, pieces):
  no_pooler = str(_GOLDEN / "hf_one_group" / "question_answering")
  _refused("has no pooler", no_pooler, tokenizer=pieces)
  folder = toy_runs.write_pretrained(str(tmp_path / "run"))
  _refused("89 pieces, but the model has", folder, tokenizer=pieces)
  bare = tmp_path / "bare"
  shutil.copytree(folder, bare)
  (bare / "tokenizer.model").unlink()
  _refused("no tokenizer beside", str(bare))
  (bare / "albert_config.json").unlink()
  _refused("albert_config.json", str(bare))
  _refused("no checkpoint", str(tmp_path / "none"))
