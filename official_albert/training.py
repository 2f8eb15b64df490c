"""The training loop, from top to bottom.

Everything random is a pure function of (seed, step, replica), and the batch of
a step is a pure function of (seed, examples seen before it); so, on the same
number of devices, a run that is killed and started again computes what the
uninterrupted run would have computed.
"""

from __future__ import annotations

import math

import tensorflow as tf

from official_albert import (
  distribution,
  evaluation,
  multi_worker,
  objective,
  preemption,
  reporting,
  shared_checkpoints,
  train_step,
)
from official_albert.train_config import TrainConfig

# A run that diverges more often than this needs other settings.
MAX_ROLLBACKS = 3


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
  task: objective.Task,
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
  manager = shared_checkpoints.make_manager(
    strategy,
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
  evaluate = evaluation.make_evaluation(task, model, strategy)
  eval_data = task.eval_dataset(config.eval_batch_size)
  values = evaluate(eval_data)
  report.evaluation(step, values)

  # 4. Train.
  def batches():
    per_replica = config.train_batch_size // replicas
    return iter(
      strategy.distribute_datasets_from_function(
        lambda context: task.train_dataset(
          per_replica, int(examples_seen), context
        )
      )
    )

  if config.on_divergence == "rollback" and not manager.latest:
    manager.save(step)  # Something to go back to.
  rollbacks, iterator = 0, batches()
  report.start(step, config.num_train_steps, config.train_batch_size, task)
  with preemption.PreemptionWatch(distribution.host_of(strategy)) as watch:
    stop = multi_worker.SharedFlag(strategy, watch.requested)
    train_loop = train_step.make_train_loop(
      train_step.make_train_step(task, model, optimizer, config),
      strategy,
      stop,
    )
    while step < config.num_train_steps:
      wanted = tf.constant(_steps_until_stop(step, config))
      sums, done = train_loop(iterator, wanted)
      trained, steps = objective.quotients(sums), int(done)
      step += steps
      examples_seen.assign_add(steps * config.train_batch_size)
      if not all(math.isfinite(value) for value in trained.values()):
        message = (
          f"the loss or the gradient norm is not finite between steps "
          f"{step - steps} and {step} ({objective.brief(trained)})"
        )
        if config.on_divergence == "stop" or rollbacks == MAX_ROLLBACKS:
          raise objective.Divergence(
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
      preempted = bool(stop.value)
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
  multi_worker.barrier(strategy)  # None leaves while another still writes.
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
