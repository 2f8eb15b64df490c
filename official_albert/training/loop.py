"""The training loop, from top to bottom.

Everything random is a pure function of (seed, step, replica), and the batch of
a step is a pure function of (seed, examples seen before it); so, on the same
number of devices, a run that is killed and started again computes what the
uninterrupted run would have computed.
"""

from __future__ import annotations

import math
import signal
from typing import Callable, Sequence

import tensorflow as tf

from official_albert import distribution
from official_albert.training import (
  best_checkpoint,
  evaluation,
  loss_scale,
  objective,
  optimization,
  preemption,
  reporting,
  train_step,
)
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training.train_config import (
  TrainConfig,
  parse_profile_steps,
)

# A run that diverges more often than this needs other settings.
MAX_ROLLBACKS = 3


def check_batch_sizes(config: TrainConfig, replicas: int) -> None:
  """Refuses batches that the devices cannot share.

  Raises:
    ValueError: a batch size is no multiple of the parts it is cut into.
  """
  for index in range(len(config.phase_ends)):
    phase = config.in_phase(index)
    for name, parts in (
      ("train_batch_size", replicas * phase.gradient_accumulation_steps),
      ("eval_batch_size", replicas),
    ):
      if getattr(phase, name) % parts:
        raise ValueError(
          f"{name} {getattr(phase, name)} cannot be cut into {parts} equal "
          "parts for the devices and their micro-batches: choose a multiple."
        )


def is_finished(config: TrainConfig) -> bool:
  """Whether the run in `config.model_dir` has no step left to train."""
  step = checkpoints.newest_step(config.model_dir)
  best = best_checkpoint.BestCheckpoint(
    config.model_dir, tf.Module(), config.best_metric, config.best_is
  )
  return step >= config.num_train_steps or bool(
    step and _vain_evaluations(best, step, config)
  )


def _vain_evaluations(
  best: best_checkpoint.BestCheckpoint, step: int, config: TrainConfig
) -> int:
  """How many evaluations without a better one end the run at `step`; or 0."""
  if not config.early_stopping_evaluations:
    return 0
  vain = best.evaluations_since(step, config.eval_steps)
  return vain if vain >= config.early_stopping_evaluations else 0


def train(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  strategy: tf.distribute.Strategy,
  report: reporting.Reporter,
  before_first_step: Callable[[], None] = lambda: None,
) -> dict[str, float]:
  """Trains to `num_train_steps` and evaluates; resumes if there is a way to.

  It may end before, as `early_stopping_evaluations` says.

  Args:
    tasks: one for each phase of `config`, all with the same model.
    config: the settings.
    strategy: the devices.
    report: is told of the progress.
    before_first_step: called once, on every worker, when it is certain that
      a step will be trained; not at all if none is left.

  Returns:
    The last evaluation's losses and metrics.

  Raises:
    Divergence: a loss or gradient norm is not finite; names the steps.
    Preempted: SIGTERM or Ctrl-C came; the step under way is finished and
      saved.
    OSError: a checkpoint could not be written.
    ValueError: the checkpoints in model_dir are of another model, or there
      is no held-out data.
  """
  if len(tasks) != len(config.phase_ends):
    raise ValueError(
      f"there are {len(config.phase_ends)} phases, but data for {len(tasks)}."
    )
  # 1. Build.
  replicas = strategy.num_replicas_in_sync
  check_batch_sizes(config, replicas)
  tf.keras.utils.set_random_seed(config.seed)
  with strategy.scope():
    model = tasks[0].build_model()
    optimizer = config.make_optimizer()
    optimizer.set_rate_multipliers(
      optimization.rate_multipliers(model, config.layerwise_lr_decay)
    )
    optimizer._create_all_weights(model.trainable_variables)
    scale = loss_scale.make_loss_scale(model)
  # Of the data under way.
  examples_seen = tf.Variable(0, dtype=tf.int64, name="examples_seen")
  # Of all phases at once: a later one's data must not fail days from now.
  eval_data = [task.eval_dataset(config.eval_batch_size) for task in tasks]
  evaluations = [
    evaluation.make_evaluation(task, model, strategy) for task in tasks
  ]
  for line in reporting.describe_plan(
    tasks, config, model.count_params(), strategy
  ):
    report.note(line)

  # 2. Initialise: own latest checkpoint, else warm start, else scratch.
  manager = checkpoints.make_manager(
    strategy,
    config.model_dir,
    config.keep_checkpoint_max,
    model=model,
    optimizer=optimizer,
    examples_seen=examples_seen,
    **({"loss_scale": scale} if scale else {}),
  )
  best = best_checkpoint.BestCheckpoint(
    config.model_dir, model, config.best_metric, config.best_is
  )
  # Of a fine-tuning task: what the rows of a stored head have to stand for.
  head = getattr(tasks[0], "head", None)
  report.note(manager.initialize(model, config.init_checkpoint, head))
  is_chief = distribution.is_chief(strategy)
  if is_chief and not manager.latest:
    best.clear()
  _apply_settings(optimizer, config)
  step = int(optimizer.iterations.numpy())
  if step > config.num_train_steps:
    raise ValueError(
      f"{config.model_dir} is at step {step:,} already, beyond "
      f"num_train_steps {config.num_train_steps:,}: ask for more steps, or "
      "choose another model_dir."
    )
  if step == config.num_train_steps:
    report.note(f"the run is finished: step {step:,} was its last")

  def stopped_by_signal() -> preemption.Preempted:
    message = f"stopped by {watch.request} before the first step"
    if step:
      message = f"stopped by {watch.request}: step {step:,} is saved"
    report.note(f"{message}; the same command resumes the run.")
    return preemption.Preempted(message, watch.signal_number or signal.SIGTERM)

  def stop_if_asked() -> None:
    """Between steps or held-out batches, without waiting for the next step."""
    # Several workers only agree to stop after a step.
    if watch.signal_number and distribution.num_workers(strategy) == 1:
      if step != checkpoints.newest_step(config.model_dir):
        manager.save(step)
      raise stopped_by_signal()

  def evaluate(index: int) -> dict[str, float]:
    values = evaluations[index](eval_data[index], stop_if_asked)
    best.check(values)
    report.evaluation(step, values, **config.labels(index))
    if is_chief and config.keeps_best_of(step, index):
      best.offer(step, index + 1, values)
    return values

  def stops_early() -> bool:
    if not config.early_stopping_evaluations:
      return False
    # Of the files that the chief alone writes.
    vain = _vain_evaluations(best, step, config) if is_chief else 0
    vain = distribution.from_chief(strategy, vain)
    if is_chief and vain:
      report.note(f"{best.no_better(vain)}: stopped")
    return bool(vain)

  def batches():
    per_replica = settings.train_batch_size // replicas
    return distribution.iterate(
      strategy,
      lambda context: task.train_dataset(
        per_replica, int(examples_seen), context
      ),
    )

  # 3. Train, phase after phase.
  phase, rollbacks, stopped, begun = None, 0, False, False
  host = distribution.host_of(strategy)
  report.schedule(optimizer.learning_rate)
  norms = optimization.make_update_norms(optimizer, model.trainable_variables)
  profiler = reporting.StepProfiler(
    config.model_dir,
    parse_profile_steps(config.profile_steps, config.num_train_steps),
  )
  with preemption.PreemptionWatch(host) as watch, profiler:
    stop = distribution.SharedFlag(strategy, watch.requested)
    while phase is None or (step < config.num_train_steps and not stopped):
      stop_if_asked()
      if phase != config.phase_after(step):
        phase = config.phase_after(step)
        task, settings = tasks[phase], config.in_phase(phase)
        if len(tasks) > 1:
          depth = config.phases[phase].num_layers
          report.note(
            f"phase {phase + 1} of {len(tasks)}: to step "
            f"{config.phase_ends[phase]:,}, "
            + (f"depth {depth}, " if depth else "")
            + f"batch {settings.train_batch_size}, "
            f"{task.tokens_per_example} tokens an example"
          )
        # A look at the held-out data, so that evaluation fails now if it must.
        for index in config.phases_at(step):
          values = evaluate(index)
        if config.begins_data(step):
          examples_seen.assign(0)
        if config.on_divergence == "rollback" and not manager.latest:
          manager.save(step)  # Something to go back to.
        train_loop = train_step.make_train_loop(
          train_step.make_train_step(task, model, optimizer, settings, scale),
          strategy,
          stop,
        )
        iterator = batches()
        report.start(
          step,
          config.num_train_steps,
          settings.train_batch_size,
          task,
          extra_steps=_extra_steps(tasks, config, phase),
          flops_per_example=objective.training_flops(
            task, config.random_depths
          ),
        )
        # It had stopped, or was killed just before it would have.
        stopped = step < config.num_train_steps and stops_early()
        continue
      if not begun:
        before_first_step()
        begun = True
      wanted = min(
        _steps_until_stop(step, config), profiler.steps_until_stop(step)
      )
      with profiler.watch(step, wanted):
        sums, done, waited = train_loop(iterator, tf.constant(wanted))
        read = scale.read if scale else objective.quotients
        trained, steps = read(sums), int(done)
      step += steps
      examples_seen.assign_add(steps * settings.train_batch_size)
      if _diverged(trained):
        message = (
          f"the loss or the gradient norm is not finite between steps "
          f"{step - steps} and {step} ({objective.brief(trained)})"
        )
        if config.on_divergence == "stop" or rollbacks == MAX_ROLLBACKS:
          report.finish(step - steps, config.best_metric, config.best_is)
          raise objective.Divergence(
            f"{message}: go on with --on_divergence=rollback ({rollbacks} "
            "tried), or lower the learning rate or lengthen the warm-up, in "
            "another folder or with --allow_changed_settings."
          )
        rollbacks += 1
        seen = int(examples_seen)
        restored = manager.restore_latest()
        _apply_settings(optimizer, config)
        bad_step, step = step, int(optimizer.iterations.numpy())
        report.rollback(bad_step, step, f"{message}; {restored}")
        if config.phase_after(step) == phase:
          # The weights are those of an earlier step, the data goes on.
          examples_seen.assign(seen)
          iterator = batches()
        continue
      waited = None if waited is None else float(waited)
      report.training(step, steps, trained, norms(), waited)
      last = step == config.num_train_steps
      ends = step in config.phase_ends
      preempted = bool(stop.value)
      saves = ends or preempted or step % config.save_checkpoints_steps == 0
      if saves:
        with report.pause():
          manager.save(step)
      if preempted:
        raise stopped_by_signal()
      # At the end of a phase, the next one begins with both evaluations.
      scheduled = config.eval_steps and step % config.eval_steps == 0
      if last or (scheduled and not ends):
        with report.pause():
          values = evaluate(phase)
        stopped = not last and stops_early()
        if stopped and not saves:
          manager.save(step)  # Started again, the run finds that it is over.
  report.finish(step, config.best_metric, config.best_is)
  distribution.barrier(strategy)  # None leaves while another still writes.
  if watch.signal_number:  # It came after the last batch.
    raise stopped_by_signal()
  return values


def _diverged(values) -> bool:
  # A loss scale below 1 has been halved many times in a row, and in vain.
  finite = all(math.isfinite(value) for value in values.values())
  return not finite or values.get("loss_scale", 1.0) < 1.0


def _apply_settings(optimizer, config: TrainConfig) -> None:
  # Keras keeps these in the checkpoint; what the user says now counts.
  for name in ("weight_decay", "beta_1", "beta_2"):
    setattr(optimizer, name, getattr(config, name))


def _extra_steps(tasks, config: TrainConfig, phase: int) -> float:
  """How many steps of `phase` later phases cost beyond their own number."""

  def cost(index: int) -> float:
    batch_size = config.in_phase(index).train_batch_size
    return batch_size * objective.training_flops(
      tasks[index], config.random_depths
    )

  return sum(
    config.phases[index].steps * (cost(index) / cost(phase) - 1)
    for index in range(phase + 1, len(tasks))
  )


def _steps_until_stop(step: int, config: TrainConfig) -> int:
  """Steps to the next logging, evaluation, checkpoint or end of a phase."""
  stops = [config.steps_per_loop, config.save_checkpoints_steps]
  if config.eval_steps:
    stops.append(config.eval_steps)
  return min(
    config.phase_ends[config.phase_after(step)] - step,
    *(every - step % every for every in stops),
  )
