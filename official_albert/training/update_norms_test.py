"""Tests of the norms against updates computed with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import OPTIMIZERS, optimization, update_norms

B1, B2, EPSILON = 0.9, 0.999, 1e-6


def numpy_update(w, m, v, k, g, rate, decay, ratio, corrected):
  """Update number `k` (from 1): new values, the change and the ratio."""
  m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
  mm, vv = (m / (1 - B1**k), v / (1 - B2**k)) if corrected else (m, v)
  u = mm / (np.sqrt(vv) + EPSILON) + decay * w
  r = np.linalg.norm(w) / np.linalg.norm(u) if ratio else 1.0
  return w - rate * r * u, m, v, rate * r * np.linalg.norm(u), r


@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_norms_are_those_of_the_last_update(name, corrected, decay):
  """Rates of 0, 0.2 and 0.4: far larger than any that trains."""
  rng = np.random.default_rng(0)
  shapes = {"dense/kernel": [3, 5], "dense/bias": [5], "other/kernel": [7, 2]}
  variables = [
    tf.Variable(rng.normal(size=shape), dtype=tf.float32, name=n)
    for n, shape in shapes.items()
  ]
  schedule = optimization.WarmupPolynomialDecay(0.4, 100, 2, decay="continuous")
  optimizer = optimization.make_optimizer(
    name, schedule, weight_decay=decay, bias_correction=corrected
  )
  optimizer._create_all_weights(variables)
  measure = update_norms.make_update_norms(optimizer, variables)
  state = [(w.numpy().astype(float), 0.0, 0.0) for w in variables]
  for k in range(1, 4):
    gradients = [rng.normal(size=w.shape) for w in variables]
    optimizer.apply_gradients(
      (tf.constant(g, tf.float32), w) for g, w in zip(gradients, variables)
    )
    expected = {}
    squares = np.zeros(2)
    ratios = []
    for i, n in enumerate(shapes):
      kernel = n.endswith("kernel")
      *state[i], change, ratio = numpy_update(
        *state[i],
        k,
        gradients[i],
        0.2 * (k - 1),
        decay if kernel else 0.0,
        name == "lamb" and kernel,
        corrected,
      )
      norms = np.linalg.norm(state[i][0]), change
      squares += np.square(norms)
      expected[f"weight_norm/{n}"], expected[f"update_norm/{n}"] = norms
      if name == "lamb" and kernel:
        expected[f"trust_ratio/{n}"] = ratio
        ratios.append(ratio)
    expected["weight_norm"], expected["update_norm"] = np.sqrt(squares)
    if ratios:
      expected["trust_ratio"] = np.mean(ratios)
    got = measure()
    assert got.keys() == expected.keys()
    for key, value in expected.items():
      # Five digits of v are lost in float32, see optimization_test.
      np.testing.assert_allclose(got[key], value, rtol=1e-4, err_msg=key)


def test_one_lamb_update_by_hand():
  """w (3, 4), g (1, -1): u = (0.1, -0.1) / sqrt(0.001) = (3.16, -3.16)."""
  w = tf.Variable([[3.0, 4.0]], name="kernel")
  optimizer = optimization.make_optimizer("lamb", 0.01, weight_decay=0.0)
  optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
  got = update_norms.make_update_norms(optimizer, [w])()
  # |u| = 4.472, |w| = 5: the ratio is 1.118, the update 0.01 * 5.
  np.testing.assert_allclose(got["trust_ratio"], 5 / 20**0.5, rtol=1e-4)
  np.testing.assert_allclose(got["update_norm"], 0.05, rtol=1e-4)
  moved = np.hypot(3 - 0.05 / 2**0.5, 4 + 0.05 / 2**0.5)
  np.testing.assert_allclose(got["weight_norm"], moved, rtol=1e-5)


def test_one_adamw_update_by_hand():
  w = tf.Variable([[3.0, 4.0]], name="kernel")
  optimizer = optimization.make_optimizer("adamw", 0.01, weight_decay=0.1)
  optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
  got = update_norms.make_update_norms(optimizer, [w])()
  # u = (3.162 + 0.3, -3.162 + 0.4).
  np.testing.assert_allclose(
    got["update_norm"], 0.01 * np.hypot(3.4623, -2.7623), rtol=1e-4
  )
  assert "trust_ratio" not in got


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_variable_with_a_learning_rate_of_its_own(name):
  norms = {}
  for factor in (1.0, 0.25):
    w = tf.Variable([[3.0, 4.0]], name="kernel")
    optimizer = optimization.make_optimizer(name, 0.4, weight_decay=0.1)
    optimizer.set_rate_multipliers([(w, factor)])
    before = w.numpy()
    optimizer.apply_gradients([(tf.constant([[1.0, -1.0]]), w)])
    got = update_norms.make_update_norms(optimizer, [w])()
    norms[factor] = got["update_norm"]
    np.testing.assert_allclose(
      got["update_norm"], np.linalg.norm(w - before), rtol=1e-4
    )
  assert norms[0.25] == pytest.approx(0.25 * norms[1.0], rel=1e-4)


def test_lengths_of_zero_have_ratio_one():
  w = tf.Variable(tf.ones([2, 2]), name="kernel")
  optimizer = optimization.make_optimizer("lamb", 0.01, weight_decay=0.0)
  optimizer.apply_gradients([(tf.zeros([2, 2]), w)])
  got = update_norms.make_update_norms(optimizer, [w])()
  assert got == {
    **{"weight_norm": 2.0, "update_norm": 0.0, "trust_ratio": 1.0},
    **{f"{k}/kernel": got[k] for k in update_norms.NAMES},
  }


def scalars(folder):
  """Every scalar of the last step that TensorBoard would show."""
  values = {}
  for path in sorted(folder.glob("events*")):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        values[value.tag] = float(tf.make_ndarray(value.tensor))
  return values


def test_a_run_logs_them_for_tensorboard_and_not_on_the_terminal(tmp_path):
  """The last update of a run with a loop of one step, weight by weight."""
  cfg = toy_task.config(tmp_path, steps_per_loop=1, save_checkpoints_steps=1)
  _, _, log = toy_task.run(toy_task.ToyTask(), cfg)
  assert "norm/" not in log and "weight norm" not in log
  assert "update norm" not in log and "trust" not in log
  shown = scalars(tmp_path / "train")
  line = (tmp_path / "metrics.jsonl").read_text().splitlines()[-2]
  for name in update_norms.NAMES:
    assert f'"{name}"' in line and f"{name}/" not in line
  readers = [
    tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{k}")) for k in (5, 6)
  ]
  squares = 0.0
  for layer in ("hidden", "out"):
    for part in ("kernel", "bias"):
      key = f"model/{layer}/{part}/.ATTRIBUTES/VARIABLE_VALUE"
      old, new = (reader.get_tensor(key) for reader in readers)
      change = np.linalg.norm(new.astype(float) - old)
      squares += change**2
      # The difference of weights near 1 has lost three digits.
      np.testing.assert_allclose(
        shown[f"update_norm/{layer}/{part}"], change, rtol=1e-3
      )
      np.testing.assert_allclose(
        shown[f"weight_norm/{layer}/{part}"], np.linalg.norm(new), rtol=1e-5
      )
      assert (f"trust_ratio/{layer}/{part}" in shown) is (part == "kernel")
      if part == "kernel":
        rate = float(cfg.make_optimizer().learning_rate(5))
        # LAMB moves a weight by its rate times its length.
        np.testing.assert_allclose(
          change, rate * np.linalg.norm(old), rtol=1e-3
        )
  np.testing.assert_allclose(shown["update_norm"], squares**0.5, rtol=1e-3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
