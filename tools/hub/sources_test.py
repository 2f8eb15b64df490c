"""Tests of sources: every format, the right weights, and what is refused."""

from __future__ import annotations

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, checkpoints, modeling, training
from official_albert.testing import toy_vocabulary
from tasks import pretraining
from tools.hub import sources as hub_sources
from tools.testing import toy_encoder

_GOLDEN = (
  pathlib.Path(__file__).resolve().parents[2] / "official_albert" / "testdata"
)
_BOTH = ("masked_lm", "sentence_order")
_POOLER = "bert/pooler/dense/kernel"


@pytest.fixture
def pieces(tmp_path):
  """Fewer than the goldens' models have."""
  path = tmp_path / "pieces.model"
  path.write_bytes(toy_vocabulary.numbers(89))
  return checkpoints.TokenizerFile(str(path), "sentencepiece")


def _pooler(source):
  return source.model.albert.pooler.kernel.numpy()


def test_tf1_checkpoints(pieces):
  path = str(_GOLDEN / "two_groups" / "model.ckpt")
  with hub_sources.opened(path, tokenizer=pieces) as source:
    assert (source.kind, source.heads, source.step) == ("tf1", _BOTH, 0)
    assert source.measured is None and not source.data
    stored = checkpoints.TensorBundle(path).get(_POOLER)
    np.testing.assert_array_equal(_pooler(source), stored)


def test_folders_of_hugging_face_and_their_archives(pieces, tmp_path):
  folder = _GOLDEN / "hf_one_group" / "sequence_classification"
  with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
    archive.add(folder, "model")
  path = str(tmp_path / "model.tar.gz")
  with hub_sources.opened(path, tokenizer=pieces) as source:
    assert (source.kind, source.heads) == ("hf", ())
    stored = checkpoints.read_checkpoint(str(folder)).tensors[_POOLER]
    np.testing.assert_array_equal(_pooler(source), stored)


def test_a_model_without_pooler(pieces):
  folder = str(_GOLDEN / "hf_one_group" / "question_answering")
  with (
    pytest.raises(ValueError, match="has no pooler"),
    hub_sources.opened(folder, tokenizer=pieces),
  ):
    pass


def test_runs_have_a_best_and_a_latest(tmp_path):
  folder = toy_encoder.write(str(tmp_path / "run"))
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = pretraining.AlbertForPretraining(config)
  keeper = training.BestCheckpoint(folder, model, "loss")
  keeper.offer(5, 1, {"loss": 2.5})
  with hub_sources.opened(folder) as source:
    assert (source.step, source.heads) == (5, _BOTH)
    assert source.measured.values == {"loss": 2.5}
    assert source.tokenizer.path == f"{folder}/tokenizer.model"
    np.testing.assert_array_equal(_pooler(source), model.albert.pooler.kernel)
  with hub_sources.opened(folder, "latest") as source:
    assert source.step == 1 and source.measured is None
    assert np.abs(_pooler(source) - model.albert.pooler.kernel).max() > 0.1
  with hub_sources.opened(f"{folder}/model.ckpt-1") as source:
    assert source.step == 1


def test_a_run_without_a_best(tmp_path):
  folder = toy_encoder.write(str(tmp_path / "run"))
  with hub_sources.opened(folder) as source:
    assert source.step == 1
  with (
    pytest.raises(FileNotFoundError, match="keeps no best checkpoint"),
    hub_sources.opened(folder, "best"),
  ):
    pass


def test_fine_tuned_runs_and_the_best_of_several(tmp_path):
  folder = toy_encoder.write(str(tmp_path / "task" / "seed_7"))
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = modeling.AlbertForSequenceClassification(config, 3)
  training.CheckpointManager(folder, 1, model=model).save(9)
  record = training.read_run(folder)
  record["data"].update(task="mnli", settings={"labels": ["a", "b", "c"]})
  (tmp_path / "task" / "seed_7" / "run.json").write_text(json.dumps(record))
  summary = {"seeds": {"6": {}, "7": {}}, "best_seed": 7}
  (tmp_path / "task" / "summary.json").write_text(json.dumps(summary))
  with hub_sources.opened(str(tmp_path / "task")) as source:
    assert (source.step, source.heads) == (9, ())
    assert source.data["task"] == "mnli"
    np.testing.assert_array_equal(_pooler(source), model.albert.pooler.kernel)


def test_models_that_share_less_have_only_our_names(tmp_path):
  folder = toy_encoder.write(
    str(tmp_path / "run"), sharing="ffn", num_hidden_layers=2
  )
  with hub_sources.opened(folder) as source:
    assert source.config.sharing == "ffn" and source.heads == _BOTH
    assert source.step == 1
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-1")
    name = "model/albert/pooler/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(_pooler(source), reader.get_tensor(name))


def test_what_is_refused(tmp_path, pieces):
  folder = toy_encoder.write(str(tmp_path / "run"))
  with (
    pytest.raises(ValueError, match="89 pieces, but the model has"),
    hub_sources.opened(folder, tokenizer=pieces),
  ):
    pass
  bare = tmp_path / "bare"
  shutil.copytree(folder, bare)
  (bare / "tokenizer.model").unlink()
  with (
    pytest.raises(ValueError, match="no tokenizer beside"),
    hub_sources.opened(str(bare)),
  ):
    pass
  (bare / "albert_config.json").unlink()
  with (
    pytest.raises(ValueError, match="albert_config.json"),
    hub_sources.opened(str(bare)),
  ):
    pass
  with (
    pytest.raises(FileNotFoundError, match="no checkpoint"),
    hub_sources.opened(str(tmp_path / "none")),
  ):
    pass


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
