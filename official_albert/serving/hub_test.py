"""Tests of the saved encoder and the saved preprocessor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, tokenization
from official_albert.serving import hub
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tokenization import in_graph

B, S, P, V, H, L = 3, 7, 2, 97, 12, 3
_RNG = np.random.default_rng(5)
_INPUTS = {
  "input_word_ids": tf.constant(_RNG.integers(0, V, [B, S]), tf.int32),
  "input_mask": tf.sequence_mask([7, 4, 6], S, tf.int32),
  "input_type_ids": tf.constant(_RNG.integers(0, 2, [B, S]), tf.int32),
}
_POSITIONS = tf.constant([[1, 3], [2, 0], [5, 4]])


def _config(dropout=0.1):
  return toy_models.config(
    V,
    11,
    hidden_size=H,
    num_hidden_layers=L,
    initializer_range=0.3,
    hidden_dropout_prob=2 * dropout,
    attention_probs_dropout_prob=dropout,
  )


@pytest.fixture(scope="module")
def parts():
  # How far the mean of many draws is from the whole depends on the weights.
  tf.keras.utils.set_random_seed(3)
  albert = modeling.AlbertModel(_config())
  masked_lm = modeling.MaskedLMHead(albert.config)
  hidden = tf.zeros([1, 1, H])
  masked_lm(hidden, tf.zeros([1, 1], tf.int32), albert.embedding)
  return albert, masked_lm, modeling.ClassificationHead(albert.config, 2)


@pytest.fixture(scope="module")
def folder(parts, tmp_path_factory):
  # The seed of the exporting process must not be saved.
  tf.random.set_seed(3)
  path = str(tmp_path_factory.mktemp("hub") / "encoder")
  hub.save_hub_object(hub.HubEncoder(*parts), path)
  return path


@pytest.fixture(scope="module")
def encoder(folder):
  return tf.saved_model.load(folder)


def _expected(albert, training=False):
  features = {own: _INPUTS[name] for name, own in hub.FEATURES.items()}
  return albert(features, training=training)


def test_the_encoder_computes_what_the_model_does(parts, encoder):
  albert, masked_lm, _ = parts
  expected, got = _expected(albert), encoder(_INPUTS)
  tensors = {"pooled_output", "default", "sequence_output"}
  assert set(got) == {*tensors, "encoder_outputs"}
  assert got["pooled_output"].shape == [B, H]
  assert isinstance(got["encoder_outputs"], list)
  np.testing.assert_allclose(
    got["encoder_outputs"], expected["encoder_outputs"], atol=1e-6
  )
  for name in ("pooled_output", "sequence_output"):
    np.testing.assert_allclose(got[name], expected[name], atol=1e-6)
  np.testing.assert_array_equal(got["default"], got["pooled_output"])
  served = encoder.signatures["serving_default"](**_INPUTS)
  assert set(served) == tensors
  np.testing.assert_array_equal(served["pooled_output"], got["pooled_output"])
  masked = encoder.mlm({**_INPUTS, "masked_lm_positions": _POSITIONS})
  logits = masked_lm(expected["sequence_output"], _POSITIONS, albert.embedding)
  assert masked["mlm_logits"].shape == [B, P, V]
  np.testing.assert_allclose(masked["mlm_logits"], logits, atol=1e-5)
  np.testing.assert_array_equal(masked["default"], got["default"])
  # Optimizers exempt variables from weight decay by these names.
  stored = [v.name for v in encoder.trainable_variables]
  exempt = [n for n in stored if "LayerNorm" in n or "bias" in n]
  assert len(exempt) == 6 + 8  # Norms; biases of the dense layers.
  alone = hub.HubEncoder(albert)
  assert not hasattr(alone, "mlm")


def _gradients(call, variables, weight):
  with tf.GradientTape() as tape:
    outputs = call()
    total = tf.reduce_sum(outputs["sequence_output"] * weight)
    total += tf.reduce_sum(outputs["pooled_output"])
  gradients = tape.gradient(total, variables)
  return [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


def test_gradients_are_those_of_the_model(tmp_path):
  """Compares all variables, in the saved training graph."""
  albert = modeling.AlbertModel(_config(dropout=0.0))
  hub.save_hub_object(hub.HubEncoder(albert), str(tmp_path))
  loaded = tf.saved_model.load(str(tmp_path))
  weight = tf.constant(_RNG.normal(size=[B, S, H]), tf.float32)
  variables = albert.trainable_variables
  expected = _gradients(lambda: _expected(albert, True), variables, weight)
  got = _gradients(
    lambda: loaded(_INPUTS, training=True), loaded.variables, weight
  )
  for variable, a, b in zip(variables, expected, got):
    # Sums in another order; the gradient of the keys' bias is rounding only.
    scale = max(1.0, np.linalg.norm(a))
    assert np.linalg.norm(a - b) < 1e-4 * scale, variable.name


def test_dropout_differs_from_call_to_call(folder):
  first, second = (tf.saved_model.load(folder) for _ in range(2))
  constant = [first(_INPUTS)["default"].numpy() for _ in range(2)]
  np.testing.assert_array_equal(*constant)
  drawn = [
    module(_INPUTS, training=True)["default"].numpy()
    for module in (first, first, second)
  ]
  for a, b in itertools.combinations(drawn, 2):
    assert np.abs(a - b).max() > 0.01
  # The expectation is the output without dropout.
  many = [first(_INPUTS, training=True)["default"] for _ in range(200)]
  assert np.abs(np.mean(many, 0) - constant[0]).mean() < 0.25


def test_invalid_ids_are_refused(encoder):
  @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
  def of_any_length(ids):
    return encoder(dict.fromkeys(_INPUTS, ids))["default"]

  assert of_any_length(tf.ones([2, 11], tf.int32)).shape == [2, H]
  with pytest.raises(tf.errors.InvalidArgumentError, match="longer than max"):
    of_any_length(tf.ones([2, 12], tf.int32))
  wrong = {**_INPUTS, "input_word_ids": tf.fill([B, S], V)}
  with pytest.raises(tf.errors.InvalidArgumentError, match=r"not in \[0, 97\)"):
    encoder(wrong)
  serve = encoder.signatures["serving_default"]
  with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 96"):
    serve(**wrong)
  # Added to the others, it would broadcast.
  wrong = {**_INPUTS, "input_mask": _INPUTS["input_mask"][:1]}
  with pytest.raises(tf.errors.InvalidArgumentError, match="have the shape of"):
    serve(**wrong)


_SENTENCES = [
  "the mill by the river ground barley, oats and rye.",
  "its wheel turned until 1874, when 1874,5 litres broke the dam.",
  "lots (3,3) and (3,8), (3,1), (3,2) or (3,c) were sold quickly.",
]
_LINES = ["In 1874, 3,8 Lots", "mill", "", "Ca\u0301f\u00e9 \u4e2d", "9" * 40]
_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the mill tur ##ns , \u4e2d".split()


def _save_preprocessor(layer, folder, seq_length):
  hub.save_hub_object(hub.HubPreprocessor(layer, seq_length), str(folder))
  return tf.saved_model.load(str(folder))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(toy_vocabulary.train(_SENTENCES, 61))
  return str(path)


@pytest.fixture(scope="module")
def preprocessor(model_file, tmp_path_factory):
  layer = in_graph.SentencePieceTextLayer(model_file)
  with pytest.raises(ValueError, match="at least 5, got 4"):
    hub.HubPreprocessor(layer, 4)
  return _save_preprocessor(layer, tmp_path_factory.mktemp("hub"), 13)


def test_ids_are_those_of_the_tokenizer(preprocessor, model_file):
  python = tokenization.SentencePieceTokenizer(model_file)
  tokens = preprocessor.tokenize(tf.constant(_LINES))
  assert tokens.dtype == tf.int32 and tokens.shape.as_list() == [5, None]
  expected = python.encode_batch(_LINES)
  assert tokens.to_list() == expected
  assert sum(map(len, expected)) > 12
  packed = preprocessor(_LINES)  # Of Python strings.
  for row, ids in enumerate(expected):
    wanted, _ = tokenization.pack_pair(ids, None, 13, 2, 3)
    got = packed["input_word_ids"][row].numpy().tolist()
    assert got == wanted + [0] * (13 - len(wanted))
    assert int(tf.reduce_sum(packed["input_mask"][row])) == len(wanted)
  serve = preprocessor.signatures["serving_default"]
  served = serve(sentences=tf.constant(_LINES))
  for name, value in packed.items():
    assert value.shape == (5, 13)
    assert (served[name].numpy() == value.numpy()).all()
  special = preprocessor.tokenize.get_special_tokens_dict()
  assert {name: int(value) for name, value in special.items()} == {
    "start_of_sequence_id": 2,
    "end_of_segment_id": 3,
    "padding_id": 0,
    "mask_id": 4,
    "vocab_size": python.vocab_size,
  }
  assert all(v.dtype == tf.int32 and v.shape == [] for v in special.values())


def test_empty_batches_and_tf_data(preprocessor):
  assert preprocessor(tf.constant([], tf.string))["input_mask"].shape == [0, 13]
  data = tf.data.Dataset.from_tensor_slices(_LINES).batch(2).map(preprocessor)
  shapes = [tuple(batch["input_mask"].shape) for batch in data]
  assert shapes == [(2, 13), (2, 13), (1, 13)]


def test_word_pieces_come_by_words(tmp_path):
  (tmp_path / "vocab.txt").write_text("\n".join(_PIECES), "utf-8")
  file = str(tmp_path / "vocab.txt")
  layer = in_graph.WordPieceTextLayer(file, True)
  loaded = _save_preprocessor(layer, tmp_path / "module", 16)
  lines = ["The mill turns,", "\u4e2d\u4e2d x", ""]
  tokens = loaded.tokenize(tf.constant(lines))
  assert tokens.to_list() == [[[5], [6], [7, 8], [9]], [[10], [10], [1]], []]
  python = tokenization.WordPieceTokenizer(file, True)
  assert tokens.merge_dims(1, 2).to_list() == python.encode_batch(lines)
  for length in (12, tf.constant(12)):
    packed = loaded.bert_pack_inputs([tokens, tokens], seq_length=length)
    assert packed["input_word_ids"][1].numpy().tolist() == [
      2, 10, 10, 1, 3, 10, 10, 1, 3, 0, 0, 0
    ]  # fmt: skip
  alone = loaded.bert_pack_inputs([tokens])
  assert alone["input_mask"].shape == [3, 16]
  assert loaded(lines)["input_word_ids"].shape == [3, 16]
  long = tf.constant(["mill " * 9000, "x" * 33_000 + " mill", " " * 40_000])
  tokens = loaded.tokenize(long)
  assert tokens.row_lengths().numpy().tolist() == [9000, 2, 0]
  packed = loaded.bert_pack_inputs([tokens])["input_word_ids"].numpy()
  assert (loaded(long)["input_word_ids"].numpy() == packed).all()


CLS, SEP, PAD = 71, 72, 5


@tf.function(reduce_retracing=True)
def _pack(segments, seq_length):
  return hub.pack_segments(segments, seq_length, CLS, SEP, PAD)


def _ragged(rows):
  return tf.ragged.constant(rows, dtype=tf.int32)


def test_padding_and_static_shapes():
  pair = [_ragged([[11, 12, 13]]), _ragged([[31]])]
  for length, ids in (
    (8, [CLS, 11, 12, 13, SEP, 31, SEP, PAD]),
    (6, [CLS, 11, 12, SEP, 31, SEP]),
  ):
    assert _pack(pair, length)["input_word_ids"].numpy().tolist() == [ids]
  spec = tf.RaggedTensorSpec([None, None], tf.int32)
  static = _pack.get_concrete_function([spec], 9).structured_outputs
  assert {tuple(x.shape) for x in static.values()} == {(None, 9)}
  with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
    _pack(pair, tf.constant(2))
