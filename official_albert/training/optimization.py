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

Hyperparameters and slots are those of the class LAMB of tensorflow-addons,
which ends with TensorFlow 2.15 and Python 3.11. For later releases, `Lamb` has
the same hyperparameters, slots and names, so either reads the checkpoints of
the other.

Reference: google-research/albert optimization.py, lamb_optimizer.py;
tensorflow-addons 0.23.0, optimizers/lamb.py.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import Any, Callable, Optional, Sequence, Union

import tensorflow as tf

from official_albert import modeling
from official_albert.settings import check_choice, check_number
from official_albert.train_config import OPTIMIZERS, TrainConfig

# Variables with these in their names have neither decay nor trust ratio.
EXCLUDED = ("LayerNorm", "layer_norm", "bias")
# Those of each variable that an update records.
NORM_NAMES = ("weight_norm", "update_norm", "trust_ratio")

# Compiling the update is faster for variables of at least this many elements.
_WORTH_COMPILING = 2**18


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
    # It warns of its end of life at every import; see docs/install.md.
    warnings.simplefilter("ignore")
    from tensorflow_addons.optimizers import LAMB as LambBase
except ImportError:
  LambBase = Lamb


_OLD_NAMES = {"lr": "learning_rate", "weight_decay_rate": "weight_decay"}


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertOptimizer(LambBase):
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
    # The norms of the last update of each variable, also by its copies.
    self._records: dict[str, tf.Variable] = {}
    self._variables: Sequence[tf.Variable] = ()

  def prepare(self, model: tf.keras.Model) -> None:
    """Creates all variables for `model`, which no update can do in a graph.

    Call it in the scope of the strategy. It finds Muon's matrices, which no
    checkpoint has, and lets the updates record their norms.
    """
    encoder = modeling.SharedTransformerEncoder
    parts = [x for x in (model, *model.submodules) if isinstance(x, encoder)]
    variables = [v for part in parts for v in part.trainable_variables]
    self._matrices = {
      copy: variable.shape.rank == 2
      for variable in variables
      for copy in _copies(variable)
    }
    self._create_all_weights(model.trainable_variables)
    self._records = {}
    for variable in model.trainable_variables:
      # Each replica records its own update, which is that of all.
      record = tf.Variable(
        tf.zeros([len(NORM_NAMES)]),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        name="norms",
      )
      self._records |= dict.fromkeys(_copies(variable), record)
    self._variables = model.trainable_variables

  def norms(self) -> dict[str, float]:
    """Returns the norms of the last update, for the log.

    They are the `weight_norm` before the update, the `update_norm` and, for
    LAMB, the mean `trust_ratio` of all variables, and the same for each
    variable as `weight_norm/NAME` and so on. A skipped update (see
    `loss_scale.py`) changes none of them.
    """
    values, rows = {}, []
    for variable in self._variables:
      record = self._records[variable._unique_id]
      row = dict(zip(NORM_NAMES, record.numpy().tolist()))
      if not self._do_layer_adaptation(variable):
        del row["trust_ratio"]
      rows.append(row)
      for name, value in row.items():
        values[f"{name}/{variable.name.split(':')[0]}"] = value
    ratios = [row["trust_ratio"] for row in rows if "trust_ratio" in row]
    if ratios:
      values["trust_ratio"] = sum(ratios) / len(ratios)
    for name in NORM_NAMES[:2]:
      values[name] = math.hypot(*(row[name] for row in rows))
    return values

  def orthogonalizes(self, variable: tf.Variable) -> bool:
    """Returns whether `variable` gets the update of a matrix."""
    if self.orthogonalize and self._matrices is None:
      raise ValueError("muon does not know the model: call prepare first.")
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
    rate, updates = c["lr_t"], [m.assign(new_m), v.assign(new_v)]
    record = self._records.get(var._unique_id)
    adapts = self._do_layer_adaptation(var)
    if adapts or record is not None:
      # Not compiled: XLA's CPU reductions add up element by element.
      norms, ratio = (tf.norm(w), tf.norm(update)), tf.ones([])
      if adapts:
        ratio = tf.where(
          (norms[0] > 0) & (norms[1] > 0),
          norms[0] / tf.where(norms[1] > 0, norms[1], 1.0),
          1.0,
        )
      rate *= ratio
      if record is not None:
        row = tf.stack([norms[0], rate * norms[1], ratio])
        updates.append(record.assign(row))
    return tf.group(*updates, var.assign_sub(rate * update))

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


def _copies(variable: tf.Variable) -> list[str]:
  """Returns the ids of a variable and, with several replicas, its copies.

  Updates see the copies.
  """
  copies = variable, *getattr(variable, "values", ())
  return [copy._unique_id for copy in copies]


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

    `TrainConfig` checks the numbers.
    """
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


def make_optimizer(
  name: str, learning_rate: Union[float, WarmupPolynomialDecay], **options: Any
) -> AlbertOptimizer:
  """Returns the optimizer called `name`, one of `OPTIMIZERS`.

  `options` are further arguments of `AlbertOptimizer`.
  """
  check_choice("optimizer", name, OPTIMIZERS)
  return AlbertOptimizer(
    learning_rate,
    layer_adaptation=name == "lamb",
    orthogonalize=name == "muon",
    name=name,
    **options,
  )


def optimizer_of(config: TrainConfig) -> AlbertOptimizer:
  """Returns a new optimizer with the learning-rate schedule of a run."""
  schedule = WarmupPolynomialDecay(
    config.learning_rate,
    config.num_train_steps,
    config.num_warmup_steps,
    decay=config.learning_rate_decay,
  )
  options = {
    name: getattr(config, name)
    for name in ("weight_decay", "beta_1", "beta_2", "bias_correction")
  }
  return make_optimizer(config.optimizer, schedule, **options)
