"""The update and its norms against NumPy, and learning rates.

Ten steps against the original's numbers are in tasks/pretraining/model_test.py.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertModel, modeling
from official_albert.testing import toy_models
from official_albert.training import optimization

KINDS = (optimization.LAMB, optimization.AdamW, optimization.Muon)
CONFIG = toy_models.config(19, 11, num_hidden_layers=3)
B1, B2, EPSILON, DECAY, RATE = 0.9, 0.999, 1e-6, 0.01, 0.05


def numpy_orthogonal(m):
  """The iteration on the singular values alone."""
  u, s, v = np.linalg.svd(m, full_matrices=False)
  s = s / np.sqrt(np.sum(s**2))
  for _ in range(5):
    s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
  return 0.2 * np.sqrt(max(m.shape)) * (u * s) @ v


def numpy_update(
  w, m, v, k, g, rate, decay, has_ratio, corrected, is_matrix=False
):
  """Makes update number `k` (from 1).

  Returns:
    The new w, m and v, the norm of the update, and the trust ratio.
  """
  m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
  mm, vv = (m / (1 - B1**k), v / (1 - B2**k)) if corrected else (m, v)
  u = mm / (np.sqrt(vv) + EPSILON)
  if is_matrix:
    u = numpy_orthogonal(mm)
  u = u + decay * w
  norms = np.linalg.norm(w), np.linalg.norm(u)
  ratio = norms[0] / norms[1] if has_ratio and min(norms) > 0 else 1.0
  return w - rate * ratio * u, m, v, rate * ratio * norms[1], ratio


def _model_of(variables, matrices):
  """Returns a model with an encoder that has these matrices only."""
  encoder = modeling.SharedTransformerEncoder(CONFIG)
  encoder.others = [v for v in variables if v.name[:-2] in matrices]
  model = tf.Module()
  model.layers, model.weights = [encoder], variables
  return model


def apply(optimizer, gradient, variable):
  gradient = tf.convert_to_tensor(gradient, tf.float32)
  optimizer.apply_gradients([(gradient, variable)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_updates_and_their_norms_equal_numpy(kind, corrected, decay):
  """At rates of 0, 0.05 and 0.1, far larger than any that trains."""
  rng = np.random.default_rng(0)
  shapes = {
    **{"dense/kernel": [3, 5], "x/LayerNorm/gamma": [5], "bias": [2, 7]},
    **{"wide/kernel": [5, 7], "tall/kernel": [7, 5]},
    "encoder/classifier/kernel": [3, 7],
  }
  variables = [
    tf.Variable(rng.normal(size=shape), dtype=tf.float32, name=n)
    for n, shape in shapes.items()
  ]
  matrices = ("wide/kernel", "tall/kernel")
  schedule = optimization.WarmupPolynomialDecay(0.1, 100, 2, decay="continuous")
  optimizer = kind(schedule, weight_decay=decay, bias_correction=corrected)
  name = kind.__name__.lower()
  optimizer.prepare(_model_of(variables, matrices))
  state = [(w.numpy().astype(float), 0.0, 0.0) for w in variables]
  for k in range(1, 4):
    gradients = [rng.normal(size=w.shape) for w in variables]
    optimizer.apply_gradients(
      (tf.constant(g, tf.float32), w) for g, w in zip(gradients, variables)
    )
    expected, squares, ratios = {}, np.zeros(2), []
    for i, n in enumerate(shapes):
      kernel = n.endswith("kernel")
      before = np.linalg.norm(state[i][0])
      *state[i], change, ratio = numpy_update(
        *state[i],
        k,
        gradients[i],
        0.05 * (k - 1),
        decay if kernel else 0.0,
        name == "lamb" and kernel,
        corrected,
        name == "muon" and n in matrices,
      )
      # 1 - beta_2 loses five digits in float32; the root halves the error.
      np.testing.assert_allclose(
        variables[i], state[i][0], rtol=5e-5, atol=1e-5
      )
      norms = before, change
      squares += np.square(norms)
      expected[f"weight_norm/{n}"], expected[f"update_norm/{n}"] = norms
      if name == "lamb" and kernel:
        expected[f"trust_ratio/{n}"] = ratio
        ratios.append(ratio)
    expected["weight_norm"], expected["update_norm"] = np.sqrt(squares)
    if ratios:
      expected["trust_ratio"] = np.mean(ratios)
    # Five digits of v are lost in float32.
    assert optimizer.norms() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("ending, count", [("keras", 0), ("h5", 4)])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
def test_files_of_keras_that_hold_moments(tmp_path, ending, count):
  model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  model.compile(optimization.AdamW(1e-2), "mse")
  model.fit(np.ones([4, 3]), np.ones([4, 1]), verbose=0)
  path = str(tmp_path / f"a.{ending}")
  model.save(path)
  _, *moments = tf.keras.models.load_model(path).optimizer.variables() or [0]
  assert len([x for x in moments if x.numpy().any()]) == count


@pytest.mark.parametrize(
  "sharing, count", [("all", 6), ("attention", 8), ("ffn", 10), ("none", 12)]
)
def test_muon_has_the_kernels_of_encoders(sharing, count):
  """Whatever their names are, and those of other layers."""
  config = toy_models.config(97, 14, sharing=sharing)
  model = modeling.AlbertForSequenceClassification(config, 3)
  other = tf.keras.Sequential([tf.keras.layers.Dense(3)], name="encoder")
  other.build([None, 5])
  model.other = other
  renamed = AlbertModel(config)
  renamed.encoder._name = "text"
  both = tf.Module()
  both.models = [model, renamed]
  optimizer = optimization.Muon(0.1)
  with pytest.raises(ValueError, match="call prepare first"):
    optimizer.orthogonalizes(model.trainable_variables[0])
  optimizer.prepare(both)
  kernels = [
    v.ref()
    for part in (model.albert, renamed)
    for v in part.encoder.trainable_variables
    if v.name.endswith("/kernel:0")
  ]
  assert len(kernels) == 2 * count
  variables = (*model.variables, *renamed.variables)  # Also those of `other`.
  found = {v.ref() for v in variables if optimizer.orthogonalizes(v)}
  assert found == {*kernels}


def test_zero_weights_and_updates_have_ratio_one():
  w = tf.Variable(tf.zeros([2, 3]), name="kernel")
  gradient = np.full([2, 3], 0.5)
  apply(optimization.LAMB(RATE, bias_correction=False), gradient, w)
  expected, *_ = numpy_update(
    0.0 * gradient, 0.0, 0.0, 1, gradient, RATE, DECAY, True, False
  )
  np.testing.assert_allclose(w, expected, rtol=1e-5)
  w = tf.Variable(tf.ones([2, 2]), name="kernel")
  optimizer = optimization.LAMB(0.01, weight_decay=0.0)
  optimizer.prepare(_model_of([w], ()))
  apply(optimizer, np.zeros([2, 2]), w)
  expected = {"weight_norm": 2.0, "update_norm": 0.0, "trust_ratio": 1.0}
  assert optimizer.norms() == {
    **expected,
    **{f"{name}/kernel": value for name, value in expected.items()},
  }


def test_lamb_trains_the_zeros_of_adapters():
  """Their norm as a factor would leave B near zero, here at -0.001."""
  model = AlbertModel(toy_models.config(19, 11, adapter_rank=2))
  adapters = model.encoder.adapters
  optimizer = optimization.LAMB(
    optimization.WarmupPolynomialDecay(0.01, 40, 10, "continuous"),
    weight_decay=0.0,
  )
  optimizer.prepare(model)
  gradient = tf.ones(adapters.ffn_b.shape)
  for _ in range(20):
    optimizer.apply_gradients([(gradient, adapters.ffn_b)])
  # Adam's updates for equal gradients are those of the rate: 0.045 and 0.085.
  rates = [k / 1000 for k in range(10)] + [
    (40 - k) / 3000 for k in range(10, 20)
  ]
  np.testing.assert_allclose(adapters.ffn_b, -sum(rates), rtol=1e-3)
  assert not any(
    name.startswith("trust_ratio/") and "adapters" in name
    for name in optimizer.norms()
  )


@pytest.mark.parametrize(
  "settings, rates",
  [
    # It drops when the warm-up ends.
    ([2], [0, 0.5, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0]),
    ([2, "continuous"], [0, 0.5, *(k / 6 for k in (6, 5, 4, 3, 2, 1, 0)), 0]),
    ([0], [1 - k / 8 for k in range(9)] + [0]),
  ],
)
def test_schedules(settings, rates):
  schedule = optimization.WarmupPolynomialDecay(1.0, 8, *settings)
  np.testing.assert_allclose([schedule(k) for k in range(10)], rates, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_classes_for_keras(kind, tmp_path):
  """They update as in a run, also rows of an embedding, and are saved."""

  def made_model(optimizer):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Embedding(7, 3), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential([tf.keras.Input([4]), *layers])
    model.compile(optimizer, "mse")
    return model

  schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
  model = made_model(kind(schedule, weight_decay=0.3, clipnorm=1.0))
  expected = made_model("sgd")
  x, y = np.array([[1, 1, 5, 3], [0, 5, 2, 1]]), np.ones([2, 4, 2])
  optimizer = kind(schedule, weight_decay=0.3)
  for _ in range(3):
    model.fit(x, y, verbose=0)
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean((expected(x) - y) ** 2)
    gradients = [
      tf.clip_by_norm(tf.convert_to_tensor(g), 1.0)
      for g in tape.gradient(loss, expected.trainable_variables)
    ]
    optimizer.apply_gradients(zip(gradients, expected.trainable_variables))
  for a, b in zip(model.get_weights(), expected.get_weights()):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
  is_mixed = "tf_keras" in sys.modules
  if is_mixed and not tf.keras.Model.__module__.startswith("tf_keras"):
    # A SavedModel that another test has loaded made TensorFlow 2.15 import it.
    # Then Keras reads its own files with the classes of tf_keras.
    return
  path = str(tmp_path / "model.keras")
  model.save(path)
  loaded = tf.keras.models.load_model(path).optimizer
  assert type(loaded) is kind and loaded._name == kind.__name__
  assert loaded.get_config() == model.optimizer.get_config()
  assert loaded.bias_correction


@pytest.mark.parametrize(
  "name, values",
  {
    "learning_rate": (-0.1, np.nan, np.inf, np.float32("nan"), "0.1"),
    "beta_1": (-0.1, 1.0, 2, np.nan),
    "beta_2": (-1, 1.0, 2, np.nan),
    "epsilon": (0.0, -1e-6, 1e-50, np.nan, np.inf),
    "weight_decay": (-1.0, np.nan, np.inf),
    "clipnorm": (0.0, -1.0, np.nan, np.inf),
    "global_clipnorm": (np.nan,),
    "clipvalue": (np.nan,),
  }.items(),
)
def test_numbers_out_of_range_are_refused(name, values):
  for value in values:
    with pytest.raises(ValueError, match=f"{name} is .* but must be"):
      optimization.LAMB(**{"learning_rate": 0.1, name: value})
  optimization.LAMB(0.0, beta_1=0, beta_2=np.float32(0.5), weight_decay=0)


@pytest.mark.parametrize("old", ["lr", "weight_decay_rate"])
def test_old_names_of_arguments_are_refused(old):
  with pytest.raises(TypeError, match=old):
    optimization.AdamW(0.1, **{old: -1.0})


def test_keys_of_checkpoints_are_those_of_tensorflow_addons(tmp_path):
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tfa = pytest.importorskip(
      "tensorflow_addons.optimizers", exc_type=ImportError
    )
  found = []
  for kind in (optimization.LAMB, tfa.LAMB):
    optimizer, variable = kind(0.1), tf.Variable([1.0, 2.0], name="kernel")
    optimizer._create_all_weights([variable])
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, variable=variable)
    path = checkpoint.write(str(tmp_path / kind.__module__))
    found.append((tf.train.list_variables(path), optimizer.get_weights()))
  np.testing.assert_equal(*found)
