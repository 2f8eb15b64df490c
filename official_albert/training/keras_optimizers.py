"""`AdamW` and `LAMB` for Keras' `compile`, with the update of the runs."""

from __future__ import annotations

import sys
from typing import Any, Callable, Sequence, Union

import tensorflow as tf

from official_albert.training import optimization


class _KerasOptimizer(optimization.AlbertOptimizer):
  """Base of `AdamW` and `LAMB`, which fix `layer_adaptation`."""

  _layer_adaptation: bool

  def __init__(
    self,
    learning_rate: Union[float, Callable],
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    bias_correction: bool = True,
    name: str = "",
    **kwargs: Any,
  ):
    """Creates the optimizer.

    Args:
      learning_rate: the rate, or a schedule of Keras.
      weight_decay: the factor of the weights in the update. LayerNorm and bias
        variables are not decayed.
      beta_1: the decay of the first moment.
      beta_2: the decay of the second moment.
      epsilon: is added to the root of the second moment.
      bias_correction: whether the moments are corrected for their start at 0.
        Without, as in google-research/albert, the first updates of AdamW are up
        to 6.6 times as large, and the rate needs a warm-up.
      name: the name; "" is that of the class.
      **kwargs: Keras' `clipnorm`, `clipvalue` and `global_clipnorm`.
    """
    super().__init__(
      learning_rate,
      beta_1=beta_1,
      beta_2=beta_2,
      epsilon=epsilon,
      weight_decay=weight_decay,
      layer_adaptation=self._layer_adaptation,
      bias_correction=bias_correction,
      name=name or type(self).__name__,
      **kwargs,
    )

  def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
    for variable in var_list:
      dtype = variable.dtype
      if dtype.size < 4:
        raise ValueError(
          f"{self._name} cannot train {variable.name}, as {dtype.name} rounds "
          f"its updates away: give the model dtype='mixed_{dtype.name}', whose "
          "variables are float32."
        )
    super()._create_slots(var_list)

  def _trackable_children(
    self, save_type: str = "checkpoint", **kwargs: Any
  ) -> dict[str, Any]:
    if save_type == "savedmodel":
      _claim_saved_optimizers()
    return super()._trackable_children(save_type, **kwargs)

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["layer_adaptation"], config["orthogonalize"]
    return config


def _claim_saved_optimizers() -> None:
  """Lets a SavedModel hold optimizers of tf.keras again.

  To load any optimizer, TensorFlow 2.15 imports the package tf_keras, which may
  be another than tf.keras. It takes over how optimizers are saved. Those of
  tf.keras would be saved as plain objects, and loading them would fail.
  """
  keras = sys.modules[tf.keras.optimizers.legacy.Optimizer.__module__]
  if "tf_keras" not in sys.modules or keras.__name__.startswith("tf_keras"):
    return
  load = tf.__internal__.saved_model.load
  load.register_revived_type(
    "optimizer",
    lambda value: isinstance(value, keras.OptimizerV2),
    versions=[
      load.VersionedTypeRegistration(
        object_factory=lambda proto: keras.RestoredOptimizer(),
        version=2,
        min_producer_version=1,
        min_consumer_version=1,
        setter=keras.RestoredOptimizer._set_hyper,
      )
    ],
  )


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AdamW(_KerasOptimizer):
  """AdamW for Keras: Adam with decoupled weight decay (arXiv 1711.05101).

  >>> import tensorflow as tf
  >>> from official_albert import AdamW
  >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  >>> model.compile(optimizer=AdamW(3e-4), loss="mse")

  A `.keras` file has the settings, but no moments, so a loaded model continues
  its training with new ones. `tf.train.Checkpoint` saves them.
  """

  _layer_adaptation = False


@tf.keras.utils.register_keras_serializable(package="official_albert")
class LAMB(_KerasOptimizer):
  """LAMB for Keras: `AdamW` with trust ratios (arXiv 1904.00962).

  >>> import tensorflow as tf
  >>> from official_albert import LAMB
  >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  >>> model.compile(optimizer=LAMB(1e-3), loss="mse")

  The update of each variable is scaled by the norm of the variable, for large
  batches. About files, see `AdamW`.
  """

  _layer_adaptation = True
