"""Tests of a publication: modules, archives, Kaggle's metadata, programs.

`fine_tune` is a program for tensorflow/albert_en_base/3 and
tensorflow/albert_en_preprocess/3. Here its two handles are those of our own
modules, as folders and as archives behind http.
"""

from __future__ import annotations

import dataclasses
import functools
import http.server
import json
import os
import pathlib
import re
import stat
import tarfile
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from official_albert import AlbertConfig, checkpoints
from tools.hub import metadata as hub_metadata
from tools.hub import publication as hub_publication
from tools.hub import sources as hub_sources
from tools.testing import toy_data, toy_runs

_PUBLICATION = hub_metadata.Publication("my-team/albert_toy/3", "mit")
_MODULES = {"albert_toy": "encoder", "albert_toy_preprocess": "preprocess"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  return toy_runs.write_pretrained(
    str(tmp_path_factory.mktemp("source") / "run"),
    max_position_embeddings=128,
    num_hidden_layers=2,
    hidden_dropout_prob=0.1,
  )


def _publish(run, output, seq_length=128):
  with hub_sources.opened(run) as source:
    hub_publication.publish(source, _PUBLICATION, str(output), seq_length)


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
  output = tmp_path_factory.mktemp("public") / "hub"
  output.mkdir()
  _publish(run, output)
  return output


def _paths(published):
  """Returns the folders of the preprocessor and of the encoder."""
  return [str(published / name / "3") for name in reversed(_MODULES)]


def test_folders_archives_metadata_and_assets(run, published):
  assert sorted(os.listdir(published)) == [*_MODULES, "model-metadata.json"]
  assert os.listdir(published.parent) == ["hub"]
  for name, instance in _MODULES.items():
    assert sorted(os.listdir(published / name)) == ["3", "3.tar.gz"]
    folder = published / name / "3"
    text = (folder / "model-instance-metadata.json").read_text()
    assert json.loads(text)["instanceSlug"] == instance
    assets = ["albert_config.json", "tokenizer.model"]
    assert sorted(os.listdir(folder / "assets")) == assets
    for asset in assets:
      with open(os.path.join(run, asset), "rb") as file:
        assert (folder / "assets" / asset).read_bytes() == file.read()
    with tarfile.open(published / name / "3.tar.gz") as archive:
      assert {name.split("/")[0] for name in archive.getnames()} == {
        *("assets", "fingerprint.pb", "saved_model.pb", "variables")
      }
    # The publisher's folders are private.
    proto = (folder / "saved_model.pb").read_bytes()
    assert str(published).encode() not in proto and b"hub-assets" not in proto
  preprocessor, encoder = map(tf.saved_model.load, _paths(published))
  inputs = preprocessor(["the sunny day at sea"])
  assert inputs["input_word_ids"].shape == [1, 128]
  assert encoder(inputs)["pooled_output"].shape == [1, 24]
  assert encoder.mlm.variables and encoder.sop.variables
  asset = encoder.sp_model_file.asset_path.numpy().decode()
  tokenizer = published / "albert_toy/3/assets/tokenizer.model"
  assert os.path.samefile(asset, tokenizer)


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
  with hub_sources.opened(run) as source:
    hub_publication.check_modules(source, *_paths(published))
    if what == "tokenizer":
      other = f"{tmp_path}/tokenizer.model"
      file = dataclasses.replace(source.tokenizer, path=other)
      source = dataclasses.replace(source, tokenizer=file)
    else:
      source.model.albert.pooler.bias.assign_add(tf.fill([24], 0.01))
    with pytest.raises(ValueError, match=message):
      hub_publication.check_modules(source, *_paths(published))


def test_archives_depend_on_names_and_contents_only(tmp_path):
  names = ["saved_model.pb", "variables/variables.index", "assets/x"]
  for folder, order in (("one", names), ("two", reversed(names))):
    for name in order:
      path = tmp_path / folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(name.encode() * 1000)
      if folder == "two":
        os.utime(path, (7, 7))
        path.chmod(0o600)
    source, packed = str(tmp_path / folder), tmp_path / f"{folder}.tar.gz"
    hub_publication.write_archive(source, str(packed))
  packed = (tmp_path / "one.tar.gz").read_bytes()
  assert packed == (tmp_path / "two.tar.gz").read_bytes()
  assert len(packed) < 1000
  with tarfile.open(tmp_path / "one.tar.gz") as archive:
    entries = archive.getmembers()
    # The library creates only folders that the archive names.
    assert [entry.name for entry in entries] == [
      *("assets", "assets/x", "saved_model.pb"),
      *("variables", "variables/variables.index"),
    ]
    for entry in entries:
      assert entry.mode & stat.S_IROTH
      if entry.isfile():
        content = archive.extractfile(entry).read()
        assert content == entry.name.encode() * 1000


_CONFIG = AlbertConfig(
  vocab_size=1097,
  embedding_size=6,
  hidden_size=12,
  num_hidden_layers=5,
  num_attention_heads=3,
  intermediate_size=14,
  max_position_embeddings=33,
)


def _source(**changes):
  values = dict(
    kind="official_albert",
    step=7000,
    model=types.SimpleNamespace(config=_CONFIG),
    heads=("masked_lm", "sentence_order"),
    tokenizer=checkpoints.TokenizerFile("x", "sentencepiece", False),
    text_layer=types.SimpleNamespace(vocab_size=1095),
    data={"max_seq_length": 31},
    metrics={"masked_lm_loss": 4.56097},
    notes=(),
  )
  return hub_sources.Source(**{**values, **changes})


def test_the_model_card():
  named = dataclasses.replace(_PUBLICATION, language="en", description="Mine.")
  found = hub_metadata.model_metadata(named, _source())
  card = re.sub(" +", " ", found.pop("description"))
  assert found == {
    "ownerSlug": "my-team",
    "title": "albert_toy",
    "slug": "albert_toy",
    "subtitle": "Mine.",
    "isPrivate": True,
    "publishTime": "",
    "provenanceSources": "",
  }
  for row in ("language | en", "training steps | 7,000", "loss | 4.561"):
    assert f"{row} |" in card
  unknown = _source(metrics={}, step=0, data={"head": "none"}, kind="hf")
  found = hub_metadata.model_metadata(_PUBLICATION, unknown)
  assert found["subtitle"] == "ALBERT encoder, L=5, H=12, A=3, E=6."
  assert "Not measured." in found["description"]


def _instance(instance, **changes):
  found = hub_metadata.instance_metadata(
    _PUBLICATION, _source(**changes), instance, 33
  )
  assert "$" not in found["usage"]
  return found, found["usage"]


def test_the_metadata_of_both_instances():
  found, usage = _instance("encoder")
  del found["usage"]
  assert found == {
    "ownerSlug": "my-team",
    "modelSlug": "albert_toy",
    "instanceSlug": "encoder",
    "framework": "tensorFlow2",
    "overview": "ALBERT encoder, L=5, H=12, A=3, E=6.",
    "licenseName": "MIT",
    "fineTunable": True,
    "trainingData": [],
    "modelInstanceType": "Unspecified",
    "baseModelInstanceId": 0,
    "externalBaseModelUrl": "",
  }
  assert 'model_download("my-team/albert_toy/tensorFlow2/encoder")' in usage
  assert "`[batch, seq_length, 12]`" in usage and "a list of 5" in usage
  assert "mlm_logits" in usage and "sop_logits" in usage
  found, usage = _instance("preprocess")
  assert found["instanceSlug"] == "preprocess" and not found["fineTunable"]
  assert 'model_download("my-team/albert_toy/tensorFlow2/preprocess")' in usage
  assert "left in its case" in usage and "`[batch, (tokens)]`" in usage
  assert "# seq_length 33" in usage
  wordpiece = checkpoints.TokenizerFile("x", "wordpiece", True)
  usage = _instance("preprocess", tokenizer=wordpiece)[1]
  assert "a WordPiece vocabulary of 1,095" in usage and "lower-cased" in usage
  assert "`[batch, (words), (tokens)]`" in usage


_RNG = np.random.default_rng(11)
_LABELS = _RNG.integers(0, 2, 48)
_TEXTS = [
  toy_data.sentence(_RNG, toy_data.GOOD if label else toy_data.BAD)
  for label in _LABELS
]
# Variables of the encoder: one group of layers, with a projection E to H.
_WEIGHTS = 25


@pytest.fixture(scope="module")
def address(published):
  """The address of a web server with the output folder."""
  handler = functools.partial(_Silent, directory=str(published))
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()


class _Silent(http.server.SimpleHTTPRequestHandler):
  def log_message(self, *unused):
    pass


@pytest.fixture
def handles(request, published, address, tmp_path, monkeypatch):
  """The handles of the preprocessor and of the encoder."""
  monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
  monkeypatch.setenv("NO_PROXY", "127.0.0.1")
  names = ("albert_toy_preprocess", "albert_toy")
  if getattr(request, "param", "folder") == "http":
    return [f"{address}/{name}/3.tar.gz" for name in names]
  return [str(published / name / "3") for name in names]


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


@pytest.mark.parametrize("handles", ["http"], indirect=True)
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


def test_sub_objects_as_keras_layers(handles):
  preprocessor, encoder = map(hub.load, handles)
  inputs = preprocessor.bert_pack_inputs(
    [preprocessor.tokenize(texts) for texts in (_TEXTS[:5], _TEXTS[5:10])]
  )
  sop = hub.KerasLayer(encoder.sop, trainable=True)
  assert sop(inputs)["sop_logits"].shape == [5, 2]
  assert len(sop.trainable_weights) == _WEIGHTS + 2
  mlm = hub.KerasLayer(encoder.mlm, trainable=True)
  outputs = mlm({**inputs, "masked_lm_positions": tf.fill([5, 1], 2)})
  assert outputs["sequence_output"].shape == [5, 128, 24]
  assert {"mlm_logits", "pooled_output", "encoder_outputs"} < set(outputs)
  assert len(mlm.trainable_weights) == _WEIGHTS + 5


def test_a_frozen_encoder_neither_learns_nor_drops(handles):
  encoder = hub.KerasLayer(handles[1])
  assert not encoder.trainable_weights
  assert len(encoder.non_trainable_weights) == _WEIGHTS
  inputs = hub.load(handles[0])(_TEXTS[:2])
  first, second = (encoder(inputs, training=True)["default"] for _ in range(2))
  np.testing.assert_array_equal(first, second)
