"""Tests of a publication: modules, Kaggle's metadata, programs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import tarfile

import kagglehub
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from official_albert import AlbertModel, checkpoints, load, runs, tokenization
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_vocabulary
from official_albert.tools.conversion import conversion
from official_albert.tools.hub import publication as hub_publication
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_PUBLICATION = ("my-team/albert-toy", "MIT")
_MODULES = ("preprocess", "encoder")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  run = toy_runs.write_pretrained(
    str(tmp_path_factory.mktemp("source") / "run"),
    max_position_embeddings=128,
    num_hidden_layers=2,
    hidden_dropout_prob=0.1,
  )
  record = runs.read_run(run)
  record["data"]["tokenizer"]["keep_accents"] = True
  pathlib.Path(run, "run.json").write_text(json.dumps(record))
  return run


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
  output = tmp_path_factory.mktemp("public") / "hub"
  source = hub_publication.read(run)
  hub_publication.publish(source, *_PUBLICATION, str(output), 128)
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


def test_all_that_opens_a_model_opens_it(run, published, tmp_path):
  path, archive = str(published), f"{tmp_path}/hub.tar.gz"
  with tarfile.open(archive, "w:gz") as file:
    file.add(published, "hub")
  expected = _weights(AlbertModel.from_checkpoint(run))
  encoder = f"{path}/encoder"
  for where in (path, encoder, f"{encoder}/variables/variables", archive):
    model = AlbertModel.from_checkpoint(where)
    assert not model.load_report.missing
    np.testing.assert_equal(_weights(model), expected)
  loaded, source = load(path), load(run)
  rules = checkpoints.read_checkpoint(path).tokenizer.rules
  assert rules == tokenization.TextRules(keep_accents=True)
  assert loaded.methods == source.methods
  text = f"{toy_data.GOOD[0]} [MASK] {toy_data.BAD[0]}"
  assert loaded.fill_mask(text) == source.fill_mask(text)
  long_text = " ".join([text] * 50)  # Is truncated as in training.
  for texts in (text, long_text):
    np.testing.assert_array_equal(loaded.embed(texts), source.embed(texts))
  conversion.convert("tf1", path, f"{tmp_path}/tf1")
  converted = AlbertModel.from_checkpoint(f"{tmp_path}/tf1")
  np.testing.assert_equal(_weights(converted), expected)
  warm = model_lib.AlbertForPretraining(model.config)
  assert not checkpoints.warm_start(warm, path).missing
  np.testing.assert_equal(_weights(warm.albert), expected)


def test_a_model_of_embeddings_keeps_its_pooling(tmp_path):
  run, output = str(tmp_path / "run"), str(tmp_path / "hub")
  toy_runs.write_finetuned(run, "text_embedding", pooling="max")
  source = hub_publication.read(run)
  hub_publication.publish(source, *_PUBLICATION, output, 20)
  text = " ".join(toy_data.GOOD * 9)
  np.testing.assert_array_equal(load(output).embed(text), load(run).embed(text))


def _weights(model):
  return {name: x.numpy() for name, x in checkpoints.by_path(model).items()}


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
  return checkpoints.TokenizerChoice(str(path))


@pytest.mark.parametrize(
  "path, has_heads",
  [
    ("two_groups/model.ckpt", True),
    ("hf_one_group/sequence_classification", False),
  ],
)
def test_checkpoints_of_other_formats(path, has_heads, pieces):
  path = str(_GOLDEN / path)
  source = hub_publication.read(path, tokenizer=pieces)
  assert source.checkpoint == path
  model = source.module.model
  assert hasattr(model, "masked_lm") == has_heads
  stored = checkpoints.read_checkpoint(path).tensors[_POOLER]
  np.testing.assert_array_equal(model.albert.pooler.kernel, stored)
  assert model.albert.pooler.compute_dtype == "float32"


def test_refusals(run, tmp_path, pieces):
  def refused(message, path, **options):
    with pytest.raises((ValueError, OSError), match=message):
      hub_publication.read(path, **options)

  no_pooler = str(_GOLDEN / "hf_one_group/question_answering")
  refused("has no pooler", no_pooler, tokenizer=pieces)
  refused("is not the tokenizer that the model", run, tokenizer=pieces)
  file = pieces.apply(None, tokenization.TextRules())
  other = hub_publication.read(run)._replace(tokenizer=file)
  with pytest.raises(ValueError, match="89 pieces, but the model has"):
    hub_publication.publish(other, *_PUBLICATION, f"{tmp_path}/hub", 128)
  bare = tmp_path / "bare"
  shutil.copytree(run, bare)
  (bare / "tokenizer.model").unlink()
  refused("no tokenizer beside", str(bare))


def test_saved_modules_are_compared(run, published, tmp_path):
  """Those of the source passed when they were published."""
  toy_runs.write_tokenizer(str(tmp_path), seed=6)
  source = hub_publication.read(run)
  other = f"{tmp_path}/tokenizer.model"
  file = dataclasses.replace(source.tokenizer, path=other)
  source.module.model.albert.pooler.bias.assign_add(tf.fill([24], 0.01))
  paths = [str(published / instance) for instance in _MODULES]
  with pytest.raises(
    ValueError, match="^'pooled_output', 'the ids' of the saved"
  ):
    hub_publication.check_modules(source._replace(tokenizer=file), *paths)


def test_kaggle_takes_both_files(published):
  """Source: kaggle_api_extended.py of kaggle 2.2.5."""
  model = json.loads((published / "model-metadata.json").read_text())
  assert (model["ownerSlug"], model["slug"]) == ("my-team", "albert-toy")
  assert model["isPrivate"] is True and model["publishTime"] == ""
  texts = [model["description"]]
  for name in _MODULES:
    file = published / name / "model-instance-metadata.json"
    instance = json.loads(file.read_text())
    keys = "ownerSlug modelSlug instanceSlug framework licenseName fineTunable"
    assert [instance[key] for key in keys.split()] == [
      *("my-team", "albert-toy", name, "tensorFlow2", "MIT", name == "encoder")
    ]
    assert instance["modelInstanceType"] == "Unspecified"
    texts += [instance["overview"], instance["usage"]]
  # bleach.clean escapes or removes these; ${VARIABLES} are Kaggle's.
  assert not re.search(r"[<>&]|\$\{", "".join(texts))


def test_handles_that_kaggle_refuses():
  assert hub_publication.split_handle("my_team-2/a-b-1") == (
    "my_team-2",
    "a-b-1",
  )
  for handle in ("team/a_b", "team/a--b", "team/A", "-team/a", "a", "a/b/1"):
    with pytest.raises(ValueError, match="PUBLISHER/NAME"):
      hub_publication.split_handle(handle)


_RNG = np.random.default_rng(11)
_LABELS = _RNG.integers(0, 2, 48)
_TEXTS = [
  toy_data.sentence(_RNG, toy_data.GOOD if label else toy_data.BAD)
  for label in _LABELS
]
# Variables of the encoder: one group of layers, with a projection E to H.
_WEIGHTS = 25


def test_two_handles_are_all_that_changes(published, tmp_path, monkeypatch):
  """Trains a classifier as TF Hub's own tutorial does."""
  monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
  handles = []
  for instance in _MODULES:
    name = f"my-team/albert-toy/tensorFlow2/{instance}"
    path = tmp_path / "models" / name / "1"
    shutil.copytree(published / instance, path)
    (path / "model-instance-metadata.json").unlink()  # It is not uploaded.
    path.with_name("1.complete").touch()
    handles.append(kagglehub.model_download(f"{name}/1"))
    assert handles[-1] == str(path)
  checkpoint = checkpoints.read_checkpoint(
    "kaggle://my-team/albert-toy/tensorFlow2/encoder/1"
  )
  assert len(checkpoint.carried) > _WEIGHTS
  text_input = tf.keras.layers.Input(shape=(), dtype=tf.string, name="text")
  preprocessor = hub.KerasLayer(handles[0], name="preprocessing")
  encoder = hub.KerasLayer(handles[1], trainable=True, name="encoder")
  before = [weight.numpy() for weight in encoder.trainable_weights]
  net = encoder(preprocessor(text_input))["pooled_output"]
  net = tf.keras.layers.Dropout(0.1)(net)
  net = tf.keras.layers.Dense(1, name="classifier")(net)
  model = tf.keras.Model(text_input, net)
  model.compile(
    optimizer=tf.keras.optimizers.Adam(3e-3),
    loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
  )
  fit = model.fit(np.array(_TEXTS), _LABELS, 16, epochs=10, verbose=0)
  losses = fit.history["loss"]
  assert len(encoder.trainable_weights) == len(encoder.weights) == _WEIGHTS
  assert not model.losses
  assert losses[-1] < 0.7 * losses[0]
  for weight, old in zip(encoder.trainable_weights, before, strict=True):
    assert np.abs(weight.numpy() - old).max() > 1e-5, weight.name
  model.save(str(tmp_path / "saved"), include_optimizer=False)
  loaded = tf.saved_model.load(str(tmp_path / "saved"))
  texts = tf.constant(_TEXTS[:3])
  np.testing.assert_allclose(
    loaded(texts), model(texts, training=False), atol=1e-6
  )


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
    code = f"{stub}{block}assert pooled_output.shape[1] == 24\n"
    # Without our settings of Keras.
    env = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    done = many_commands.start("-I", "-c", code, env=env)
    assert done.code == 0, done.err[-2000:]


def test_the_program(tmp_path):
  run, words = (
    toy_runs.write_pretrained(str(tmp_path / x)) for x in ("run", "words")
  )
  pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] in the caf ##e 1922 , ."
  toy_runs.use_wordpiece(words, pieces)

  def line(*more, output="none", handle="my-team/albert-toy", input=run):
    return [
      f"--input={input}",
      f"--output_dir={tmp_path / output}",
      f"--handle={handle}",
      "--license=MIT",
      *more,
    ]

  lines = [
    line("--seq_length=17", output=f"hub_{name}", input=tmp_path / name)
    for name in ("run", "words")
  ]
  for good in many_commands.run("publish_hub_module", lines):
    assert "as my-team/albert-toy with mlm\n" in good.out, good.err
  cases = (
    (line(output="hub_run"), "exists and is not empty"),
    (line(handle="my-team/albert_toy"), "PUBLISHER/NAME"),
    (line("--checkpoint=best"), "keeps no best checkpoint"),
    (line("--seq_length=65"), "more than the model's 64 position embeddings"),
    (line("--seq_length=4"), "seq_length must be at least 5"),
    (line("--spm_model_file=/none"), "the tokenizer /none does not exist"),
    (line(input=tmp_path / "nothing"), "no checkpoint at"),
  )
  many_commands.check_refusals("publish_hub_module", cases)
  folders = ["hub_run", "hub_words", "run", "words"]
  assert sorted(os.listdir(tmp_path)) == folders
