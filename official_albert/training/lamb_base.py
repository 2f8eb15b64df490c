"""The base of LAMB and AdamW: hyperparameters and slots, but no update.

tensorflow-addons has such a class, and ends with TensorFlow 2.15 and Python
3.11. For later releases, `Lamb` has the same hyperparameters, slots and names,
so either reads the checkpoints of the other. `optimization.py` adds the update.

Reference: tensorflow-addons 0.23.0, optimizers/lamb.py.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Callable, Sequence, Union

import tensorflow as tf


class Lamb(tf.keras.optimizers.legacy.Optimizer):
  """What `AlbertOptimizer` uses of tensorflow-addons' class `LAMB`."""

  def __init__(
    self,
    learning_rate: Union[float, Callable],
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay: float,
    exclude_from_weight_decay: Sequence[str],
    exclude_from_layer_adaptation: Sequence[str],
    name: str,
    **kwargs: Any,
  ):
    """Creates the hyperparameters; `exclude_...` are regular expressions."""
    super().__init__(name, **kwargs)
    self._set_hyper("weight_decay", weight_decay)
    self._set_hyper("learning_rate", learning_rate)
    # Keras' own decay of the learning rate: unused, but in checkpoints.
    self._set_hyper("decay", self._initial_decay)
    self._set_hyper("beta_1", beta_1)
    self._set_hyper("beta_2", beta_2)
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay
    self.exclude_from_layer_adaptation = exclude_from_layer_adaptation

  def _create_slots(self, var_list):
    # The order of `get_weights`.
    for name in ("m", "v"):
      for variable in var_list:
        self.add_slot(variable, name)

  def _prepare_local(self, var_device, var_dtype, apply_state):
    super()._prepare_local(var_device, var_dtype, apply_state)
    step = tf.cast(self.iterations + 1, var_dtype)
    coefficients = apply_state[(var_device, var_dtype)]
    coefficients["epsilon"] = tf.convert_to_tensor(self.epsilon, var_dtype)
    coefficients["weight_decay"] = self._get_hyper("weight_decay", var_dtype)
    for name in ("beta_1", "beta_2"):
      beta = tf.identity(self._get_hyper(name, var_dtype))
      coefficients[f"{name}_t"] = beta
      coefficients[f"{name}_power"] = tf.pow(beta, step)

  def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
    return not _matches(self.exclude_from_weight_decay, variable)

  def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
    return not _matches(self.exclude_from_layer_adaptation, variable)

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    for name in ("learning_rate", "decay", "beta_1", "beta_2", "weight_decay"):
      config[name] = self._serialize_hyperparameter(name)
    config["epsilon"] = self.epsilon
    config["exclude_from_weight_decay"] = self.exclude_from_weight_decay
    config["exclude_from_layer_adaptation"] = self.exclude_from_layer_adaptation
    return config


def _matches(patterns: Sequence[str], variable: tf.Variable) -> bool:
  return any(re.search(pattern, variable.name) for pattern in patterns)


try:
  with warnings.catch_warnings():
    # tensorflow-addons warns of its end of life at every import;
    # docs/install.md explains why it is used.
    warnings.simplefilter("ignore")
    from tensorflow_addons.optimizers import LAMB as LambBase
except ImportError:
  LambBase = Lamb
