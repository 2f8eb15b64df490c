"""Tests of every model as a Keras model: its files, and its input names.

Saved weights are equal to the bit after loading: into a model with other
weights (`.weights.h5`, `.h5`), or by `tf.keras.models.load_model` under another
global precision (`.keras`, `.h5`, SavedModel).
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel, modeling
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tasks.race import model as race_model
from official_albert.tasks.squad import model as squad_model
from official_albert.testing import toy_models
from official_albert.tools.testing import many_commands

B, S, P, V, CLASSES = 3, 7, 2, 29, 4
_MODELS = {
  "encoder": AlbertModel,
  "pretraining": model_lib.AlbertForPretraining,
  "classifier": lambda config, **options: (
    modeling.AlbertForSequenceClassification(config, CLASSES, **options)
  ),
  "squad1": squad_model.AlbertForSpans,
  "squad2": lambda config, **options: squad_model.AlbertForSpansOrNone(
    config, 2, 3, **options
  ),
  "race": race_model.AlbertForMultipleChoice,
}
_SHARINGS = ("all", "attention", "ffn", "none")
_KINDS = ("functional", "subclassed")
_PRECISIONS = ("float32", "mixed_bfloat16")
_HUGGING_FACE = {
  "attention_mask": "input_mask",
  "token_type_ids": "segment_ids",
}


@contextlib.contextmanager
def _policy(precision: str):
  tf.keras.mixed_precision.set_global_policy(precision)
  try:
    yield
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")


def _config(sharing: str) -> AlbertConfig:
  """Three layers in two groups of two blocks."""
  layers = {"num_hidden_layers": 3, "num_hidden_groups": 2}
  if sharing == "adapters":
    sharing, layers["adapter_rank"] = "all", 4
  return toy_models.config(V, 11, inner_group_num=2, sharing=sharing, **layers)


def _batch(name: str = "encoder") -> dict[str, tf.Tensor]:
  rng = np.random.default_rng(0)
  mask = (np.arange(S) < [[S], [4], [2]]).astype(np.int32)
  batch = {
    "input_ids": rng.integers(0, V, [B, S], np.int32),
    "input_mask": mask,
    "segment_ids": rng.integers(0, 2, [B, S], np.int32),
  }
  if name == "race":
    batch = {k: np.stack([v, v[::-1]], axis=1) for k, v in batch.items()}
  elif name == "pretraining":
    batch["masked_lm_positions"] = rng.integers(0, S, [B, P], np.int32)
  elif name == "squad2":
    batch["p_mask"] = (1 - mask).astype(np.float32)
  return {k: tf.constant(v) for k, v in batch.items()}


def _make(name: str, sharing: str, kind: str, precision: str):
  """A model with random weights, and biases that are not 0."""
  with _policy(precision):
    model = _MODELS[name](_config(sharing))
    for variable in model.weights:
      variable.assign_add(tf.random.normal(variable.shape, stddev=0.05))
    if kind == "subclassed":
      return model
    inputs = {
      key: tf.keras.Input(x.shape[1:], dtype=x.dtype, name=key)
      for key, x in _batch(name).items()
    }
    return tf.keras.Model(inputs, model(inputs))


def _outputs(name: str, model) -> list[np.ndarray]:
  outputs = tf.nest.flatten(model(_batch(name)))
  return [tf.cast(x, tf.float32).numpy() for x in outputs]


def _check_same(expected, got):
  assert len(expected) == len(got)
  for a, b in zip(expected, got):
    np.testing.assert_array_equal(a, b)


# Each model with another sharing, kind and precision; all pairs when heavy.
@pytest.mark.parametrize(
  "name, sharing, kind, precision, whole",
  [
    pytest.param(
      *(name, _SHARINGS[j], _KINDS[(i + j) % 2], _PRECISIONS[(i + j // 2) % 2]),
      whole,
      marks=[pytest.mark.heavy]
      * (j != i % 4 or whole != (".keras" if i else ".h5")),
    )
    for i, name in enumerate(_MODELS)
    for j in range(4)
    for whole in (".keras", ".h5", "")
  ]
  + [("pretraining", "adapters", "functional", "mixed_bfloat16", ".keras")],
)
def test_files(name, sharing, kind, precision, whole, tmp_path):
  """Of weights, and of whole models; "" is a SavedModel of Keras."""
  model, other = (_make(name, sharing, kind, precision) for _ in range(2))
  expected = _outputs(name, model)
  assert np.any(_outputs(name, other)[0] != expected[0])
  file = "weights.h5" if whole == ".h5" else "model.weights.h5"
  model.save_weights(str(tmp_path / file))
  other.load_weights(str(tmp_path / file))
  _check_same(expected, _outputs(name, other))
  if whole != ".h5" or kind == "functional":
    path = str(tmp_path / f"model{whole}")
    model.save(path)
    with _policy(_PRECISIONS[1 - _PRECISIONS.index(precision)]):
      loaded = tf.keras.models.load_model(path)
    _check_same(expected, _outputs(name, loaded))


def test_settings_of_a_model_are_saved(tmp_path):
  model = AlbertModel(_config("all"), True, name="mine", dtype="mixed_bfloat16")
  model.trainable = False
  path = str(tmp_path / "model.keras")
  model.save(path)
  loaded = tf.keras.models.load_model(path)
  assert loaded.name == "mine" and loaded.encoder.recompute_activations
  assert not loaded.trainable_variables and loaded.weights
  assert loaded.embedding.compute_dtype == "bfloat16"
  assert tf.keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.parametrize(
  "name, dtype",
  zip(
    _MODELS, ["bfloat16", tf.keras.mixed_precision.Policy("mixed_bfloat16")] * 3
  ),
)
def test_models_take_a_dtype(name, dtype):
  exact = _make(name, "ffn", "subclassed", "float32")
  expected = _outputs(name, exact)
  model = _MODELS[name](_config("ffn"), dtype=dtype)
  policy = model.dtype_policy
  assert policy.name == getattr(dtype, "name", dtype)
  layers = [x for x in model.submodules if hasattr(x, "dtype_policy")]
  assert len(layers) > 20 and {x.dtype_policy.name for x in layers} == {
    policy.name
  }
  assert {v.dtype.name for v in model.weights} == {policy.variable_dtype}
  model.set_weights(exact.get_weights())
  # Each layer has errors of 2^-8; the best starts and ends may be others.
  for a, b in zip(expected, _outputs(name, model)):
    assert name == "squad2" or np.linalg.norm(a - b) <= 0.05 * np.linalg.norm(a)
  clone = type(model).from_config(model.get_config())
  assert clone.dtype_policy.name == policy.name
  assert tf.keras.mixed_precision.global_policy().name == "float32"


def _sum_of_outputs(outputs):
  """Returns the sum of all but sequences, whose sum LayerNorm keeps at 0."""
  return tf.add_n(
    [
      # Without the scores of padding, -1e30.
      tf.reduce_sum(tf.maximum(tf.cast(outputs[key], tf.float64), -99.0))
      for key in sorted(outputs)
      if key.endswith(("pooled_output", "logits", "probs"))
    ]
  )


@pytest.mark.parametrize("name, training", [*zip(_MODELS, [True, False] * 3)])
def test_all_of_a_model_of_float64_is_float64(name, training):
  """A difference of 1e-7 would drown in the rounding of any float32."""
  config = dataclasses.replace(
    _config("none"),
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.2,
    hidden_act="tanh" if training else "gelu",
  )
  model = _MODELS[name](config, dtype="float64")
  options = {"training": training, "dropout_seed": tf.constant([3, 5])}
  for variable in model.weights:
    variable.assign_add(
      tf.random.normal(variable.shape, stddev=0.3, dtype=tf.float64)
    )
  encoder = getattr(model, "albert", model)
  table = encoder.embedding.word_embeddings
  with tf.GradientTape() as tape:
    loss = _sum_of_outputs(model(_batch(name), **options))
  gradient = tf.convert_to_tensor(tape.gradient(loss, table))
  step = 1e-7 * gradient / tf.norm(gradient)
  table.assign_add(step)
  after = _sum_of_outputs(model(_batch(name), **options))
  np.testing.assert_allclose(
    (after - loss) / 1e-7, tf.norm(gradient), rtol=1e-4
  )


@pytest.mark.parametrize("name", ["encoder", "race"])
def test_names_of_hugging_face(name):
  model, batch = _make(name, "all", "subclassed", "float32"), _batch(name)
  expected = _outputs(name, model)
  # Hugging Face's tokenizers return int64 without TensorFlow.
  for key in modeling.INPUTS:
    batch[key] = batch[key].numpy().astype(np.int64)
  for theirs, ours in _HUGGING_FACE.items():
    batch[theirs] = batch.pop(ours)
    _check_same(expected, [x.numpy() for x in tf.nest.flatten(model(batch))])


_LOAD = """
import sys
import tensorflow as tf, official_albert
model = tf.keras.models.load_model(sys.argv[1])
print(type(model), *map(type, model.layers))
print(tf.keras.utils.get_custom_objects())
"""


def test_the_package_alone_registers_its_classes(tmp_path):
  """Keras itself imports the classes of a .keras file."""
  path = str(tmp_path / "model.h5")
  _make("squad1", "all", "functional", "float32").save(path)
  done = many_commands.start("-c", _LOAD, path)
  assert "AlbertForSpans" in done.out, done.err
  for name in "AlbertModel AlbertForPretraining TextClassifier LAMB".split():
    assert f"'official_albert>{name}'" in done.out
