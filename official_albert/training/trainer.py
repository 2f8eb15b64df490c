"""The training loop: build, restore, evaluate, train, save, stop.

Everything random is a pure function of (seed, step, replica), and the batch of
a step is a pure function of (seed, examples seen before it). Therefore, on the
same number of devices, a killed and restarted run equals the uninterrupted run
to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Callable, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import distribution, modeling, runs
from official_albert.train_config import TrainConfig
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training import (
  evaluation,
  loss_scale,
  objective,
  optimization,
  preemption,
  reporting,
  train_step,
)


class Trainer:
  """Trains a model in the folder of a run, or resumes the run there.

      with training.open_report(config.model_dir, strategy) as report:
        values = training.Trainer(tasks, config, strategy, report).run()

  `reset` prepares a run with another seed. It computes the same as with a
  trainer of its own, but TensorFlow neither traces nor compiles again.

  Attributes:
    model: the model.
    optimizer: its optimizer.
    step: the number of updates so far.
    phase: the index of the current phase; None before the first.
    values: the losses and metrics of the last evaluation.
  """

  def __init__(
    self,
    tasks: Sequence[objective.Task],
    config: TrainConfig,
    strategy: tf.distribute.Strategy,
    report: reporting.Reporter,
    record: Optional[runs.Start] = None,
  ):
    """Builds the model and its optimizer, and opens the held-out data.

    Args:
      tasks: one for each phase of `config`, all with the same model.
      config: the settings.
      strategy: the devices.
      report: the logs of the run.
      record: what the chief compares with the record in the run's folder, and
        writes there right before the first step; None for no record.

    Raises:
      ValueError: the record differs in what shapes the run (see `runs.Start`),
        the devices cannot share a batch, or there is no held-out data.
    """
    self._strategy, self._is_chief = strategy, distribution.is_chief(strategy)
    self._start(tasks, config, report, record)
    report.note("building the model ...")
    tf.keras.utils.set_random_seed(config.seed)
    # All variables are created here, because an update cannot create any.
    with strategy.scope():
      self.model = _build(tasks[0], config)
      self.optimizer = optimization.optimizer_of(config)
      self.optimizer.prepare(self.model)
      is_float16 = self.model.compute_dtype == "float16"
      self._loss_scale = loss_scale.LossScale() if is_float16 else None
      self._seed = tf.Variable(
        config.seed, dtype=tf.int64, trainable=False, name="seed"
      )
    # Counts the examples of the current phase's data.
    self._examples_seen = tf.Variable(0, dtype=tf.int64, name="examples_seen")
    # Built for all phases, so missing data of a later phase fails now.
    self._eval_data = [t.eval_dataset(config.eval_batch_size) for t in tasks]
    self._evaluations = [
      evaluation.Evaluation(task, self.model, strategy, config)
      for task in tasks
    ]
    self._watch = preemption.PreemptionWatch(distribution.host_of(strategy))
    self._stop = distribution.SharedFlag(strategy, self._watch.requested)
    if config.profiler_port:
      tf.profiler.experimental.server.start(config.profiler_port)
    # The inner loop of each phase; see `train_step.make_train_loop`.
    self._train_loops: dict[int, Callable] = {}

  def reset(
    self,
    tasks: Sequence[objective.Task],
    config: TrainConfig,
    report: reporting.Reporter,
    record: Optional[runs.Start] = None,
  ) -> None:
    """Prepares a run that differs in the seed and the folder only.

    All variables get their initial values for the seed. Predictions are scored
    by the run's own tasks. For the arguments see `__init__`.

    Raises:
      ValueError: settings, tasks or model are not those of the first run.
    """
    tf.keras.utils.set_random_seed(config.seed)
    with self._strategy.scope():
      fresh = _build(tasks[0], config)
    before = _common(self._tasks, self._config, self.model)
    if before != _common(tasks, config, fresh):
      raise ValueError(
        "runs of one trainer may differ in seed and model_dir only: create "
        "another trainer for other settings, another task, model or data."
      )
    self._start(tasks, config, report, record)
    for variable, value in zip(self.model.variables, fresh.variables):
      variable.assign(tf.convert_to_tensor(value))
    for variable in self.optimizer.variables():
      variable.assign(tf.zeros(variable.shape, variable.dtype))
    if self._loss_scale:
      self._loss_scale.reset()
    self._seed.assign(config.seed)
    self._examples_seen.assign(0)

  def _start(
    self,
    tasks: Sequence[objective.Task],
    config: TrainConfig,
    report: reporting.Reporter,
    record: Optional[runs.Start],
  ) -> None:
    """Checks the arguments, and sets what each run has of its own."""
    if len(tasks) != len(config.phase_ends):
      raise ValueError(
        f"there are {len(config.phase_ends)} phases, but data for {len(tasks)}."
      )
    check_batch_size("eval_batch_size", config.eval_batch_size, self._strategy)
    for phase in map(config.in_phase, range(len(tasks))):
      check_batch_size(
        "train_batch_size",
        phase.train_batch_size,
        self._strategy,
        phase.gradient_accumulation_steps,
      )
    if record and self._is_chief:
      for change in record.check(config.model_dir):
        report.note(f"warning: {change}; the resumed run is not the same run.")
    self._tasks, self._config, self._report = tasks, config, report
    self._record, self._plan = record, reporting.Plan(tasks, config)
    self.step = 0
    self.phase: Optional[int] = None
    self.values: objective.Values = {}
    self._stopped_early = False

  def run(self) -> objective.Values:
    """Trains to `num_train_steps` and evaluates; resumes from `model_dir`.

    It may end earlier because of `early_stopping_evaluations`.

    Returns:
      The losses and metrics of the last evaluation.

    Raises:
      Divergence: a loss or gradient norm is not finite; names the steps.
      SystemExit: a SIGTERM or Ctrl-C arrived; the current step is finished and
        saved. The exit code is 128 plus the number of the signal.
      OSError: a checkpoint could not be written.
      ValueError: the checkpoints in model_dir belong to another model, or there
        is no held-out data.
    """
    parameters = self.model.count_params()
    for line in self._plan.describe(parameters, self._strategy):
      self._report.note(line)
    self._restore()
    with self._watch:
      self._begin_phase()
      if self._record and self._is_chief and not self.is_over:
        self._record.write(self._config.model_dir)
      while not self.is_over:
        self._stop_if_requested()
        if self.phase != self._config.phase_after(self.step):
          self._begin_phase()
          continue
        self._update()
        self._save_and_evaluate()
    self._sum_up(self.step)
    # No worker exits while another one still writes.
    distribution.barrier(self._strategy)
    self._stop_if_requested()  # After the last batch.
    return self.values

  def predict(
    self, dataset: tf.data.Dataset, is_labeled: bool = False
  ) -> dict[str, np.ndarray]:
    """Predicts with the model's weights, see `Evaluation.predict`."""
    return self._evaluations[-1].predict(dataset, is_labeled)

  def _restore(self) -> None:
    """Restores the latest checkpoint of the run, else --init_checkpoint."""
    config, model = self._config, self.model
    trackables = {
      "model": model,
      "optimizer": self.optimizer,
      "examples_seen": self._examples_seen,
    }
    if self._loss_scale:
      trackables["loss_scale"] = self._loss_scale
    self._checkpoints = checkpoints.CheckpointManager(
      config.model_dir, config.keep_checkpoint_max, self._strategy, **trackables
    )
    self._best = checkpoints.BestCheckpoint(config, model)
    message = self._checkpoints.restore_latest()
    if message:
      self._report.note(message)
    elif config.init_checkpoint:
      path = config.init_checkpoint
      report = self._tasks[0].warm_start(model, path)
      self._report.note(f"warm start from {path}: {report}")
    else:
      self._report.note("initializing the weights from scratch ...")
      with self._strategy.scope():
        self._tasks[0].begin(model)
    if self._is_chief and not self._checkpoints.latest:
      self._best.clear()
    # Keras stores these in the checkpoint, but the current settings apply.
    for name in ("weight_decay", "beta_1", "beta_2"):
      setattr(self.optimizer, name, getattr(config, name))
    self.step = self._first_step = int(self.optimizer.iterations.numpy())
    if self.is_over:
      self._report.note(f"the run is finished: step {self.step:,} was its last")

  @property
  def is_over(self) -> bool:
    """Whether no step is left to train."""
    return self.step >= self._config.num_train_steps or self._stopped_early

  def _begin_phase(self) -> None:
    """Evaluates, and prepares data and training step of the current phase."""
    config, tasks = self._config, self._tasks
    self.phase = config.phase_after(self.step)
    self._task, self._settings = tasks[self.phase], config.in_phase(self.phase)
    if len(tasks) > 1:
      self._report.note(
        f"phase {self.phase + 1} of {len(tasks)}: to step "
        f"{config.phase_ends[self.phase]:,}"
      )
    # At a boundary, evaluate on the held-out data of both phases. At the start,
    # this proves that evaluation works before thousands of steps are trained.
    if self.step in config.phase_ends[:-1]:
      self._evaluate(self.phase - 1)
      self._examples_seen.assign(0)
    self._evaluate(self.phase)
    replicas = self._strategy.num_replicas_in_sync
    per_replica = self._settings.train_batch_size // replicas
    seen = int(self._examples_seen)
    self._batches = distribution.iterate(
      self._strategy,
      lambda context: modeling.with_prefix_masks(
        self._task.train_dataset(per_replica, seen, context), config.attention
      ),
    )
    # A restarted run may already have stopped early.
    if not self.is_over:
      self._stopped_early = self._stops_early()
    # An earlier run of this trainer may have traced the loop.
    if not self.is_over and self.phase not in self._train_loops:
      step = train_step.make_train_step(
        self._task,
        self.model,
        self.optimizer,
        self._settings,
        self._loss_scale,
        self._seed,
      )
      loop = train_step.make_train_loop(step, self._strategy, self._stop)
      self._train_loops[self.phase] = loop
      self._report.note("tracing and compiling the training step ...")

  def _evaluate(self, phase: int) -> None:
    """Computes losses and metrics on the held-out data of a phase."""
    if not self.values:  # The first one is also traced.
      self._report.note("evaluating ...")
    values = self._evaluations[phase](
      self._eval_data[phase], self._stop_if_requested, self._tasks[phase]
    )
    self._best.check(values)
    number = phase + 1
    if self._is_chief and self._config.keeps_best_of(self.step):
      self._best.offer(self.step, number, values)
    phases = len(self._tasks)
    self._report.evaluation(self.step, values, number if phases > 1 else 0)
    self.values = values

  def _update(self) -> None:
    """Trains to the next stop, and reports the means of losses and metrics."""
    wanted = _steps_until_stop(self.step, self._config)
    begun = time.monotonic()
    loop = self._train_loops[self.phase]
    sums, done = loop(self._batches, tf.constant(wanted))
    read = self._loss_scale.read if self._loss_scale else objective.quotients
    numbers, steps = read(sums), int(done)
    seconds = time.monotonic() - begun
    self.step += steps
    self._examples_seen.assign_add(steps * self._settings.train_batch_size)
    self._check_divergence(numbers, self.step - steps)
    speeds, left = self._plan.speeds(self.step, steps, seconds)
    last, norms = self._config.num_train_steps, self.optimizer.norms()
    self._report.training(self.step, last, numbers, norms, speeds, left)

  def _check_divergence(self, numbers: objective.Values, first: int) -> None:
    """Raises Divergence if the updates after step `first` show one."""
    # A loss scale below 1 was halved many times in a row without success.
    finite = all(math.isfinite(x) for x in numbers.values() if x is not None)
    if finite and numbers.get("loss_scale", 1.0) >= 1.0:
      return
    self._sum_up(first)
    raise objective.Divergence(
      "the loss or the gradient norm is not finite between steps "
      f"{first} and {self.step} ({objective.brief(numbers)}): train in another "
      "folder with a lower learning rate or a longer warm-up, or continue from "
      "the latest checkpoint with other batches, by another --random_seed and "
      "--allow_changed_settings."
    )

  def _save_and_evaluate(self) -> None:
    """Saves and evaluates, if the settings require it at this step."""
    config, step = self._config, self.step
    ends_phase = step in config.phase_ends
    is_last = step == config.num_train_steps
    if ends_phase or step % config.save_checkpoints_steps == 0:
      self._save()
    # At a boundary, the next phase begins with both evaluations.
    if is_last or (config.keeps_best_of(step) and not ends_phase):
      self._evaluate(self.phase)
      self._stopped_early = not is_last and self._stops_early()
      if self._stopped_early:
        self._save()  # A restarted run finds that it is over.

  def _save(self) -> None:
    """Writes a checkpoint of this step, unless there is one."""
    latest = self._checkpoints.latest
    if not latest or runs.step_of(latest) != self.step:
      self._report.flush()
      self._checkpoints.save(self.step)

  def _stops_early(self) -> bool:
    reason = ""
    if self._is_chief:  # It writes the files that `early_stop` reads.
      reason = checkpoints.early_stop(self._config, self.step)
    if reason:
      self._report.note(reason)
    return bool(distribution.from_chief(self._strategy, int(bool(reason))))

  def _stop_if_requested(self) -> None:
    """Saves and stops, between steps or held-out batches, after a signal.

    Several workers have agreed on it after a step.
    """
    if not self._stop.value:
      return
    saved = "nothing"
    if self.step:
      self._save()
      saved = f"step {self.step:,}"
    self._report.note(
      f"stopped by {self._watch.request} with {saved} saved; the same command "
      "continues from there."
    )
    raise SystemExit(self._watch.exit_code)

  def _sum_up(self, step: int) -> None:
    """Reports on the whole run up to `step`, if this start has trained."""
    if self._is_chief and step > self._first_step:
      best = checkpoints.read_best(self._config)
      self._report.finish(self._config.best_metric, best)


def _build(task: objective.Task, config: TrainConfig) -> tf.keras.Model:
  """Returns a new model, whose encoder is frozen if the settings say so."""
  model = task.build_model()
  if config.freeze_encoder:
    albert = model.albert
    for layer in (albert.embedding, *albert.encoder.sublayers):
      layer.trainable = False
  return model


def _common(
  tasks: Sequence[objective.Task], config: TrainConfig, model: tf.keras.Model
) -> Any:
  """Returns what all runs of a trainer have in common."""
  return (
    dataclasses.replace(config, seed=0, model_dir=""),
    [(type(t), t.name, t.flops_per_example, t.describe()) for t in tasks],
    (type(model), {**model.get_config(), "name": ""}),  # Keras counts names.
  )


def check_batch_size(
  name: str, size: int, strategy: tf.distribute.Strategy, micro_batches: int = 1
) -> None:
  """Raises ValueError if the devices cannot share a batch equally."""
  parts = strategy.num_replicas_in_sync * micro_batches
  if size % parts:
    raise ValueError(
      f"{name} {size} cannot be cut into {parts} equal parts for the devices "
      "and their micro-batches: choose a multiple."
    )


def _steps_until_stop(step: int, config: TrainConfig) -> int:
  """Returns the steps to the next log, checkpoint, evaluation and so on."""
  periods = [config.steps_per_loop, config.save_checkpoints_steps]
  if config.eval_steps:
    periods.append(config.eval_steps)
  end = config.phase_ends[config.phase_after(step)]
  return min(end - step, *(every - step % every for every in periods))
