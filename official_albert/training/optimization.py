"""LAMB, AdamW and Muon in one optimizer, and the learning-rate schedules.

LAMB and AdamW update a weight w with gradient g by

    m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
    u = m / (sqrt(v) + eps) + decay * w        w = w - lr * r * u

where the trust ratio r is 1 for AdamW and ||w|| / ||u|| for LAMB (arXiv
1904.00962). As in the original, m and v have no bias correction by default, and
LayerNorm and bias variables have neither decay nor trust ratio.

Muon is AdamW, but for the matrices of the encoder it replaces m / (sqrt(v) +
eps) by `orthogonal_direction(m)`, in which all directions of the matrix have
equal size. v is kept, but not used for them.

Reference: google-research/albert optimization.py, lamb_optimizer.py.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import tensorflow as tf

from official_albert import modeling
from official_albert.settings import check_choice, check_number
from official_albert.train_config import DECAYS, OPTIMIZERS, TrainConfig
from official_albert.training import lamb_base

# Variables with these in their names have neither decay nor trust ratio.
EXCLUDED = ("LayerNorm", "layer_norm", "bias")

# Compiling the update is faster for variables of at least this many elements.
_WORTH_COMPILING = 2**18


@tf.keras.utils.register_keras_serializable(package="official_albert")
class WarmupPolynomialDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
  """Linear warm-up from 0, then a linear decay to 0.

  For step k (from 0), peak p, W warm-up steps and T steps in all, the rate is
  p * k / W for k < W. After that, it is

    original:    p * (1 - k / T)
    continuous:  p * (1 - (k - W) / (T - W))

  The original (google-research/albert optimization.py, create_optimizer) decays
  from step 0, so the rate drops by the share W/T when the warm-up ends: 25% for
  RTE's 200 of 800 steps. It is the default because published results use it.
  """

  def __init__(
    self,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    decay: str = "original",
  ):
    """Creates the schedule; `decay` is one of `DECAYS`.

    Raises:
      ValueError: an argument is out of range.
    """
    check_number("learning_rate", learning_rate, above=0)
    check_number("num_train_steps", num_train_steps, least=1, whole=True)
    check_number("num_warmup_steps", num_warmup_steps, least=0, whole=True)
    check_choice("decay", decay, DECAYS)
    if num_warmup_steps > num_train_steps:
      raise ValueError(
        f"num_warmup_steps {num_warmup_steps} must be between 0 and "
        f"num_train_steps {num_train_steps}."
      )
    self.learning_rate = learning_rate
    self.num_train_steps = num_train_steps
    self.num_warmup_steps = num_warmup_steps
    self.decay = decay

  def __call__(self, step: Any) -> tf.Tensor:
    """Returns the rate <float32>[] of update number `step` (from 0)."""
    step = tf.cast(step, tf.float32)
    total = tf.cast(self.num_train_steps, tf.float32)
    warmup = tf.cast(self.num_warmup_steps, tf.float32)
    if self.decay == "original":
      progress = step / total
    else:
      progress = (step - warmup) / tf.maximum(total - warmup, 1.0)
    progress = tf.clip_by_value(progress, 0.0, 1.0)
    decayed = self.learning_rate * (1.0 - progress)
    warming = self.learning_rate * step / tf.maximum(warmup, 1.0)
    return tf.where(step < warmup, warming, decayed)

  def get_config(self) -> dict[str, Any]:
    return {
      "learning_rate": self.learning_rate,
      "num_train_steps": self.num_train_steps,
      "num_warmup_steps": self.num_warmup_steps,
      "decay": self.decay,
    }


_OLD_NAMES = {"lr": "learning_rate", "weight_decay_rate": "weight_decay"}


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertOptimizer(lamb_base.LambBase):
  """LAMB, AdamW without `layer_adaptation`, or Muon with `orthogonalize`."""

  def __init__(
    self,
    learning_rate: Union[float, Callable] = 0.00176,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.01,
    layer_adaptation: bool = True,
    bias_correction: bool = False,
    orthogonalize: bool = False,
    name: str = "AlbertOptimizer",
    **kwargs: Any,
  ):
    """Creates the optimizer; for the arguments see the module.

    Raises:
      ValueError: a number is not finite or out of range.
      TypeError: an argument has a name of older versions of Keras.
    """
    # The bases would take them instead of the checked numbers.
    for old, new in _OLD_NAMES.items():
      if old in kwargs:
        raise TypeError(f"{old} is an old name: the argument is {new}.")
    if not (callable(learning_rate) or tf.is_tensor(learning_rate)):
      check_number("learning_rate", learning_rate, least=0)
    check_number("beta_1", beta_1, least=0, below=1)
    check_number("beta_2", beta_2, least=0, below=1)
    # A smaller one would be 0 in float32, and 0 / 0 is not a number.
    check_number("epsilon", epsilon, least=1e-37)
    check_number("weight_decay", weight_decay, least=0)
    for clipping in ("clipnorm", "clipvalue", "global_clipnorm"):
      if kwargs.get(clipping) is not None:
        check_number(clipping, kwargs[clipping], above=0)
    super().__init__(
      learning_rate,
      beta_1=beta_1,
      beta_2=beta_2,
      epsilon=epsilon,
      weight_decay=weight_decay,
      exclude_from_weight_decay=list(EXCLUDED),
      # Every name matches the regular expression "".
      exclude_from_layer_adaptation=list(EXCLUDED)
      if layer_adaptation
      else [""],
      name=name,
      **kwargs,
    )
    self.layer_adaptation = layer_adaptation
    self.bias_correction = bias_correction
    self.orthogonalize = orthogonalize
    self._matrices: Optional[dict[str, bool]] = None

  def set_model(self, model: tf.keras.Model) -> None:
    """Finds Muon's matrices, which no checkpoint has."""
    encoder = modeling.SharedTransformerEncoder
    parts = [x for x in (model, *model.submodules) if isinstance(x, encoder)]
    variables = [v for part in parts for v in part.trainable_variables]
    self._matrices = {
      copy._unique_id: variable.shape.rank == 2
      for variable in variables
      # With several replicas, updates see a variable's copies.
      for copy in (variable, *getattr(variable, "values", ()))
    }

  def orthogonalizes(self, variable: tf.Variable) -> bool:
    """Returns whether `variable` gets the update of a matrix."""
    if self.orthogonalize and self._matrices is None:
      raise ValueError("muon does not know the model: call set_model first.")
    return self.orthogonalize and self._matrices.get(variable._unique_id, False)

  def _resource_apply_dense(self, grad, var, apply_state=None):
    key = var.device, var.dtype.base_dtype
    c = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
    m, v = (self.get_slot(var, name) for name in "mv")
    w = tf.convert_to_tensor(var)
    decay = c["weight_decay"] * float(self._do_use_weight_decay(var))
    new_m, new_v, update = modeling.adam_direction(
      grad,
      tf.convert_to_tensor(m),
      tf.convert_to_tensor(v),
      w,
      c["beta_1_t"],
      c["beta_2_t"],
      tf.stack([1.0 - c["beta_1_power"], 1.0 - c["beta_2_power"]]),
      c["epsilon"],
      decay,
      compiled=var.shape.num_elements() >= _WORTH_COMPILING,
    )
    if self.orthogonalizes(var):
      update = orthogonal_direction(new_m) + decay * w
    rate = c["lr_t"]
    if self._do_layer_adaptation(var):
      # Not compiled: XLA's CPU reductions add up element by element.
      norms = tf.norm(w), tf.norm(update)
      rate *= tf.where(
        (norms[0] > 0) & (norms[1] > 0),
        norms[0] / tf.where(norms[1] > 0, norms[1], 1.0),
        1.0,
      )
    return tf.group(
      m.assign(new_m), v.assign(new_v), var.assign_sub(rate * update)
    )

  def _resource_apply_sparse_duplicate_indices(
    self, grad, handle, indices, **kwargs
  ):
    # The gradient of an embedding by Keras' `fit`. Moments and weights decay in
    # the other rows, too.
    slices = tf.IndexedSlices(grad, indices, handle.shape)
    dense = tf.convert_to_tensor(slices)
    return self._resource_apply_dense(dense, handle, **kwargs)

  def _prepare_local(self, var_device, var_dtype, apply_state):
    super()._prepare_local(var_device, var_dtype, apply_state)
    if not self.bias_correction:
      # m and v are divided by 1 - beta_power, which is 1 for a power of 0.
      zero = tf.zeros([], var_dtype)
      apply_state[(var_device, var_dtype)].update(
        beta_1_power=zero, beta_2_power=zero
      )

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    for name in ("exclude_from_weight_decay", "exclude_from_layer_adaptation"):
      del config[name]
    config["layer_adaptation"] = self.layer_adaptation
    config["bias_correction"] = self.bias_correction
    config["orthogonalize"] = self.orthogonalize
    return config


def orthogonal_direction(m: tf.Tensor) -> tf.Tensor:
  """Returns a matrix with the singular vectors of `m` and nearly equal values.

  The singular values, whatever they are, become about 1 (0.7 to 1.2) by five
  steps of a Newton-Schulz iteration, whose coefficients are those of Muon
  (https://kellerjordan.github.io/posts/muon). They are then multiplied by
  0.2 sqrt(max(R, C)), so that the elements are as large as those of AdamW's
  updates and its learning rates and decay fit (arXiv 2502.16982, section 2.2).

  Deviation: Muon adds the gradient to the momentum once more (Nesterov). Here
  the moment is that of AdamW, and so is its decay.

  Args:
    m: <float32>[R, C].
  """
  rows, columns = m.shape
  x = m / (tf.norm(m) + 1e-7)
  if rows > columns:
    x = tf.transpose(x)
  for _ in range(5):
    gram = tf.matmul(x, x, transpose_b=True)
    x = 3.4445 * x + tf.matmul(2.0315 * tf.matmul(gram, gram) - 4.775 * gram, x)
  if rows > columns:
    x = tf.transpose(x)
  return 0.2 * max(rows, columns) ** 0.5 * x


def make_optimizer(
  name: str,
  learning_rate: Union[float, WarmupPolynomialDecay],
  weight_decay: float = 0.01,
  beta_1: float = 0.9,
  beta_2: float = 0.999,
  bias_correction: bool = False,
) -> AlbertOptimizer:
  """Returns the optimizer called `name`, one of `OPTIMIZERS`."""
  check_choice("optimizer", name, OPTIMIZERS)
  return AlbertOptimizer(
    learning_rate,
    beta_1=beta_1,
    beta_2=beta_2,
    weight_decay=weight_decay,
    layer_adaptation=name == "lamb",
    bias_correction=bias_correction,
    orthogonalize=name == "muon",
    name=name,
  )


def optimizer_of(config: TrainConfig) -> AlbertOptimizer:
  """Returns a new optimizer with the learning-rate schedule of a run."""
  schedule = WarmupPolynomialDecay(
    config.learning_rate,
    config.num_train_steps,
    config.num_warmup_steps,
    decay=config.learning_rate_decay,
  )
  return make_optimizer(
    config.optimizer,
    schedule,
    weight_decay=config.weight_decay,
    beta_1=config.beta_1,
    beta_2=config.beta_2,
    bias_correction=config.bias_correction,
  )
