"""LAMB, AdamW and Muon in one optimizer, and the learning-rate schedules.

LAMB and AdamW update a weight w with gradient g by

    m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
    u = m / (sqrt(v) + eps) + decay * w        w = w - lr * r * u

where the trust ratio r is 1 for AdamW and ||w|| / ||u|| for LAMB (arXiv
1904.00962). As in the original, m and v have no bias correction by default, and
LayerNorm and bias variables have neither decay nor trust ratio. Adapters have
no trust ratio: B begins as zeros, whose norm would keep the updates near zero.

Muon is AdamW, but for the matrices of the encoder it replaces m / (sqrt(v) +
eps) by `orthogonal_direction(m)`, in which all directions of the matrix have
equal size. v is kept, but not used for them.

Hyperparameters and slots are those of Keras' Adam and a `weight_decay`. So the
keys of checkpoints are those of the class LAMB of tensorflow-addons.

Reference: google-research/albert optimization.py, lamb_optimizer.py.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Optional, Sequence, Union

import tensorflow as tf

from official_albert import modeling
from official_albert.settings import check_number
from official_albert.train_config import TrainConfig

# Those of each variable that an update records.
NORM_NAMES = ("weight_norm", "update_norm", "trust_ratio")


class AlbertOptimizer(tf.keras.optimizers.legacy.Adam):
  """The base of `LAMB`, `AdamW` and `Muon`, which choose the update."""

  layer_adaptation = False
  orthogonalize = False

  def __init__(
    self,
    learning_rate: Union[float, Callable],
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    bias_correction: bool = True,
    name: str = "",
    **clipping: float,
  ):
    """Creates the optimizer.

    Args (the others are those of Keras' Adam):
      weight_decay: the factor of the weights in the update. LayerNorm and bias
        variables are not decayed.
      epsilon: is added to the root of the second moment.
      bias_correction: whether the moments are corrected for their start at 0.
        Without, as in google-research/albert, the first updates of AdamW are up
        to 6.6 times as large, and the rate needs a warm-up.
      **clipping: clipnorm, clipvalue or global_clipnorm of Keras.

    Raises:
      ValueError: a number is not finite or out of range.
    """
    if not (callable(learning_rate) or tf.is_tensor(learning_rate)):
      check_number("learning_rate", learning_rate, least=0)
    check_number("beta_1", beta_1, least=0, below=1)
    check_number("beta_2", beta_2, least=0, below=1)
    # A smaller one would be 0 in float32, and 0 / 0 is not a number.
    check_number("epsilon", epsilon, least=1e-37)
    check_number("weight_decay", weight_decay, least=0)
    for key, value in clipping.items():
      if key not in ("clipnorm", "clipvalue", "global_clipnorm"):
        raise TypeError(f"an optimizer has no argument {key!r}.")
      check_number(key, value, above=0)
    name = name or type(self).__name__
    super().__init__(
      learning_rate, beta_1, beta_2, epsilon, name=name, **clipping
    )
    self._set_hyper("weight_decay", weight_decay)
    self.bias_correction = bias_correction
    # The ids of Muon's matrices and of their copies.
    self._matrices: Optional[set[str]] = None
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
    self._matrices = {
      copy
      for part in parts
      for variable in part.trainable_variables
      for copy in (_copies(variable) if variable.shape.rank == 2 else ())
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
      if not self._adapts(variable):
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
    if not self.orthogonalize:
      return False
    if self._matrices is None:
      raise ValueError("Muon does not know the model: call prepare first.")
    return variable._unique_id in self._matrices

  def _adapts(self, variable: tf.Variable) -> bool:
    """Returns whether `variable` has a trust ratio."""
    is_adapter = "adapters/" in variable.name
    return self.layer_adaptation and not (is_adapter or _is_excluded(variable))

  def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
    for variable in var_list:
      if variable.dtype.size < 4:
        raise ValueError(
          f"{variable.name} is {variable.dtype.name}, which rounds updates "
          f"away: give the model dtype='mixed_{variable.dtype.name}'."
        )
    super()._create_slots(var_list)

  def _resource_apply_dense(self, grad, var, apply_state=None):
    key = var.device, var.dtype.base_dtype
    c = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
    m, v = (self.get_slot(var, name) for name in "mv")
    w = tf.convert_to_tensor(var)
    decay = c["weight_decay"] * float(not _is_excluded(var))
    new_m = c["beta_1_t"] * m + (1.0 - c["beta_1_t"]) * grad
    new_v = c["beta_2_t"] * v + (1.0 - c["beta_2_t"]) * grad * grad
    if self.orthogonalizes(var):
      update = orthogonal_direction(new_m)
    else:
      root = tf.sqrt(new_v / (1.0 - c["beta_2_power"])) + c["epsilon"]
      update = new_m / (1.0 - c["beta_1_power"]) / root
    update += decay * w
    norms, ratio = (tf.norm(w), tf.norm(update)), tf.ones([])
    if self._adapts(var):
      ratio = tf.where(
        (norms[0] > 0) & (norms[1] > 0),
        norms[0] / tf.where(norms[1] > 0, norms[1], 1.0),
        1.0,
      )
    rate, updates = c["lr_t"] * ratio, [m.assign(new_m), v.assign(new_v)]
    if var._unique_id in self._records:
      row = tf.stack([norms[0], rate * norms[1], ratio])
      updates.append(self._records[var._unique_id].assign(row))
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
    coefficients = apply_state[(var_device, var_dtype)]
    coefficients["weight_decay"] = self._get_hyper("weight_decay", var_dtype)
    if not self.bias_correction:
      # m and v are divided by 1 - beta_power, which is 1 for a power of 0.
      zero = tf.zeros([], var_dtype)
      coefficients.update(beta_1_power=zero, beta_2_power=zero)

  def get_config(self) -> dict[str, Any]:
    config = super().get_config()
    del config["amsgrad"], config["decay"]  # Of Keras' Adam only.
    config["weight_decay"] = self._serialize_hyperparameter("weight_decay")
    config["bias_correction"] = self.bias_correction
    return config


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AdamW(AlbertOptimizer):
  """AdamW for Keras: Adam with decoupled weight decay (arXiv 1711.05101).

  >>> import tensorflow as tf
  >>> from official_albert import AdamW
  >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  >>> model.compile(optimizer=AdamW(3e-4), loss="mse")

  A `.keras` file has the settings, but no moments, so a loaded model continues
  its training with new ones. `.h5` files and `tf.train.Checkpoint` hold them.
  """


@tf.keras.utils.register_keras_serializable(package="official_albert")
class LAMB(AlbertOptimizer):
  """LAMB for Keras: `AdamW` with trust ratios (arXiv 1904.00962).

  >>> import tensorflow as tf
  >>> from official_albert import LAMB
  >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
  >>> model.compile(optimizer=LAMB(1e-3), loss="mse")

  The update of each variable is scaled by the norm of the variable, for large
  batches. About files, see `AdamW`.
  """

  layer_adaptation = True


class Muon(AlbertOptimizer):
  """Muon, for which `prepare` has to find the matrices of the model."""

  orthogonalize = True


def _is_excluded(variable: tf.Variable) -> bool:
  """Returns whether `variable` has neither decay nor trust ratio."""
  return any(x in variable.name for x in ("LayerNorm", "layer_norm", "bias"))


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
@dataclasses.dataclass(frozen=True)
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

  learning_rate: float
  num_train_steps: int
  num_warmup_steps: int
  decay: str = "original"  # One of `DECAYS`.

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
    return dataclasses.asdict(self)


def optimizer_of(config: TrainConfig) -> AlbertOptimizer:
  """Returns a new optimizer with the learning-rate schedule of a run."""
  schedule = WarmupPolynomialDecay(
    config.learning_rate,
    config.num_train_steps,
    config.num_warmup_steps,
    decay=config.learning_rate_decay,
  )
  kind = {"lamb": LAMB, "adamw": AdamW, "muon": Muon}[config.optimizer]
  return kind(
    schedule,
    config.weight_decay,
    config.beta_1,
    config.beta_2,
    bias_correction=config.bias_correction,
    name=config.optimizer,
  )
