"""Tests of a publication: modules, Kaggle's metadata, programs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import kagglehub
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from official_albert import (
  AlbertConfig,
  AlbertModel,
  checkpoints,
  load,
  runs,
  tokenization,
)
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_vocabulary
from official_albert.tools.conversion import conversion
from official_albert.tools.hub import metadata as hub_metadata
from official_albert.tools.hub import publication as hub_publication
from official_albert.tools.testing import toy_data, toy_runs

_PUBLICATION = hub_metadata.Publication("my-team/albert-toy", "mit")
_MODULES = ("preprocess", "encoder")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  return toy_runs.write_pretrained(
    str(tmp_path_factory.mktemp("source") / "run"),
    max_position_embeddings=128,
    num_hidden_layers=2,
    hidden_dropout_prob=0.1,
  )


def _publish(run, output, seq_length=128):
  source = hub_publication.read(run)
  hub_publication.publish(source, _PUBLICATION, str(output), seq_length)


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
  output = tmp_path_factory.mktemp("public") / "hub"
  output.mkdir()
  _publish(run, output)
  return output


def test_folders_metadata_and_assets(run, published):
  assert sorted(os.listdir(published)) == [
    *("encoder", "model-metadata.json", "preprocess")
  ]
  assert os.listdir(published.parent) == ["hub"]
  for instance in _MODULES:
    folder = published / instance
    assert sorted(os.listdir(folder)) == [
      *("assets", "fingerprint.pb", "model-instance-metadata.json"),
      *("saved_model.pb", "variables"),
    ]
    text = (folder / "model-instance-metadata.json").read_text()
    assert json.loads(text)["instanceSlug"] == instance
    assets = ["albert_config.json", "tokenizer.model"]
    found = sorted(os.listdir(folder / "assets"))
    assert found == sorted([*assets, "run.json"])
    for asset in assets:
      with open(os.path.join(run, asset), "rb") as file:
        assert (folder / "assets" / asset).read_bytes() == file.read()
    # The publisher's folders are private.
    proto = (folder / "saved_model.pb").read_bytes()
    assert str(published).encode() not in proto and b"hub-assets" not in proto
  encoder = tf.saved_model.load(str(published / "encoder"))
  asset = encoder.sp_model_file.asset_path.numpy().decode()
  tokenizer = published / "encoder/assets/tokenizer.model"
  assert os.path.samefile(asset, tokenizer)


@pytest.mark.parametrize(
  "where", ["", "encoder", "encoder/variables/variables", ".tar.gz"]
)
def test_all_that_opens_a_model_opens_it(run, published, where, tmp_path):
  path = str(published / where)
  if where == ".tar.gz":
    path = f"{tmp_path}/hub.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
      archive.add(published, "hub")
  expected = _weights(AlbertModel.from_checkpoint(run))
  model = AlbertModel.from_checkpoint(path)
  assert not model.load_report.missing
  _check_equal(_weights(model), expected)
  loaded, source = load(path), load(run)
  assert loaded.methods == source.methods
  text = f"{toy_data.GOOD[0]} [MASK] {toy_data.BAD[0]}"
  assert loaded.fill_mask(text) == source.fill_mask(text)
  np.testing.assert_array_equal(loaded.embed(text), source.embed(text))
  conversion.convert("tf1", path, f"{tmp_path}/tf1")
  converted = AlbertModel.from_checkpoint(f"{tmp_path}/tf1")
  _check_equal(_weights(converted), expected)
  warm = model_lib.AlbertForPretraining(model.config)
  assert not checkpoints.warm_start(warm, path).missing
  _check_equal(_weights(warm.albert), expected)
  again = hub_publication.read(path)
  assert again.has_masked_lm and again.has_sentence_order
  _check_equal(_weights(again.model.albert), expected)


def _weights(model):
  return {name: x.numpy() for name, x in checkpoints.by_path(model).items()}


def _check_equal(found, expected):
  assert set(found) == set(expected)
  for name, value in expected.items():
    np.testing.assert_array_equal(found[name], value, name)


def test_rules_and_layers_of_their_own_are_read_back(tmp_path):
  run = toy_runs.write_pretrained(
    f"{tmp_path}/run", sharing="none", num_hidden_layers=3
  )
  record = runs.read_run(run)
  record["data"]["tokenizer"]["lower_case"] = False
  (tmp_path / "run/run.json").write_text(json.dumps(record))
  _publish(run, tmp_path / "hub", 32)
  read = checkpoints.read_checkpoint(str(tmp_path / "hub"))
  assert read.tokenizer.rules == tokenization.TextRules(lower_case=False)
  model, again = map(AlbertModel.from_checkpoint, (run, f"{tmp_path}/hub"))
  _check_equal(_weights(again), _weights(model))
  warm = model_lib.AlbertForPretraining(model.config)
  checkpoints.warm_start(warm, f"{tmp_path}/hub/encoder")
  _check_equal(_weights(warm.albert), _weights(model))


@pytest.mark.parametrize("what", ["preprocess", "export", "foreign"])
def test_saved_models_without_names_are_refused(what, run, published, tmp_path):
  path = str(tmp_path / what)
  if what == "preprocess":
    path = str(published / what)
  elif what == "export":
    toy_runs.write_export(path, run)
  else:
    module = tf.Module()
    module.variable = tf.Variable(tf.ones([3, 5]))
    tf.saved_model.save(module, path)
  for opener in (
    AlbertModel.from_checkpoint,
    lambda x: conversion.convert("hf", x, f"{tmp_path}/hf"),
    *[load] * (what != "export"),
  ):
    with pytest.raises(ValueError, match="no weights by the names") as error:
      opener(path)
    assert path in str(error.value)


_GOLDEN = pathlib.Path(__file__).parents[2] / "official_albert/testdata"
_POOLER = "bert/pooler/dense/kernel"


@pytest.fixture
def pieces(tmp_path):
  """A tokenizer with fewer pieces than the models of the goldens."""
  path = tmp_path / "pieces.model"
  path.write_bytes(toy_vocabulary.numbers(89))
  return checkpoints.TokenizerFile(str(path), "sentencepiece")


def _pooler(source):
  return source.model.albert.pooler.kernel.numpy()


@pytest.mark.parametrize(
  "path, has_heads",
  [
    ("two_groups/model.ckpt", True),
    ("hf_one_group/sequence_classification", False),
  ],
)
def test_checkpoints_of_other_formats(path, has_heads, pieces):
  path = str(_GOLDEN / path)
  tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
  try:
    source = hub_publication.read(path, tokenizer=pieces)
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  assert source.model.albert.pooler.compute_dtype == "float32"
  heads = source.has_masked_lm, source.has_sentence_order
  assert heads == (has_heads, has_heads) and source.trained_length == 0
  stored = checkpoints.read_checkpoint(path).tensors[_POOLER]
  np.testing.assert_array_equal(_pooler(source), stored)


def test_a_fine_tuned_run_has_no_heads(tmp_path):
  folder = str(tmp_path / "run")
  trained = toy_runs.write_finetuned(folder, "sst2", ("bad", "good"))
  source = hub_publication.read(folder, "latest")
  assert not source.has_masked_lm and source.trained_length > 0
  np.testing.assert_array_equal(_pooler(source), trained.albert.pooler.kernel)
  assert source.notes[-1] == f"the weights are {folder}/model.ckpt-1."


def test_refusals(run, tmp_path, pieces):
  def refused(message, *arguments, **keywords):
    with pytest.raises((ValueError, OSError), match=message):
      hub_publication.read(*arguments, **keywords)

  no_pooler = str(_GOLDEN / "hf_one_group/question_answering")
  refused("has no pooler", no_pooler, tokenizer=pieces)
  other = hub_publication.read(run)._replace(tokenizer=pieces)
  with pytest.raises(ValueError, match="89 pieces, but the model has"):
    hub_publication.publish(other, _PUBLICATION, f"{tmp_path}/hub", 128)
  bare = tmp_path / "bare"
  shutil.copytree(run, bare)
  (bare / "tokenizer.model").unlink()
  refused("no tokenizer beside", str(bare))
  refused("no checkpoint", str(tmp_path / "none"))


def test_failures_leave_nothing(run, tmp_path, monkeypatch):
  (tmp_path / "note").write_text("mine")

  def fail(module, folder):
    (pathlib.Path(folder) / "variables").mkdir(parents=True)
    raise OSError("no more space")

  monkeypatch.setattr(hub_publication.hub, "save_hub_object", fail)
  with pytest.raises(OSError, match="no more space"):
    _publish(run, tmp_path / "hub")
  assert os.listdir(tmp_path) == ["note"]


@pytest.mark.parametrize(
  "what, message",
  [("tokenizer", "return different ids"), ("weights", "pooled_output of the")],
)
def test_saved_modules_are_compared(what, message, run, published, tmp_path):
  toy_runs.write_tokenizer(str(tmp_path), seed=6)
  paths = [str(published / instance) for instance in _MODULES]
  source = hub_publication.read(run)
  hub_publication.check_modules(source, *paths)
  if what == "tokenizer":
    other = f"{tmp_path}/tokenizer.model"
    file = dataclasses.replace(source.tokenizer, path=other)
    source = source._replace(tokenizer=file)
  else:
    source.model.albert.pooler.bias.assign_add(tf.fill([24], 0.01))
  with pytest.raises(ValueError, match=message):
    hub_publication.check_modules(source, *paths)


# What `kaggle models create` and `kaggle models instances create` check.
# Sources: model_create_new, model_instance_create, _validate_slug_syntax,
# sanitize_markdown and lookup_enum in kaggle_api_extended.py of kaggle 2.2.5,
# and docs/models_metadata.md of github.com/Kaggle/kaggle-cli. They have no rule
# for the length of a slug, title or subtitle.
_MODEL = {
  **{"ownerSlug": str, "title": str, "slug": str, "subtitle": str},
  **{"isPrivate": bool, "description": str, "publishTime": str},
  "provenanceSources": str,
}
_INSTANCE = {
  **{"ownerSlug": str, "modelSlug": str, "instanceSlug": str},
  **{"framework": str, "overview": str, "usage": str, "licenseName": str},
  **{"fineTunable": bool, "trainingData": list, "modelInstanceType": str},
  **{"baseModelInstance": str, "externalBaseModelUrl": str},
}
_OWNER_SLUG = r"[a-z0-9]+(?:[_-][a-z0-9]+)*"
_SLUG = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_FRAMEWORKS = "tensorFlow1 tensorFlow2 tfLite tfJs pyTorch jax coral".split()
# bleach.clean escapes or removes these; ${VARIABLES} are Kaggle's.
_CHANGED_IN_MARKDOWN = re.compile(r"[<>&]|\$\{")


def _read(path, fields):
  content = json.loads(path.read_text())
  assert {name: type(x) for name, x in content.items()} == fields
  for name in ("description", "overview", "usage"):
    assert not _CHANGED_IN_MARKDOWN.search(content.get(name, ""))
  assert re.fullmatch(_OWNER_SLUG, content["ownerSlug"])
  return content


def test_kaggle_takes_both_files(published):
  model = _read(published / "model-metadata.json", _MODEL)
  assert re.fullmatch(_SLUG, model["slug"]) and model["title"]
  assert not model["publishTime"]  # Or a date.
  for name in _MODULES:
    instance = _read(
      published / name / "model-instance-metadata.json", _INSTANCE
    )
    assert instance["ownerSlug"] == model["ownerSlug"]
    assert instance["modelSlug"] == model["slug"]
    assert re.fullmatch(_SLUG, instance["instanceSlug"])
    assert instance["framework"] in _FRAMEWORKS
    assert instance["modelInstanceType"] == "Unspecified"
    assert instance["licenseName"] in hub_metadata.LICENSES.values()


def test_handles_and_languages_that_kaggle_refuses():
  hub_metadata.Publication("my_team-2/a-b-1", "mit", "en, zh-Hant")
  for handle in ("team/a_b", "team/a--b", "team/A", "-team/a", "a", "a/b/1"):
    with pytest.raises(ValueError, match="PUBLISHER/NAME"):
      hub_metadata.Publication(handle, "mit")
  with pytest.raises(ValueError, match="one line"):
    hub_metadata.Publication("team/a", "mit", "en | x")


def test_the_metadata():
  config = AlbertConfig.from_preset("albert_tiny")
  found = hub_metadata.model_metadata(_PUBLICATION, config)
  assert found["title"] == "albert-toy" and found["isPrivate"] is True
  assert found["subtitle"] == "ALBERT encoder, L=4, H=128, A=8, E=128."
  named = dataclasses.replace(_PUBLICATION, language="en", description="Mine.")
  found = hub_metadata.model_metadata(named, config)
  assert found["subtitle"] == "Mine."
  card = re.sub(" +", " ", found["description"])
  assert "language | en |" in card and "hidden_size | 128 |" in card
  for instance in _MODULES:
    found = hub_metadata.instance_metadata(
      _PUBLICATION, config, instance, True, 33
    )
    is_encoder = instance == "encoder"
    assert (found["fineTunable"], found["licenseName"]) == (is_encoder, "MIT")
    usage = found["usage"]
    assert 'model_download("my-team/albert-toy/tensorFlow2/encoder")' in usage
    assert "`[batch, seq_length, 128]`" in usage and "a list of 4" in usage
    assert "lengths than 33" in usage and "mlm_logits" in usage


_RNG = np.random.default_rng(11)
_LABELS = _RNG.integers(0, 2, 48)
_TEXTS = [
  toy_data.sentence(_RNG, toy_data.GOOD if label else toy_data.BAD)
  for label in _LABELS
]
# Variables of the encoder: one group of layers, with a projection E to H.
_WEIGHTS = 25


@pytest.fixture
def handles(published, tmp_path, monkeypatch):
  """The handles of the preprocessor and of the encoder, downloaded."""
  monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
  names = [f"my-team/albert-toy/tensorFlow2/{x}" for x in _MODULES]
  paths = [tmp_path / "models" / name / "1" for name in names]
  for instance, path in zip(_MODULES, paths):
    shutil.copytree(published / instance, path)
    (path / "model-instance-metadata.json").unlink()  # It is not uploaded.
    path.with_name("1.complete").touch()
  found = [kagglehub.model_download(f"{name}/1") for name in names]
  assert list(map(pathlib.Path, found)) == paths
  return [str(path) for path in paths]


def fine_tune(preprocess_handle, encoder_handle, texts, labels):
  """Builds and trains a classifier as TF Hub's own tutorial does."""
  text_input = tf.keras.layers.Input(shape=(), dtype=tf.string, name="text")
  preprocessor = hub.KerasLayer(preprocess_handle, name="preprocessing")
  encoder_inputs = preprocessor(text_input)
  encoder = hub.KerasLayer(encoder_handle, trainable=True, name="encoder")
  outputs = encoder(encoder_inputs)
  net = tf.keras.layers.Dropout(0.1)(outputs["pooled_output"])
  net = tf.keras.layers.Dense(1, name="classifier")(net)
  model = tf.keras.Model(text_input, net)
  model.compile(
    optimizer=tf.keras.optimizers.Adam(3e-3),
    loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[tf.metrics.BinaryAccuracy(threshold=0.0)],
  )
  history = model.fit(
    np.array(texts), np.array(labels), batch_size=16, epochs=10, verbose=0
  )
  return model, history.history["loss"]


def test_two_handles_are_all_that_changes(handles, tmp_path):
  before = [v.numpy() for v in hub.load(handles[1]).trainable_variables]
  model, losses = fine_tune(*handles, _TEXTS, _LABELS)
  encoder = model.get_layer("encoder")
  assert len(encoder.trainable_weights) == len(encoder.weights) == _WEIGHTS
  assert not model.losses
  assert losses[-1] < 0.7 * losses[0]
  for weight, old in zip(encoder.trainable_weights, before):
    assert np.abs(weight.numpy() - old).max() > 1e-5, weight.name
  model.save(str(tmp_path / "saved"), include_optimizer=False)
  loaded = tf.saved_model.load(str(tmp_path / "saved"))
  texts = tf.constant(_TEXTS[:3])
  np.testing.assert_allclose(
    loaded(texts), model(texts, training=False), atol=1e-6
  )


def _run_elsewhere(code, **variables):
  """Runs a program in a process without our settings of Keras."""
  env = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
  done = subprocess.run(
    [sys.executable, "-I", "-c", code],
    env={**env, **variables},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.heavy
def test_documented_programs_run(published):
  """With a stub in place of Kaggle's downloads."""
  stub = f"""
import sys, types
sys.modules["kagglehub"] = types.SimpleNamespace(
  model_download=lambda handle: {str(published)!r} + "/" + handle.split("/")[3])
"""
  page = pathlib.Path(__file__).parents[2] / "docs/publishing.md"
  record = published / "encoder/model-instance-metadata.json"
  for text in (page.read_text(), json.loads(record.read_text())["usage"]):
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    _run_elsewhere(f"{stub}{block}assert pooled_output.shape[1] == 24\n")
