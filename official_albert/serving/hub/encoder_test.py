"""Tests of the saved encoder: outputs, gradients, dropout, operations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert import modeling
from official_albert.serving.hub import encoder as hub_encoder
from official_albert.testing import toy_models

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


def _parts(config):
  albert = modeling.AlbertModel(config)
  masked_lm = modeling.MaskedLMHead(config)
  hidden = tf.zeros([1, 1, H])
  masked_lm(hidden, tf.zeros([1, 1], tf.int32), albert.embedding)
  return albert, masked_lm, modeling.SentenceOrderHead(config)


@pytest.fixture(scope="module")
def parts():
  # How far the mean of many draws is from the whole depends on the weights.
  tf.keras.utils.set_random_seed(3)
  return _parts(_config())


@pytest.fixture(scope="module")
def folder(parts, tmp_path_factory):
  # The seed of the exporting process must not be saved.
  tf.random.set_seed(3)
  path = str(tmp_path_factory.mktemp("hub") / "encoder")
  hub_encoder.save_hub_object(hub_encoder.HubEncoder(*parts), path)
  return path


@pytest.fixture(scope="module")
def loaded(folder):
  return tf.saved_model.load(folder)


def _expected(albert, training=False):
  features = {own: _INPUTS[name] for name, own in hub_encoder.FEATURES.items()}
  return albert(features, training=training)


def test_computes_what_the_model_does(parts, loaded):
  albert, masked_lm, sentence_order = parts
  expected, got = _expected(albert), loaded(_INPUTS)
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
  served = loaded.signatures["serving_default"](**_INPUTS)
  assert set(served) == tensors
  np.testing.assert_array_equal(served["pooled_output"], got["pooled_output"])
  masked = loaded.mlm({**_INPUTS, "masked_lm_positions": _POSITIONS})
  logits = masked_lm(expected["sequence_output"], _POSITIONS, albert.embedding)
  assert masked["mlm_logits"].shape == [B, P, V]
  np.testing.assert_allclose(masked["mlm_logits"], logits, atol=1e-5)
  np.testing.assert_array_equal(masked["default"], got["default"])
  ordered = loaded.sop(_INPUTS)["sop_logits"]
  expected = sentence_order(expected["pooled_output"])
  np.testing.assert_allclose(ordered, expected, atol=1e-6)


def test_variables_are_shared_and_trainable(parts, loaded):
  own = {id(v) for v in loaded.trainable_variables}
  assert len(own) == len(parts[0].trainable_variables) == 25
  for head, count in ((loaded.mlm, 5), (loaded.sop, 2)):
    assert own < {id(v) for v in head.trainable_variables}
    assert len(head.variables) == 25 + count
  assert {id(v) for v in loaded.variables} == own
  assert not list(loaded.regularization_losses)
  # Optimizers exempt variables from weight decay by these names.
  names = [v.name for v in loaded.variables]
  exempt = [n for n in names if "LayerNorm" in n or "bias" in n]
  assert len(exempt) == 6 + 8  # Norms; biases of the dense layers.


def _gradients(call, variables, weight):
  with tf.GradientTape() as tape:
    outputs = call()
    total = tf.reduce_sum(outputs["sequence_output"] * weight)
    total += tf.reduce_sum(outputs["pooled_output"])
  gradients = tape.gradient(total, variables)
  return [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


def test_gradients_are_those_of_the_model(tmp_path):
  """Compares all variables, in the saved training graph."""
  albert, *_ = _parts(_config(dropout=0.0))
  hub_encoder.save_hub_object(hub_encoder.HubEncoder(albert), str(tmp_path))
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


def test_gradients_reach_the_heads(loaded):
  with tf.GradientTape() as tape:
    masked = {**_INPUTS, "masked_lm_positions": _POSITIONS}
    outputs = loaded.mlm(masked, training=True)
    total = tf.reduce_sum(outputs["mlm_logits"][..., 0])
    ordered = loaded.sop(_INPUTS, training=True)
    total += tf.reduce_sum(ordered["sop_logits"][..., 0])
  everything = list(loaded.mlm.variables) + list(loaded.sop.variables[-2:])
  assert None not in tape.gradient(total, everything)


def test_dropout_differs_from_call_to_call(folder):
  first, second = (tf.saved_model.load(folder) for _ in range(2))
  constant = [first(_INPUTS)["default"].numpy() for _ in range(2)]
  np.testing.assert_array_equal(*constant)
  drawn = [
    module(_INPUTS, training=True)["default"].numpy()
    for module in (first, first, second)
  ]
  for a, b in ((0, 1), (0, 2), (1, 2)):
    assert np.abs(drawn[a] - drawn[b]).max() > 0.01
  # The expectation is the output without dropout.
  many = [first(_INPUTS, training=True)["default"] for _ in range(200)]
  assert np.abs(np.mean(many, 0) - constant[0]).mean() < 0.25


def test_the_graph_is_plain_tensorflow(folder):
  proto = saved_model_pb2.SavedModel()
  with open(f"{folder}/saved_model.pb", "rb") as file:
    proto.ParseFromString(file.read())
  library = proto.meta_graphs[0].graph_def.library
  assert not library.registered_gradients
  must_compile = [f.attr["_XlaMustCompile"].b for f in library.function]
  assert must_compile and not any(must_compile)
  nodes = [node for f in library.function for node in f.node_def]
  assert not [n.op for n in nodes if "Xla" in n.op]
  custom = [n for n in nodes if "_gradient_op_type" in n.attr]
  assert not [n.name for n in custom if "Call" not in n.op]


def test_invalid_ids_are_refused(loaded):
  long = {name: tf.ones([2, 12], tf.int32) for name in _INPUTS}
  # Where the length is known beforehand, TensorFlow sees it first.
  with pytest.raises(ValueError, match="must be equal, but are 12 and 11"):
    loaded(long)

  @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
  def of_any_length(ids):
    return loaded(dict.fromkeys(_INPUTS, ids))["default"]

  assert of_any_length(tf.ones([2, 11], tf.int32)).shape == [2, H]
  with pytest.raises(tf.errors.InvalidArgumentError, match="longer than max"):
    of_any_length(tf.ones([2, 12], tf.int32))
  wrong = {**_INPUTS, "input_word_ids": tf.fill([B, S], V)}
  with pytest.raises(tf.errors.InvalidArgumentError, match=r"not in \[0, 97\)"):
    loaded(wrong)


def test_missing_heads_and_folders(parts, tmp_path):
  alone = hub_encoder.HubEncoder(parts[0])
  assert not hasattr(alone, "mlm") and not hasattr(alone, "sop")
  (tmp_path / "file").write_text("")
  with pytest.raises(OSError, match="could not be written"):
    hub_encoder.save_hub_object(alone, str(tmp_path / "file" / "module"))


def test_other_precisions_are_refused():
  tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
  try:
    albert = modeling.AlbertModel(_config())
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  with pytest.raises(ValueError, match="computes in bfloat16"):
    hub_encoder.HubEncoder(albert)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
