"""The training loop: build, restore, evaluate, train, save, stop.

Everything random is a pure function of (seed, step, replica), and the batch of
a step is a pure function of (seed, examples seen before it). Therefore, on the
same number of devices, a killed and restarted run equals the uninterrupted run
to the last bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from official_albert import distribution, run_logs, runs
from official_albert.train_config import TrainConfig
from official_albert.training import checkpoint_manager as checkpoints
from official_albert.training import (
  evaluation,
  objective,
  preemption,
  reporting,
  train_step,
  update_norms,
)

# A run that diverges more often needs other settings.
MAX_ROLLBACKS = 3


def train_in_folder(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  strategy: tf.distribute.Strategy,
  record: tuple[Any, Any, Any],
  tokenizer_file: tuple[str, str],
  notes: Sequence[str] = (),
  allow_changed_settings: bool = False,
  program: Optional[Program] = None,
) -> None:
  """Trains, after a comparison with the record in the run's folder.

  The record and the tokenizer are written right before the first step. `record`
  is the configuration of the model, the settings and the data, as in
  `run_record.write_run`; `tokenizer_file` is a path and its SHA-256; `notes`
  are the first lines of the log. For other arguments and errors see `train`
  and `run_record.check`.

  Raises:
    WorkerLost: another worker was lost.
  """
  check_batch_sizes(config, strategy.num_replicas_in_sync)
  model_dir, is_chief = config.model_dir, distribution.is_chief(strategy)
  if is_chief:
    changes = runs.check(
      model_dir,
      *record,
      runs.newest_step(model_dir),
      checkpoints.is_finished(config),
      allow_changed_settings,
    )
    notes = (
      *notes,
      *(f"warning: {x}; the resumed run is not the same run." for x in changes),
    )

  def write_record() -> None:
    if is_chief:
      runs.write_run(model_dir, *record)
      runs.copy_tokenizer(*tokenizer_file, model_dir)

  report: reporting.AnyReporter = reporting.SilentReporter()
  if is_chief:
    report = reporting.Reporter(model_dir)
  with report:
    for note in notes:
      report.note(note)
    with distribution.naming_lost_workers(strategy):
      train(tasks, config, strategy, report, write_record, program)


def train(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  strategy: tf.distribute.Strategy,
  report: reporting.AnyReporter,
  before_first_step: Callable[[], None] = lambda: None,
  program: Optional[Program] = None,
) -> objective.Values:
  """Trains to `num_train_steps` and evaluates; resumes from `model_dir`.

  It may end earlier because of `early_stopping_evaluations`.

  There is a task for each phase of `config`, all with the same model. Every
  worker calls `before_first_step` right before the first training step, if
  there is one. `program` is a `Program` of this strategy, by default a new one.

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
  run = _Run(tasks, config, report, program or Program(strategy))
  run.restore()
  with run.watch:
    run.begin_phase()
    if not run.is_over:
      before_first_step()
    while not run.is_over:
      run.stop_if_requested()
      if run.phase != config.phase_after(run.step):
        run.begin_phase()
        continue
      numbers = run.update()
      if is_diverged(numbers):
        run.roll_back(numbers)
      else:
        run.log(numbers)
        run.save_and_evaluate()
  run.finish()
  return run.values


class Program:
  """A model, its optimizer and the functions that are traced for them.

  Runs that differ only in the seed can share a program, one after the other.
  Then TensorFlow traces and compiles for the first of them only, and each run
  computes the same as with a program of its own. Each is scored by its own
  task.

  Attributes:
    strategy: the devices.
    model: the model; None before the first run.
    watch: the signal handler.
    stop: the flag that ends the inner loop.
    train_loops: the inner loop of each phase; see `train_step.make_train_loop`.
  """

  def __init__(self, strategy: tf.distribute.Strategy):
    """Creates a program without a model; the first run builds it."""
    self.strategy = strategy
    self.watch = preemption.PreemptionWatch(distribution.host_of(strategy))
    self.stop = distribution.SharedFlag(strategy, self.watch.requested)
    self.model: Optional[tf.keras.Model] = None
    self._run: Any = None  # What all runs have in common.
    self.train_loops: dict[int, Callable] = {}

  def start(
    self,
    tasks: Sequence[objective.Task],
    config: TrainConfig,
    report: reporting.AnyReporter,
  ) -> None:
    """Gives all variables their initial values for the seed of `config`.

    Raises:
      ValueError: settings, tasks or model are not those of the first run.
    """
    run = (
      dataclasses.replace(config, seed=0, model_dir=""),
      [(type(t), t.name, t.flops_per_example, t.describe()) for t in tasks],
    )
    tf.keras.utils.set_random_seed(config.seed)
    if self.model is None:
      self._run = run
      with report.waiting("building the model"):
        self._build(tasks, config)
      return
    with self.strategy.scope():
      fresh = tasks[0].build_model()
    if (run, _settings(fresh)) != (self._run, _settings(self.model)):
      raise ValueError(
        "runs of one program may differ in seed and model_dir only: create "
        "another program for other settings, another task, model or data."
      )
    for variable, value in zip(self.model.variables, fresh.variables):
      variable.assign(tf.convert_to_tensor(value))
    for variable in self.optimizer.variables():
      variable.assign(tf.zeros(variable.shape, variable.dtype))
    if self.loss_scale:
      self.loss_scale.reset()
    self.seed.assign(config.seed)
    self.examples_seen.assign(0)

  def _build(
    self, tasks: Sequence[objective.Task], config: TrainConfig
  ) -> None:
    strategy = self.strategy
    self.model, self.optimizer, self.loss_scale = train_step.make_variables(
      tasks[0], config, strategy
    )
    with strategy.scope():
      self.seed = tf.Variable(
        config.seed, dtype=tf.int64, trainable=False, name="seed"
      )
    # Counts the examples of the current phase's data.
    self.examples_seen = tf.Variable(0, dtype=tf.int64, name="examples_seen")
    # Built for all phases, so missing data of a later phase fails now.
    self.eval_data = [t.eval_dataset(config.eval_batch_size) for t in tasks]
    self.evaluations = [
      evaluation.make_evaluation(task, self.model, strategy) for task in tasks
    ]
    self.norms = update_norms.make_update_norms(
      self.optimizer, self.model.trainable_variables
    )


def _settings(model: tf.keras.Model) -> Any:
  """Returns what a model was made with; Keras counts the names."""
  return type(model), {**model.get_config(), "name": ""}


class _Run:
  """The objects and the progress of a run in one process.

  Attributes:
    watch: the signal handler.
    step: the number of updates so far.
    phase: the index of the current phase; None before the first.
    values: the losses and metrics of the last evaluation.
  """

  def __init__(
    self,
    tasks: Sequence[objective.Task],
    config: TrainConfig,
    report: reporting.AnyReporter,
    program: Program,
  ):
    """Prepares the model, the optimizer and the held-out data."""
    if len(tasks) != len(config.phase_ends):
      raise ValueError(
        f"there are {len(config.phase_ends)} phases, but data for {len(tasks)}."
      )
    self._tasks, self._config, self._report = tasks, config, report
    self._strategy = strategy = program.strategy
    self._is_chief = distribution.is_chief(strategy)
    program.start(tasks, config, report)
    self._program, self.watch = program, program.watch
    self._examples_seen = program.examples_seen
    self.step = 0
    self.phase: Optional[int] = None
    self.values: objective.Values = {}
    self._rollbacks, self._stopped_early = 0, False
    parameters = program.model.count_params()
    for line in reporting.describe_plan(tasks, config, parameters, strategy):
      report.note(line)

  def restore(self) -> None:
    """Restores the latest checkpoint of the run, else --init_checkpoint."""
    config, program = self._config, self._program
    model = program.model
    trackables = {
      "model": model,
      "optimizer": program.optimizer,
      "examples_seen": self._examples_seen,
    }
    if program.loss_scale:
      trackables["loss_scale"] = program.loss_scale
    self._checkpoints = checkpoints.CheckpointManager(
      config.model_dir, config.keep_checkpoint_max, self._strategy, **trackables
    )
    self._best = checkpoints.BestCheckpoint(
      config.model_dir, model, config.best_metric, config.best_is
    )
    message = self._checkpoints.restore_latest()
    if message:
      self._report.note(message)
    elif config.init_checkpoint:
      path = config.init_checkpoint
      report = self._tasks[0].warm_start(model, path)
      self._report.note(f"warm start from {path}: {report}")
    else:
      waiting = self._report.waiting("initializing the weights from scratch")
      with waiting, self._strategy.scope():
        self._tasks[0].begin(model)
    if self._is_chief and not self._checkpoints.latest:
      self._best.clear()
    if config.on_divergence == "rollback" and self._checkpoints.latest:
      self._rollbacks = distribution.from_chief(
        self._strategy,
        run_logs.count_rollbacks(config.model_dir) if self._is_chief else 0,
      )
    self._set_step()
    if self.step > config.num_train_steps:
      raise ValueError(
        f"{config.model_dir} is at step {self.step:,} already, beyond "
        f"num_train_steps {config.num_train_steps:,}: set a higher number, or "
        "choose another model_dir."
      )
    if self.step == config.num_train_steps:
      self._report.note(f"the run is finished: step {self.step:,} was its last")

  def _set_step(self) -> None:
    optimizer = self._program.optimizer
    self.step = int(optimizer.iterations.numpy())
    # Keras stores these in the checkpoint, but the current settings apply.
    for name in ("weight_decay", "beta_1", "beta_2"):
      setattr(optimizer, name, getattr(self._config, name))

  @property
  def is_over(self) -> bool:
    """Whether no step is left to train."""
    return self.step >= self._config.num_train_steps or self._stopped_early

  def begin_phase(self) -> None:
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
    for index in config.phases_at(self.step):
      self.evaluate(index)
    if config.begins_data(self.step):
      self._examples_seen.assign(0)
    if config.on_divergence == "rollback" and not self._checkpoints.latest:
      self._checkpoints.save(self.step)
    self._batches = self._read_batches()
    self._report.start(self.step, tasks, config)
    # A restarted run may already have stopped early.
    if not self.is_over:
      self._stopped_early = self._stops_early()
    if not self.is_over:
      self._prepare_train_loop()

  def _prepare_train_loop(self) -> None:
    """Traces the inner loop of the phase, unless an earlier run did."""
    program = self._program
    if self.phase not in program.train_loops:
      step = train_step.make_train_step(
        self._task,
        program.model,
        program.optimizer,
        self._settings,
        program.loss_scale,
        program.seed,
      )
      loop = train_step.make_train_loop(step, self._strategy, program.stop)
      program.train_loops[self.phase] = loop
      with self._report.waiting("tracing the training step"):
        loop.get_concrete_function(self._batches, tf.constant(1))
      end = self.step + _steps_until_stop(self.step, self._config)
      self._report.note(f"compiling it, then training to step {end:,}")
    self._train_loop = program.train_loops[self.phase]

  def _read_batches(self):
    replicas = self._strategy.num_replicas_in_sync
    per_replica = self._settings.train_batch_size // replicas
    seen = int(self._examples_seen)
    return distribution.iterate(
      self._strategy,
      lambda context: self._task.train_dataset(per_replica, seen, context),
    )

  def evaluate(self, phase: int) -> None:
    """Computes losses and metrics on the held-out data of a phase."""
    program = self._program
    waiting: contextlib.AbstractContextManager = contextlib.nullcontext()
    is_last = self.step == self._config.num_train_steps
    if not self.values or is_last:  # The first one is also traced.
      waiting = self._report.waiting("evaluating")
    with waiting:
      values = program.evaluations[phase](
        program.eval_data[phase], self.stop_if_requested, self._tasks[phase]
      )
    self._best.check(values)
    # Before it is logged; see `continuous_evaluation`.
    if self._is_chief and self._config.keeps_best_of(self.step, phase):
      self._best.offer(self.step, phase + 1, values)
    self._report.evaluation(self.step, values, **self._config.labels(phase))
    self.values = values

  def update(self) -> objective.Values:
    """Trains to the next stop; returns the means of losses and metrics."""
    wanted = _steps_until_stop(self.step, self._config)
    loss_scale = self._program.loss_scale
    with reporting.profile(self._config, self.step):
      sums, done, waited = self._train_loop(self._batches, tf.constant(wanted))
      read = loss_scale.read if loss_scale else objective.quotients
      numbers, self._steps = read(sums), int(done)
    self._waited = None if waited is None else float(waited)
    self.step += self._steps
    self._examples_seen.assign_add(
      self._steps * self._settings.train_batch_size
    )
    return numbers

  def log(self, numbers: objective.Values) -> None:
    """Reports the steps of the last `update`."""
    self._report.training(
      self.step, self._steps, numbers, self._program.norms(), self._waited
    )

  def roll_back(self, numbers: objective.Values) -> None:
    """Returns to the latest checkpoint, without the batches of `update`."""
    config, first = self._config, self.step - self._steps
    message = (
      "the loss or the gradient norm is not finite between steps "
      f"{first} and {self.step} ({objective.brief(numbers)})"
    )
    if config.on_divergence == "stop" or self._rollbacks >= MAX_ROLLBACKS:
      self._finish_report(first)
      advice = "continue with --on_divergence=rollback, or train"
      if self._rollbacks:
        advice = f"{self._rollbacks} rollbacks did not help, so train"
      raise objective.Divergence(
        f"{message}: {advice} in another folder with a lower learning rate or "
        "a longer warm-up."
      )
    self._rollbacks += 1
    seen, diverged_step = int(self._examples_seen), self.step
    restored = self._checkpoints.restore_latest()
    self._set_step()
    self._report.rollback(diverged_step, self.step, f"{message}; {restored}")
    if config.phase_after(self.step) == self.phase:
      # The weights return to an earlier step, but the data continues.
      self._examples_seen.assign(seen)
      self._batches = self._read_batches()

  def save_and_evaluate(self) -> None:
    """Saves, evaluates or stops, if the settings require it at this step."""
    config, step = self._config, self.step
    ends_phase = step in config.phase_ends
    is_last = step == config.num_train_steps
    preempted = bool(self._program.stop.value)
    saves = ends_phase or preempted or step % config.save_checkpoints_steps == 0
    if saves:
      self.save()
    if preempted:
      raise self._stopped_by_signal()
    # At a boundary, the next phase begins with both evaluations.
    scheduled = config.eval_steps and step % config.eval_steps == 0
    if is_last or (scheduled and not ends_phase):
      with self._report.pause():
        self.evaluate(self.phase)
      self._stopped_early = not is_last and self._stops_early()
      if self._stopped_early and not saves:
        self.save()  # A restarted run finds that it is over.

  def save(self) -> None:
    """Writes a checkpoint."""
    with self._report.pause():
      self._report.flush()
      self._checkpoints.save(self.step)

  def _stops_early(self) -> bool:
    # Only the chief writes the files that `early_stop` reads.
    reason = (
      checkpoints.early_stop(self._config, self.step) if self._is_chief else ""
    )
    if reason:
      self._report.note(reason)
    return bool(distribution.from_chief(self._strategy, int(bool(reason))))

  def stop_if_requested(self) -> None:
    """Stops between steps or held-out batches if a signal has arrived.

    It does nothing with several workers, which can only agree to stop after a
    step.
    """
    if self.watch.signal_number and (
      distribution.num_workers(self._strategy) == 1
    ):
      if self.step != runs.newest_step(self._config.model_dir):
        self._checkpoints.save(self.step)
      raise self._stopped_by_signal()

  def _stopped_by_signal(self, is_finished: bool = False) -> SystemExit:
    if is_finished:
      where = "after the last step; the same command does what is left"
    elif self._checkpoints.latest:
      where = f"step {self.step:,} is saved; the same command resumes the run"
    else:
      where = (
        "before the first step, with nothing saved; the same command starts "
        "from the beginning"
      )
    self._report.note(f"stopped by {self.watch.request}: {where}.")
    return SystemExit(self.watch.exit_code)

  def finish(self) -> None:
    """Reports on the whole run."""
    self._finish_report(self.step)
    # No worker exits while another one still writes.
    distribution.barrier(self._strategy)
    if self.watch.signal_number:  # It came after the last batch.
      raise self._stopped_by_signal(is_finished=True)

  def _finish_report(self, step: int) -> None:
    config = self._config
    best = runs.read_best(config.model_dir) if self._is_chief else None
    if not checkpoints.is_comparable(best, config.best_metric, config.best_is):
      best = None
    self._report.finish(step, config.best_metric, best)


def check_batch_sizes(config: TrainConfig, replicas: int) -> None:
  """Raises ValueError if the devices cannot share a batch equally."""
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


def is_diverged(numbers: objective.Values) -> bool:
  """Returns whether a step's losses and metrics show a divergence."""
  # A loss scale below 1 was halved many times in a row without success.
  finite = all(math.isfinite(x) for x in numbers.values() if x is not None)
  return not finite or numbers.get("loss_scale", 1.0) < 1.0


def _steps_until_stop(step: int, config: TrainConfig) -> int:
  """Returns the steps to the next log, checkpoint, evaluation and so on."""
  periods = [
    config.save_checkpoints_steps,
    config.eval_steps or config.num_train_steps,
  ]
  first, last = config.profiled_steps()
  if not first <= step < last:  # Each loop would have a profile of its own.
    periods.append(config.steps_per_loop)
  ends = (first, last, config.phase_ends[config.phase_after(step)])
  return min(
    *(every - step % every for every in periods),
    *(end - step for end in ends if end > step),
  )
