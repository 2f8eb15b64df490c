"""The project's base class against that of tensorflow-addons."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

from official_albert.training import lamb_base

_NAMES = ("dense/kernel", "LayerNorm/gamma", "x/bias")


def make(base):
  optimizer = base(
    learning_rate=0.1,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-6,
    weight_decay=0.01,
    exclude_from_weight_decay=["bias"],
    exclude_from_layer_adaptation=["LayerNorm", "bias"],
    name="lamb",
  )
  variables = [tf.Variable([1.0, 2.0], name=name) for name in _NAMES]
  optimizer._create_all_weights(variables)
  return optimizer, variables


def test_equals_tensorflow_addons(tmp_path):
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tfa = pytest.importorskip(
      "tensorflow_addons.optimizers", exc_type=ImportError
    )
  assert lamb_base.LambBase is tfa.LAMB
  (ours, variables), (theirs, _) = made = make(lamb_base.Lamb), make(tfa.LAMB)
  assert ours.get_config() == theirs.get_config()
  keys = []
  for number, (optimizer, optimized) in enumerate(made):
    optimizer.iterations.assign(3)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, variables=optimized)
    path = checkpoint.write(str(tmp_path / str(number)))
    keys.append(tf.train.list_variables(path))
  assert keys[0] == keys[1]
  assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
  of_ours, of_theirs = (
    optimizer._fallback_apply_state("/cpu:0", tf.float32)
    for optimizer, _ in made
  )
  for name, value in of_ours.items():
    np.testing.assert_array_equal(value, of_theirs[name], err_msg=name)
  for variable in variables:
    for method in ("_do_use_weight_decay", "_do_layer_adaptation"):
      same = getattr(ours, method)(variable), getattr(theirs, method)(variable)
      assert same[0] == same[1]
