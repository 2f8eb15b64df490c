"""Runs programs of TF Hub's users with our modules.

`fine_tune` is a program for tensorflow/albert_en_base/3 and
tensorflow/albert_en_preprocess/3. Here its two handles are those of our own
modules, as folders and as archives behind http.
"""

from __future__ import annotations

import functools
import http.server
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from official_albert import tokenization
from tools.hub import handle as hub_handle
from tools.hub import publication as hub_publication
from tools.hub import sources as hub_sources
from tools.testing import toy_data, toy_runs

_RNG = np.random.default_rng(11)
_LABELS = _RNG.integers(0, 2, 48)
_TEXTS = [
  toy_data.sentence(_RNG, toy_data.GOOD if label else toy_data.BAD)
  for label in _LABELS
]
# Variables of the encoder: one group of layers, with a projection E to H.
_WEIGHTS = 25


@pytest.fixture(scope="module")
def published(tmp_path_factory):
  folder = tmp_path_factory.mktemp("hub")
  run = toy_runs.write_pretrained(
    str(folder / "run"),
    max_position_embeddings=128,
    num_hidden_layers=2,
    hidden_dropout_prob=0.1,
  )
  publication = hub_handle.Publication("my-team/albert_toy/1", "mit")
  with hub_sources.opened(run) as source:
    hub_publication.publish(source, publication, str(folder / "out"))
  return folder / "out"


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
    return [f"{address}/{name}/1.tar.gz" for name in names]
  return [str(published / name / "1") for name in names]


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


def test_pairs_in_keras(handles, published):
  preprocessor = hub.load(handles[0])
  texts = [tf.keras.layers.Input(shape=(), dtype=tf.string) for _ in range(2)]
  tokenize = hub.KerasLayer(preprocessor.tokenize)
  pack = hub.KerasLayer(
    preprocessor.bert_pack_inputs, arguments=dict(seq_length=64)
  )
  encoder_inputs = pack([tokenize(text) for text in texts])
  model = tf.keras.Model(texts, encoder_inputs)
  firsts, seconds = tf.constant(_TEXTS[:3]), tf.constant(_TEXTS[3:6])
  packed = model([firsts, seconds])
  assert packed["input_type_ids"].shape == [3, 64]
  python = tokenization.open_tokenizer(
    str(published / "albert_toy" / "1" / "assets" / "tokenizer.model")
  )
  first, second = (python.encode(_TEXTS[i]) for i in (0, 3))
  ids = [2, *first, 3, *second, 3]
  row = packed["input_word_ids"][0].numpy().tolist()
  assert row == ids + [0] * (64 - len(ids))


def test_pretraining_continues_with_the_heads(handles):
  """The sub-objects share their variables, and all of them learn."""
  preprocessor, encoder = map(hub.load, handles)
  special = preprocessor.tokenize.get_special_tokens_dict()
  inputs = dict(preprocessor(_TEXTS[:5]))
  labels = inputs["input_word_ids"][:, 2]
  masked = np.array(inputs["input_word_ids"])
  masked[:, 2] = special["mask_id"]
  inputs["input_word_ids"] = tf.constant(masked)
  inputs["masked_lm_positions"] = tf.fill([5, 1], 2)
  specs = {
    name: tf.keras.layers.Input(value.shape[1:], dtype=tf.int32)
    for name, value in inputs.items()
  }
  mlm = hub.KerasLayer(encoder.mlm, trainable=True)
  outputs = mlm(specs)
  assert outputs["sequence_output"].shape.as_list() == [None, 128, 24]
  assert {"mlm_logits", "pooled_output", "encoder_outputs"} < set(outputs)
  assert len(mlm.trainable_weights) == _WEIGHTS + 5
  model = tf.keras.Model(specs, outputs["mlm_logits"])
  model.compile(
    optimizer=tf.keras.optimizers.Adam(3e-3),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  before = encoder(inputs_of(inputs))["default"].numpy()
  history = model.fit(inputs, labels[:, None], epochs=50, verbose=0)
  assert history.history["loss"][-1] < 0.7 * history.history["loss"][0]
  # The encoder itself has changed.
  assert np.abs(encoder(inputs_of(inputs))["default"] - before).max() > 1e-3
  sop = hub.KerasLayer(encoder.sop, trainable=True)
  assert sop(inputs_of(inputs))["sop_logits"].shape == [5, 2]
  assert len(sop.trainable_weights) == _WEIGHTS + 2


def inputs_of(features):
  """Returns the features that all heads take."""
  return {k: v for k, v in features.items() if k != "masked_lm_positions"}


def test_a_frozen_encoder_neither_learns_nor_drops(handles):
  encoder = hub.KerasLayer(handles[1])
  assert not encoder.trainable_weights
  assert len(encoder.non_trainable_weights) == _WEIGHTS
  inputs = hub.load(handles[0])(_TEXTS[:2])
  first, second = (encoder(inputs, training=True)["default"] for _ in range(2))
  np.testing.assert_array_equal(first, second)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
