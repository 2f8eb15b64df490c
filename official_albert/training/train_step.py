"""One update, and the inner loop of many updates that runs on the devices."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from official_albert import distribution, modeling
from official_albert.modeling import fold_in
from official_albert.train_config import TrainConfig
from official_albert.training import objective, optimization
from official_albert.training.loss_scale import LossScale
from official_albert.training.objective import Batch, Ratio

# The totals and weights of a step, for up to 512 losses and metrics.
_MAX_NUMBERS = 1024


def make_train_step(
  task: objective.Task,
  model: tf.keras.Model,
  optimizer: optimization.AlbertOptimizer,
  config: TrainConfig,
  loss_scale: Optional[LossScale] = None,
  seed: Optional[tf.Variable] = None,
) -> Callable[[Batch], dict[str, Ratio]]:
  """Returns the update: a function from a batch to losses and metrics.

  With a `loss_scale`, an update whose gradient is not finite is skipped. With
  `random_depths`, each update runs at one depth, a function of seed and step
  that is equal on all replicas and in all micro-batches.

  A variable `seed` <int64>[] replaces `config.seed`, so that runs of several
  seeds can share the step.

  Deviation: the original clips each replica's gradient before it averages
  them, so its result depends on the number of replicas. Here the reduced
  gradient is clipped.

  Deviation: the original averages per-replica means. Here each objective is
  the quotient of global sums.

  Deviation: the norm is that of the gradients. On CPUs and GPUs, the original
  gathers token types, and TensorFlow 1 takes the norm of such a gradient over
  one row for each token, before the rows of each type are summed. (On TPUs,
  the original multiplies by one-hot rows, and its norm is the one used here.)
  """
  variables = model.trainable_variables
  micro_batches = config.gradient_accumulation_steps

  def gradients_at(task, batch, weights, seed):
    """Returns gradients of sum_k total_k / weight_k, totals and metrics."""
    with tf.GradientTape() as tape:
      totals, metrics = task.forward(model, batch, True, seed)
      loss = tf.add_n([totals[name] / weights[name] for name in totals])
      if loss_scale:
        loss *= loss_scale.value
    gradients = tape.gradient(loss, variables)
    dense = [
      tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
      for g, v in zip(gradients, variables)
    ]
    return dense, totals, metrics

  compiled = gradients_at
  if config.xla:
    # Without the reduction between replicas, which XLA cannot compile here.
    compiled = tf.function(gradients_at, jit_compile=True, autograph=False)
  tasks = objective.at_depths(task, config.random_depths)

  def train_step(batch: Batch) -> dict[str, Ratio]:
    replica = tf.distribute.get_replica_context()
    run_seed = config.seed if seed is None else tf.identity(seed)
    step_seed = fold_in(tf.stack([run_seed, 0]), optimizer.iterations)
    step_seed = fold_in(step_seed, replica.replica_id_in_sync_group)
    drawn = draw_depth(config, optimizer.iterations, run_seed)
    # TPUs compile the whole step, and compilations cannot be nested.
    on_tpu = isinstance(replica.strategy, tf.distribute.TPUStrategy)
    compute = gradients_at if on_tpu else compiled

    def gradients_of(*arguments):
      if drawn is None:
        return compute(task, *arguments)
      # Runs only the drawn depth.
      return tf.switch_case(
        drawn, [functools.partial(compute, t, *arguments) for t in tasks]
      )

    # Because the denominators are those of the whole update, the gradients of
    # the parts sum to the gradient of the quotient.
    weights = replica.all_reduce("SUM", task.loss_weights(batch))
    if micro_batches == 1:
      accumulated = gradients_of(batch, weights, step_seed)
    else:
      parts = {name: split(x, micro_batches) for name, x in batch.items()}

      structure: list[Any] = []  # Set when the body is traced, once.

      def add_part(index, gradients, sums):
        micro = {name: x[index] for name, x in parts.items()}
        more, *results = gradients_of(micro, weights, fold_in(step_seed, index))
        structure[:] = results
        gradients = tf.nest.map_structure(tf.add, gradients, more)
        return index + 1, gradients, sums + _packed(results)

      _, gradients, sums = tf.while_loop(
        lambda index, *unused: index < micro_batches,
        add_part,
        (
          tf.constant(0),
          [tf.zeros_like(variable) for variable in variables],
          tf.zeros([_MAX_NUMBERS]),
        ),
      )
      accumulated = (gradients, *_unpacked(sums, structure))
    gradients, totals, metrics = replica.all_reduce("SUM", accumulated)
    if loss_scale:
      gradients = [g / loss_scale.value for g in gradients]
    norm = tf.linalg.global_norm(gradients)
    # The loop stops the run if the norm is not finite.
    scale = config.clip_norm / tf.maximum(norm, config.clip_norm)
    rate = optimizer.learning_rate(optimizer.iterations)
    updates = [(g * scale, v) for g, v in zip(gradients, variables)]
    one = tf.ones([])
    results = {
      **{f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals},
      **metrics,
      "gradient_norm": Ratio(norm, one),
    }
    if loss_scale:
      results = loss_scale.apply_if_finite(optimizer, updates, norm, results)
    else:
      optimizer.apply_gradients(updates, experimental_aggregate_gradients=False)
    return {**results, "learning_rate": Ratio(rate, one)}

  if config.compile_chains or config.xla:
    distribution.start_compiler()
  return modeling.computed_as(config)(train_step)


def draw_depth(
  config: TrainConfig, step: tf.Tensor, seed: tf.Tensor
) -> Optional[tf.Tensor]:
  """Returns the index of the step's depth <int32>[]; None without depths."""
  count = len(config.random_depths)
  if not count:
    return None
  seed = fold_in(tf.stack([seed, 1]), step)
  return tf.random.stateless_uniform([], seed, maxval=count, dtype=tf.int32)


def make_train_loop(
  train_step: Callable[..., Any],
  strategy: tf.distribute.Strategy,
  stop: distribution.SharedFlag,
) -> Any:
  """Returns a function that runs several updates in one graph.

  The graph contains the step once. TensorFlow may compile two copies of the
  step differently, so the last bits would depend on where a loop begins.

  The loop ends after the update in which `stop` is set.

  Returns:
    A function from an iterator and the number of updates <int32>[] to the sums
    of the step's Ratios, and the number of completed updates <int32>[] (at
    least 1).
  """

  # AutoGraph would convert the whole model, which takes seconds.
  @tf.function(autograph=False)
  def train_loop(iterator, steps):
    structure = {}  # The results of a step, set when the body is traced.

    def condition(done, sums):
      del sums
      return (done < steps) & ((done == 0) | ~stop.value)

    def one_step(done, sums):
      structure.update(run_step(strategy, train_step, next(iterator)))
      stop.share()
      return done + 1, sums + _packed(structure)

    done, sums = tf.while_loop(
      condition, one_step, (tf.constant(0), tf.zeros([_MAX_NUMBERS]))
    )
    return _unpacked(sums, structure), done

  return train_loop


def _packed(numbers: Any) -> tf.Tensor:
  """Returns a structure of <float32>[] as a vector of constant size.

  A loop in a graph needs the size before the structure is known.
  """
  flat = tf.nest.flatten(numbers)
  return tf.pad(tf.stack(flat), [[0, _MAX_NUMBERS - len(flat)]])


def _unpacked(vector: tf.Tensor, structure: Any) -> Any:
  """Returns the result of `_packed` in the given structure."""
  numbers = tf.unstack(vector)[: len(tf.nest.flatten(structure))]
  return tf.nest.pack_sequence_as(structure, numbers)


def split(x: tf.Tensor, parts: int) -> tf.Tensor:
  """Reshapes [B, ...] to [parts, B / parts, ...]; only B must be static."""
  rows = [parts, x.shape[0] // parts]
  return tf.reshape(x, tf.concat([rows, tf.shape(x)[1:]], axis=0))


def run_step(
  strategy: tf.distribute.Strategy, step: Callable[..., Any], batch: Batch
) -> Any:
  """Runs a step whose results are equal on all replicas; returns one copy."""
  results = strategy.run(step, args=(batch,))
  return tf.nest.map_structure(
    lambda x: strategy.experimental_local_results(x)[0], results
  )
