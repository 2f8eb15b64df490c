"""Tests of the update against NumPy, and of the schedules.

Ten steps against the original's numbers are in tasks/pretraining/model_test.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.training import optimization

B1, B2, EPSILON, DECAY, RATE = 0.9, 0.999, 1e-6, 0.01, 0.05


def numpy_steps(w, gradients, lamb, excluded, corrected):
  m, v = np.zeros_like(w), np.zeros_like(w)
  for k, g in enumerate(gradients, start=1):
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * g * g
    mm, vv = (m / (1 - B1**k), v / (1 - B2**k)) if corrected else (m, v)
    u = mm / (np.sqrt(vv) + EPSILON)
    if not excluded:
      u = u + DECAY * w
    ratio = 1.0
    if lamb and not excluded:
      norms = np.linalg.norm(w), np.linalg.norm(u)
      ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    w = w - RATE * ratio * u
  return w


@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
  "variable_name, excluded",
  [("dense/kernel", False), ("x/LayerNorm/gamma", True), ("bias", True)],
)
def test_update_equals_numpy(
  name, corrected, variable_name, excluded, compiled, monkeypatch
):
  monkeypatch.setattr(
    optimization, "_WORTH_COMPILING", 1 if compiled else 10**9
  )
  rng = np.random.default_rng(0)
  start = rng.normal(size=[3, 5])
  gradients = rng.normal(size=[4, 3, 5])
  variable = tf.Variable(start, dtype=tf.float32, name=variable_name)
  optimizer = optimization.make_optimizer(name, RATE, bias_correction=corrected)
  for g in gradients:
    optimizer.apply_gradients([(tf.constant(g, tf.float32), variable)])
  expected = numpy_steps(start, gradients, name == "lamb", excluded, corrected)
  # 1 - beta_2 loses five digits in float32, of which the root halves the error.
  np.testing.assert_allclose(variable, expected, rtol=5e-5, atol=1e-5)


def test_rate_follows_the_square_root_of_the_batch():
  assert optimization.scaled_learning_rate(4096) == 0.00176  # Exactly.
  assert optimization.scaled_learning_rate(1024) == 0.00088
  # Four times the batch, twice the rate.
  np.testing.assert_allclose(
    optimization.scaled_learning_rate(7 * 4),
    2 * optimization.scaled_learning_rate(7),
    rtol=1e-15,
  )
  with pytest.raises(ValueError, match="at least 1 example, got 0"):
    optimization.scaled_learning_rate(0)


def test_zero_weights_have_ratio_one():
  variable = tf.Variable(tf.zeros([2, 3]), name="kernel")
  optimizer = optimization.make_optimizer("lamb", RATE)
  gradient = np.full([2, 3], 0.5)
  optimizer.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
  expected = numpy_steps(np.zeros([2, 3]), [gradient], True, False, False)
  np.testing.assert_allclose(variable, expected, rtol=1e-5)
  assert np.all(expected != 0)


def test_sparse_gradients_move_every_row():
  rng = np.random.default_rng(1)
  start = rng.normal(size=[5, 3])
  dense = np.zeros([5, 3])
  slices = rng.normal(size=[3, 3])
  for index, row in zip([4, 1, 4], slices):
    dense[index] += row
  table = tf.Variable(start, dtype=tf.float32, name="table")
  optimizer = optimization.make_optimizer("lamb", RATE)
  sparse = tf.IndexedSlices(
    tf.constant(slices, tf.float32), tf.constant([4, 1, 4]), [5, 3]
  )
  optimizer.apply_gradients([(sparse, table)])
  expected = numpy_steps(start, [dense], True, False, False)
  np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-6)


def test_original_schedule_drops_when_the_warmup_ends():
  schedule = optimization.WarmupPolynomialDecay(1.0, 800, 200)
  values = [float(schedule(k)) for k in (0, 100, 199, 200, 500, 800, 900)]
  np.testing.assert_allclose(
    values, [0, 0.5, 0.995, 0.75, 0.375, 0, 0], atol=1e-6
  )


def test_continuous_schedule_does_not():
  schedule = optimization.WarmupPolynomialDecay(
    1.0, 800, 200, decay="continuous"
  )
  values = [float(schedule(k)) for k in (0, 100, 200, 500, 800, 900)]
  np.testing.assert_allclose(values, [0, 0.5, 1.0, 0.5, 0, 0], atol=1e-6)


def test_schedule_without_warmup_and_with_power():
  schedule = optimization.WarmupPolynomialDecay(2.0, 10, 0, power=2.0)
  np.testing.assert_allclose(
    [float(schedule(k)) for k in (0, 5, 10)], [2.0, 0.5, 0.0], atol=1e-6
  )


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(learning_rate=0.0), "learning_rate must be positive"),
    (dict(num_train_steps=0), "num_train_steps must be at least 1"),
    (dict(num_warmup_steps=11), "between 0 and num_train_steps 10"),
    (dict(decay="cosine"), "unknown learning-rate decay 'cosine'"),
  ],
)
def test_bad_schedules_are_refused(kwargs, message):
  values = dict(learning_rate=1.0, num_train_steps=10, num_warmup_steps=2)
  with pytest.raises(ValueError, match=message):
    optimization.WarmupPolynomialDecay(**{**values, **kwargs})


def test_unknown_optimizer_is_refused():
  # kamalkraj/ALBERT-TF2.0 took "lamp" for LAMB and trained with Adam.
  with pytest.raises(ValueError, match="'lamp'; choose one of lamb, adamw"):
    optimization.make_optimizer("lamp", 1.0)


def test_serialization():
  schedule = optimization.WarmupPolynomialDecay(0.1, 10, 2)
  optimizer = optimization.make_optimizer("adamw", schedule, beta_2=0.98)
  clone = optimization.AlbertOptimizer.from_config(optimizer.get_config())
  assert clone.get_config() == optimizer.get_config()
  assert not clone.layer_adaptation


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
