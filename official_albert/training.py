"""The training loop, from top to bottom, and what a task must offer to it.

Everything random is a pure function of (seed, step, replica), and the batch of
a step is a pure function of (seed, examples seen before it); so, on the same
number of devices, a run that is killed and started again computes what the
uninterrupted run would have computed.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Protocol

import tensorflow as tf

from official_albert import (
  checkpoints,
  optimization,
  preemption,
  reporting,
)
from official_albert.train_config import TrainConfig

Batch = Mapping[str, tf.Tensor]
fold_in = tf.random.experimental.stateless_fold_in


class Ratio(NamedTuple):
  """A sum and the weight to divide it by, both <float32>[].

  Ratios add up over micro-batches, replicas and steps; their quotients, which
  is what people read, do not.
  """

  total: tf.Tensor
  weight: tf.Tensor


class Task(Protocol):
  """What the loop knows of an objective.

  Attributes:
    name: for logs.
    tokens_per_example: padded length of one example, for throughput.
    flops_per_example: operations of training on one example.
  """

  name: str
  tokens_per_example: int
  flops_per_example: int

  def build_model(self) -> tf.keras.Model:
    """A model with fresh weights; all its variables exist."""

  def train_dataset(
    self, batch_size: int, start_example: int
  ) -> tf.data.Dataset:
    """Batches without end, as if `start_example` examples had been drawn."""

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Each held-out example once; padded rows carry no weight.

    Every batch has exactly `batch_size` rows, as its static shape says.
    """

  def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
    """The denominator <float32>[] of each objective; needs no model."""

  def forward(
    self, model: tf.keras.Model, batch: Batch, training: bool, dropout_seed
  ) -> tuple[dict[str, tf.Tensor], dict[str, Ratio]]:
    """The sum <float32>[] of each objective, and the metrics."""

  def describe(self) -> dict[str, Any]:
    """What a run's record must say of the data, as JSON values."""


# A run that diverges more often than this needs other settings.
MAX_ROLLBACKS = 3


class Divergence(ValueError):
  """The loss or the gradient is not finite any more."""


def make_train_step(
  task: Task,
  model: tf.keras.Model,
  optimizer: optimization.AlbertOptimizer,
  config: TrainConfig,
):
  """The update: a function from a batch to the step's losses and metrics.

  Deviation: the original clips each replica's gradient before it averages
  them, so its result depends on the number of replicas; here the reduced
  gradient is clipped. It also averages per-replica means; here each
  objective is one division of global sums.

  Deviation: the norm is that of the gradients. On the two reference models
  the original clips by a norm that is 0.3% and 0.4% smaller; see
  tasks/pretraining/model_test.py.

  """
  variables = model.trainable_variables
  micro_batches = config.gradient_accumulation_steps

  def gradients_of(batch: Batch, weights, seed):
    """Gradients of sum_k total_k / weight_k, with totals and metrics."""
    with tf.GradientTape() as tape:
      totals, metrics = task.forward(model, batch, True, seed)
      loss = tf.add_n([totals[name] / weights[name] for name in totals])
    gradients = tape.gradient(loss, variables)
    dense = [
      tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
      for g, v in zip(gradients, variables)
    ]
    return dense, totals, metrics

  def train_step(batch: Batch) -> dict[str, Ratio]:
    replica = tf.distribute.get_replica_context()
    seed = fold_in(tf.constant([config.seed, 0]), optimizer.iterations)
    seed = fold_in(seed, replica.replica_id_in_sync_group)
    # The denominators of the whole update come first: with them, gradients of
    # sums add up to the gradient of the quotient.
    weights = replica.all_reduce("SUM", task.loss_weights(batch))
    if micro_batches == 1:
      accumulated = gradients_of(batch, weights, seed)
    else:
      parts = {name: _split(x, micro_batches) for name, x in batch.items()}

      def part(index):
        micro = {name: x[index] for name, x in parts.items()}
        return gradients_of(micro, weights, fold_in(seed, index))

      accumulated = part(0)
      for index in tf.range(1, micro_batches):
        accumulated = tf.nest.map_structure(
          tf.add, accumulated, part(index), expand_composites=True
        )
    gradients, totals, metrics = replica.all_reduce("SUM", accumulated)
    norm = tf.linalg.global_norm(gradients)
    # A norm that is not finite is reported with the step and ends the run.
    scale = config.clip_norm / tf.maximum(norm, config.clip_norm)
    rate = optimizer.learning_rate(optimizer.iterations)
    optimizer.apply_gradients(
      [(g * scale, v) for g, v in zip(gradients, variables)],
      experimental_aggregate_gradients=False,
    )
    one = tf.ones([])
    return {
      **{f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals},
      **metrics,
      "gradient_norm": Ratio(norm, one),
      "learning_rate": Ratio(rate, one),
    }

  return train_step


def _split(x: tf.Tensor, parts: int) -> tf.Tensor:
  """[B, ...] to [parts, B / parts, ...]."""
  return tf.reshape(x, [parts, x.shape[0] // parts, *x.shape[1:]])


def _add(a: dict[str, Ratio], b: dict[str, Ratio]) -> dict[str, Ratio]:
  return tf.nest.map_structure(tf.add, a, b)


def _quotients(sums: Mapping[str, Ratio]) -> dict[str, float]:
  """What people read: totals over weights, and the sum of the losses."""
  values = {
    name: float(ratio.total) / max(float(ratio.weight), 1e-30)
    for name, ratio in sums.items()
  }
  losses = [v for name, v in values.items() if name.endswith("_loss")]
  return {"loss": sum(losses), **values}


def _run(strategy: tf.distribute.Strategy, step, batch):
  """Runs a step whose results are the same on all replicas: returns one's."""
  results = strategy.run(step, args=(batch,))
  return tf.nest.map_structure(
    lambda x: strategy.experimental_local_results(x)[0], results
  )


def make_train_loop(train_step, strategy: tf.distribute.Strategy, stop):
  """Up to `steps` updates inside one graph, fewer if `stop` becomes true.

  Args:
    train_step: see `make_train_step`.
    strategy: runs it on its devices.
    stop: <bool>[], a variable that is looked at after each update.

  Returns:
    A function of an iterator and `steps` <int32>[] to the sums of the step's
    Ratios and the number of updates <int32>[].
  """

  @tf.function
  def train_loop(iterator, steps):
    def one_step():
      return _run(strategy, train_step, next(iterator))

    sums, done = one_step(), tf.constant(1)
    while done < steps and not stop:
      sums = _add(sums, one_step())
      done += 1
    return sums, done

  return train_loop


def make_evaluation(task: Task, model, strategy: tf.distribute.Strategy):
  """A function from batches to the values of every loss and metric."""
  replicas = strategy.num_replicas_in_sync

  def eval_step(batch: Batch) -> dict[str, Ratio]:
    # Every replica is given the whole batch and takes its rows.
    replica = tf.distribute.get_replica_context()
    index = replica.replica_id_in_sync_group
    batch = {name: _split(x, replicas)[index] for name, x in batch.items()}
    weights = task.loss_weights(batch)
    totals, metrics = task.forward(model, batch, False, None)
    losses = {f"{k}_loss": Ratio(totals[k], weights[k]) for k in totals}
    return replica.all_reduce("SUM", {**losses, **metrics})

  @tf.function
  def run(batch):
    return _run(strategy, eval_step, batch)

  def evaluate(dataset) -> dict[str, float]:
    sums = None
    for batch in dataset:
      part = run(batch)
      sums = part if sums is None else _add(sums, part)
    if sums is None:
      raise ValueError("there is no held-out example to evaluate on.")
    values = _quotients(sums)
    if not math.isfinite(values["loss"]):
      raise Divergence(
        f"the held-out loss is not finite ({_brief(values)}): the model has "
        "diverged, or the held-out data has labels that do not exist."
      )
    return values

  return evaluate


def check_batch_sizes(config: TrainConfig, replicas: int) -> None:
  """Refuses batches that the devices cannot share.

  Raises:
    ValueError: a batch size is no multiple of the parts it is cut into.
  """
  for name, parts in (
    ("train_batch_size", replicas * config.gradient_accumulation_steps),
    ("eval_batch_size", replicas),
  ):
    if getattr(config, name) % parts:
      raise ValueError(
        f"{name} {getattr(config, name)} cannot be cut into {parts} equal "
        "parts for the devices and their micro-batches: choose a multiple."
      )


def train(
  task: Task,
  config: TrainConfig,
  strategy: tf.distribute.Strategy,
  report: reporting.Reporter,
) -> dict[str, float]:
  """Trains to `num_train_steps` and evaluates; resumes if there is a way to.

  Returns:
    The last evaluation's losses and metrics.

  Raises:
    Divergence: a loss or gradient norm is not finite; names the steps.
    Preempted: SIGTERM came; the step under way is finished and saved.
    OSError: a checkpoint could not be written.
    ValueError: the checkpoints in model_dir are of another model.
  """
  # 1. Build.
  replicas = strategy.num_replicas_in_sync
  check_batch_sizes(config, replicas)
  tf.keras.utils.set_random_seed(config.seed)
  with strategy.scope():
    model = task.build_model()
    optimizer = config.make_optimizer()
    optimizer._create_all_weights(model.trainable_variables)
  examples_seen = tf.Variable(0, dtype=tf.int64, name="examples_seen")
  report.note(
    f"{task.name}: {model.count_params():,} parameters, batch "
    f"{config.train_batch_size}, {config.num_train_steps:,} steps"
  )

  # 2. Initialise: own latest checkpoint, else warm start, else scratch.
  manager = checkpoints.Manager(
    config.model_dir,
    config.keep_checkpoint_max,
    model=model,
    optimizer=optimizer,
    examples_seen=examples_seen,
  )
  report.note(manager.initialize(model, config.init_checkpoint))
  _apply_settings(optimizer, config)
  step = int(optimizer.iterations.numpy())
  if step > config.num_train_steps:
    raise ValueError(
      f"{config.model_dir} is at step {step:,} already, beyond "
      f"num_train_steps {config.num_train_steps:,}: ask for more steps, or "
      "choose another model_dir."
    )

  # 3. A look at the held-out data, so that evaluation fails now if it must.
  evaluate = make_evaluation(task, model, strategy)
  eval_data = task.eval_dataset(config.eval_batch_size)
  values = evaluate(eval_data)
  report.evaluation(step, values)

  # 4. Train.
  def batches():
    per_replica = config.train_batch_size // replicas
    return iter(
      strategy.distribute_datasets_from_function(
        lambda context: task.train_dataset(per_replica, int(examples_seen))
      )
    )

  if config.on_divergence == "rollback" and not manager.latest:
    manager.save(step)  # Something to go back to.
  rollbacks, iterator = 0, batches()
  report.start(step, config.num_train_steps, config.train_batch_size, task)
  with preemption.PreemptionWatch() as watch:
    train_step = make_train_step(task, model, optimizer, config)
    train_loop = make_train_loop(train_step, strategy, watch.requested)
    while step < config.num_train_steps:
      wanted = tf.constant(_steps_until_stop(step, config))
      sums, done = train_loop(iterator, wanted)
      trained, steps = _quotients(sums), int(done)
      step += steps
      examples_seen.assign_add(steps * config.train_batch_size)
      if not all(math.isfinite(value) for value in trained.values()):
        message = (
          f"the loss or the gradient norm is not finite between steps "
          f"{step - steps} and {step} ({_brief(trained)})"
        )
        if config.on_divergence == "stop" or rollbacks == MAX_ROLLBACKS:
          raise Divergence(
            f"{message}: lower the learning rate, lengthen the warm-up, or "
            f"go on with --on_divergence=rollback ({rollbacks} tried)."
          )
        rollbacks += 1
        seen = int(examples_seen)
        report.rollback(step, f"{message}; {manager.restore_latest()}")
        _apply_settings(optimizer, config)
        step = int(optimizer.iterations.numpy())
        # The weights are those of an earlier step, the data goes on.
        examples_seen.assign(seen)
        iterator = batches()
        continue
      report.training(step, steps, trained)
      last = step == config.num_train_steps
      preempted = bool(watch.requested)
      if last or preempted or step % config.save_checkpoints_steps == 0:
        with report.pause():
          manager.save(step)
      if preempted and not last:
        message = f"stopped by SIGTERM: step {step:,} is saved"
        report.note(f"{message}, the same command goes on from there.")
        raise preemption.Preempted(message)
      if last or (config.eval_steps and step % config.eval_steps == 0):
        with report.pause():
          values = evaluate(eval_data)
        report.evaluation(step, values)
  report.finish(step)
  return values


def _apply_settings(optimizer, config: TrainConfig) -> None:
  # Keras keeps these in the checkpoint; what the user says now counts.
  for name in ("weight_decay", "beta_1", "beta_2"):
    setattr(optimizer, name, getattr(config, name))


def _steps_until_stop(step: int, config: TrainConfig) -> int:
  """Steps to the next logging, evaluation, checkpoint or end."""
  stops = [config.steps_per_loop, config.save_checkpoints_steps]
  if config.eval_steps:
    stops.append(config.eval_steps)
  return min(
    config.num_train_steps - step, *(every - step % every for every in stops)
  )


def _brief(values: Mapping[str, float]) -> str:
  return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
