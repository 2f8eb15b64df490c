"""Tests of seeded dropout."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.modeling import dropout


def test_masks_follow_the_seed():
  x = tf.ones([31, 41])
  seed = tf.constant([3, 5])
  first = dropout.seeded_dropout(x, 0.3, True, seed)
  again = dropout.seeded_dropout(x, 0.3, True, seed)
  other = dropout.seeded_dropout(x, 0.3, True, dropout.fold_in(seed, 1))
  np.testing.assert_array_equal(first, again)
  assert np.any(first.numpy() != other.numpy())


def test_fraction_and_scale():
  x = tf.ones([300, 400])
  y = dropout.seeded_dropout(x, 0.3, True, tf.constant([1, 2])).numpy()
  # Four standard errors of the fraction of 120,000 draws.
  assert abs((y == 0).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / y.size)
  np.testing.assert_allclose(y[y != 0], 1 / 0.7, rtol=1e-6)


@pytest.mark.parametrize(
  "training, rate", [(False, 0.5), (None, 0.5), (True, 0)]
)
def test_returns_the_input_without_dropout(training, rate):
  x = tf.range(7.0)
  assert dropout.seeded_dropout(x, rate, training, tf.constant([1, 2])) is x


def test_masks_differ_without_a_seed():
  x = tf.ones([50, 50])
  first = dropout.seeded_dropout(x, 0.5, True)
  assert np.any(first.numpy() != dropout.seeded_dropout(x, 0.5, True).numpy())
  assert dropout.fold_in(None, 3) is None


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
