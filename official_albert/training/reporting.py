"""Progress of a run: the terminal, TensorBoard, metrics.jsonl, report.json.

Each loop prints a line on the terminal, writes the same numbers as TensorBoard
scalars (`train/` and `eval/` in the run's folder), and appends one JSON object
to `metrics.jsonl`, which plots are made from. `report.json` summarizes the run
at its end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import sys
import time
import types
from typing import (
  Any,
  Callable,
  Iterator,
  Mapping,
  Optional,
  Sequence,
  TextIO,
  Union,
)

import numpy as np
import tensorflow as tf

from official_albert import distribution, files
from official_albert.training import objective, optimization
from official_albert.training.train_config import TrainConfig

METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.json"
PROFILE_FOLDER = "profile"
# A TensorBoard run with the same tag as `train/`, so that TensorBoard draws the
# schedule and the learning rate in one chart.
SCHEDULE_FOLDER = "schedule"
SCHEDULE_POINTS = 200
# Written after the curve of the schedule.
_SCHEDULE_SETTINGS = "settings.json"


class Reporter:
  """Writes the progress of a run; a context manager that closes its files."""

  def __init__(self, model_dir: str, stream: Optional[TextIO] = None):
    """Opens the logs in `model_dir`; `stream` defaults to stdout."""
    self._stream = stream or sys.stdout
    self._model_dir = model_dir
    files.make_folder(model_dir)
    self._writers: dict[str, tf.summary.SummaryWriter] = {}
    path = os.path.join(model_dir, METRICS_FILE)
    self._file = open(path, "a", encoding="utf-8")
    # A kill or a full disk may have cut the last line.
    if os.path.getsize(path) and not _ends_with_newline(path):
      self._file.write("\n")
    self._speed = self._first_step = None

  def __enter__(self) -> Reporter:
    return self

  def __exit__(self, *unused) -> None:
    self._file.close()
    for writer in self._writers.values():
      writer.close()

  def note(self, text: str) -> None:
    """Prints one line."""
    print(text, file=self._stream, flush=True)

  def schedule(self, schedule: optimization.WarmupPolynomialDecay) -> None:
    """Writes the curve of the learning-rate schedule for TensorBoard."""
    write_schedule(self._model_dir, schedule)

  def start(
    self,
    step: int,
    last_step: int,
    batch_size: int,
    task: objective.Task,
    extra_steps: float = 0,
    flops_per_example: float = 0,
  ) -> None:
    """Starts the clock, at the beginning of each phase.

    Args:
      step: updates so far.
      last_step: of the run.
      batch_size: examples in an update.
      task: has the tokens and operations of an example.
      extra_steps: added to the steps left, because later phases may have
        longer steps.
      flops_per_example: operations of training on an example; 0 takes those of
        `task`.
    """
    self._last_step, self._extra_steps = last_step, extra_steps
    self._last_time = time.monotonic()
    self._paused = 0.0
    self._compiles_at = step
    if self._first_step is None:
      self._begun = self._last_time
      self._first_step = step
      self._event("start", step)
    self._batch_size = batch_size
    self._tokens = task.tokens_per_example
    self._flops = flops_per_example or task.flops_per_example

  @contextlib.contextmanager
  def pause(self) -> Iterator[None]:
    """Excludes the time of the body from the throughput."""
    begun = time.monotonic()
    yield
    self._paused += time.monotonic() - begun

  def training(
    self,
    step: int,
    steps: int,
    values: Mapping[str, float],
    silent: Optional[Mapping[str, float]] = None,
    waited_seconds: Optional[float] = 0.0,
  ) -> None:
    """Reports updates.

    Args:
      step: the last of them.
      steps: their number.
      values: losses, metrics and so on.
      silent: values that the terminal does not show. Those with a slash in
        their name go to TensorBoard only.
      waited_seconds: how long the updates waited for batches, shown from 1% of
        the time on; None if it was not measured.
    """
    now = time.monotonic()
    seconds = max(now - self._last_time - self._paused, 1e-9)
    self._last_time, self._paused = now, 0.0
    rate = steps * self._batch_size / seconds
    # The first loop compiles the graph, which would spoil the estimate of the
    # time left.
    if step - steps == self._compiles_at:
      self._speed = None
    elif self._speed is None:
      self._speed = steps / seconds
    else:
      self._speed += 0.3 * (steps / seconds - self._speed)
    speeds = {
      "sequences_per_second": rate,
      "tokens_per_second": rate * self._tokens,
      "model_flops_per_second": rate * self._flops,
    }
    if waited_seconds is not None:
      speeds["data_wait_share"] = waited_seconds / seconds
    self._write("train", step, {**values, **(silent or {}), **speeds})
    left = self._last_step - step + self._extra_steps
    left /= self._speed or steps / seconds
    waits = speeds.get("data_wait_share", 0)
    waiting = f"{waits:.0%} waiting for data  " if waits >= 0.01 else ""
    self.note(
      f"step {step:,}/{self._last_step:,}  {_line(values)}  "
      f"{rate:,.1f} sequences/s  {rate * self._tokens:,.0f} tokens/s  "
      f"{rate * self._flops / 1e9:,.0f} GFLOP/s  {waiting}"
      f"{duration(left)} left"
    )

  def rollback(self, step: int, to_step: int, message: str) -> None:
    """Reports a return from `step` to `to_step`."""
    self._event("rollback", step, {"to_step": to_step})
    self._speed = None
    self.note(f"warning: {message}; its batches are skipped")

  def evaluation(
    self, step: int, values: Mapping[str, float], **labels: int
  ) -> None:
    """Reports losses and metrics on held-out data.

    Args:
      step: updates before the evaluation.
      values: losses and metrics.
      **labels: further fields of metrics.jsonl; `phase` and `depth` are printed
        too.
    """
    self._write("eval", step, values, labels)
    shown = [f"{n} {labels[n]}" for n in ("phase", "depth") if n in labels]
    where = f" ({', '.join(shown)})" if shown else ""
    self.note(f"step {step:,} held-out{where}  {_line(values)}")

  def finish(
    self, step: int, metric: str = "loss", best_is: str = "lowest"
  ) -> None:
    """Summarizes the run on the terminal and in report.json.

    Args:
      step: the last one.
      metric: selects the best evaluation.
      best_is: one of `DIRECTIONS`.
    """
    if step <= self._first_step:
      return
    seconds = time.monotonic() - self._begun
    self.note(
      f"trained {step - self._first_step:,} steps in {duration(seconds)}"
    )
    summary = summarize(self._model_dir, metric, best_is)
    path = os.path.join(self._model_dir, REPORT_FILE)
    files.write_json(path, summary)
    repeated = summary["steps_lost_to_restarts"]
    lost = summary["steps_lost_to_rollbacks"]
    self.note(
      f"best held-out {metric} {summary['best_value']:.4g} at step "
      f"{summary['best_step']:,}; {summary['tokens_per_second']:,.0f} tokens/s "
      f"(median); {duration(summary['training_seconds'])} of training in all"
    )
    self.note(
      f"{summary['restarts']} restarts"
      + (f" ({repeated:,} steps repeated)" if repeated else "")
      + f", {summary['rollbacks']} rollbacks"
      + (f" ({lost:,} steps lost)" if lost else "")
      + f"; more in {path}"
    )

  def _write(
    self,
    kind: str,
    step: int,
    values: Mapping[str, float],
    labels: Mapping[str, int] = types.MappingProxyType({}),
  ) -> None:
    if kind not in self._writers:
      folder = os.path.join(self._model_dir, kind)
      self._writers[kind] = tf.summary.create_file_writer(folder)
    with self._writers[kind].as_default(step=step):
      for name, value in values.items():
        tf.summary.scalar(name, value)
    self._writers[kind].flush()
    values = {k: value for k, value in values.items() if "/" not in k}
    self._event(kind, step, {**values, **labels})

  def _event(
    self, kind: str, step: int, values: Optional[Mapping[str, float]] = None
  ) -> None:
    record = {"kind": kind, "step": step, "unix_time_seconds": time.time()}
    self._file.write(json.dumps({**record, **(values or {})}) + "\n")
    self._file.flush()


class SilentReporter:
  """A reporter that does nothing, for workers other than the chief."""

  def __enter__(self) -> SilentReporter:
    return self

  def __exit__(self, *unused) -> None:
    pass

  @contextlib.contextmanager
  def pause(self) -> Iterator[None]:
    yield

  def __getattr__(self, name: str) -> Callable[..., Any]:
    getattr(Reporter, name)  # Raises if there is no such method.
    return lambda *args, **kwargs: None


def make_reporter(
  strategy: tf.distribute.Strategy, model_dir: str
) -> Union[Reporter, SilentReporter]:
  """Returns a reporter on the chief, and a silent one on other workers."""
  if distribution.is_chief(strategy):
    return Reporter(model_dir)
  return SilentReporter()


def read_report(path: str) -> list[dict[str, Any]]:
  """Reads a metrics.jsonl, except for lines that a kill has cut."""
  records = []
  with open(path, encoding="utf-8") as file:
    for line in file:
      with contextlib.suppress(ValueError):
        records.append(json.loads(line))
  return records


def read_metrics(model_dir: str, kind: str) -> list[dict[str, float]]:
  """Returns the records of a kind, "train" or "eval", sorted by step.

  A resumed run repeats some steps; the newest record of a step is returned. At
  the border of two phases there is an evaluation of each.
  """
  return _newest(read_report(os.path.join(model_dir, METRICS_FILE)), kind)


def _newest(
  records: Sequence[Mapping[str, Any]], kind: str
) -> list[dict[str, Any]]:
  newest = {
    (record["step"], record.get("phase", 1)): {
      name: value for name, value in record.items() if name != "kind"
    }
    for record in records
    if record["kind"] == kind
  }
  return [newest[key] for key in sorted(newest)]


def summarize(
  model_dir: str, metric: str = "loss", best_is: str = "lowest"
) -> dict[str, Any]:
  """Returns the content of report.json, see `summarize_run`."""
  records = read_report(os.path.join(model_dir, METRICS_FILE))
  return summarize_run(records, metric, best_is)


def summarize_run(
  records: Sequence[Mapping[str, Any]],
  metric: str = "loss",
  best_is: str = "lowest",
) -> dict[str, Any]:
  """Summarizes a run over all its restarts.

  Args:
    records: of metrics.jsonl.
    metric: held-out metric that selects the best evaluation.
    best_is: one of `DIRECTIONS`.

  Returns:
    `best_metric`, `best_step` and `best_value` (-1 and NaN if no evaluation
    was finite); `last_step` and its training `last_loss`; the medians
    `sequences_per_second`, `tokens_per_second`, `model_flops_per_second` and
    `data_wait_share` without the first loop of each start, which compiles; the
    numbers of `restarts` and `rollbacks`; `training_seconds`, from each start
    to its last logged step, including evaluations and checkpoints;
    `steps_lost_to_restarts`, which were logged and repeated later;
    `steps_lost_to_rollbacks`, between a checkpoint and a divergence.

  Raises:
    ValueError: no training was logged.
  """
  trained = [record for record in records if record["kind"] == "train"]
  if not trained:
    raise ValueError("no training was logged, so there is nothing to sum up.")
  evaluated = _newest(records, "eval")
  # Phases may have held-out data of their own; only the last phase counts.
  phase = max((record.get("phase", 1) for record in evaluated), default=1)
  best = (max if best_is == "highest" else min)(
    (
      record
      for record in evaluated
      if record.get("phase", 1) == phase
      and math.isfinite(record.get(metric, math.nan))
    ),
    key=lambda record: record[metric],
    default={"step": -1, metric: math.nan},
  )
  starts = _split_at_starts(records)
  loops = [
    record
    for start in starts
    for record in [r for r in start if r["kind"] == "train"][1:]
  ] or trained
  rollbacks = [record for record in records if record["kind"] == "rollback"]
  return {
    "best_metric": metric,
    "best_step": best["step"],
    "best_value": best[metric],
    "last_step": trained[-1]["step"],
    "last_loss": trained[-1]["loss"],
    **{
      name: statistics.median(record[name] for record in loops)
      for name in (
        "sequences_per_second",
        "tokens_per_second",
        "model_flops_per_second",
        "data_wait_share",
      )
      if name in loops[0]
    },
    "restarts": len(starts) - 1,
    "rollbacks": len(rollbacks),
    "training_seconds": sum(map(_seconds, starts)),
    "steps_lost_to_restarts": sum(
      max(0, before[-1]["step"] - after[0]["step"])
      for before, after in zip(starts, starts[1:])
    ),
    "steps_lost_to_rollbacks": sum(
      record["step"] - record.get("to_step", record["step"])
      for record in rollbacks
    ),
  }


def _split_at_starts(
  records: Sequence[Mapping[str, Any]],
) -> list[list[Mapping[str, Any]]]:
  """Returns for each start of a run its start, loops and rollbacks."""
  starts: list[list[Mapping[str, Any]]] = []
  for record in records:
    # Old logs have no starts.
    if record["kind"] == "start" or (record["kind"] == "train" and not starts):
      starts.append([])
    # The first evaluation of a start is logged before the start.
    if starts and record["kind"] != "eval":
      starts[-1].append(record)
  return starts


def _seconds(start: Sequence[Mapping[str, Any]]) -> float:
  begun, ended = (
    record.get("unix_time_seconds", 0.0) for record in (start[0], start[-1])
  )
  return max(0.0, ended - begun)  # The clock may have been set back.


def duration(seconds: float) -> str:
  """Formats seconds as 59s, 4m05s or 2h03m."""
  seconds = int(seconds + 0.5)
  if seconds < 60:
    return f"{seconds}s"
  if seconds < 3600:
    return f"{seconds // 60}m{seconds % 60:02d}s"
  return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def _ends_with_newline(path: str) -> bool:
  with open(path, "rb") as file:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _line(values: Mapping[str, float]) -> str:
  """Formats values: each objective with its accuracy, then the others.

  `x_loss` and `x_accuracy` become "x 6.283 (8.3% right)".
  """
  parts = []
  for name, value in values.items():
    prefix = name[: -len("_loss")] if name.endswith("_loss") else ""
    if prefix:
      accuracy = values.get(f"{prefix}_accuracy")
      right = "" if accuracy is None else f" ({accuracy:.1%} right)"
      parts.append(f"{prefix} {value:.4g}{right}")
    elif name == "learning_rate":
      parts.append(f"learning rate {value:.2e}")
    elif f"{name[: -len('_accuracy')]}_loss" not in values:
      parts.append(f"{name.replace('_', ' ')} {value:.4g}")
  return "  ".join(parts)


def write_schedule(
  model_dir: str, schedule: optimization.WarmupPolynomialDecay
) -> bool:
  """Writes a schedule's curve, unless the folder has that of the same schedule.

  Returns:
    Whether it was written.

  Raises:
    OSError: the folder cannot be written.
  """
  folder = os.path.join(model_dir, SCHEDULE_FOLDER)
  path = os.path.join(folder, _SCHEDULE_SETTINGS)
  settings = json.dumps(schedule.get_config(), sort_keys=True)
  if tf.io.gfile.exists(path):
    with tf.io.gfile.GFile(path) as file:
      if file.read() == settings:
        return False
  if tf.io.gfile.isdir(folder):
    tf.io.gfile.rmtree(folder)
  steps = _schedule_steps(schedule)
  rates = schedule(tf.constant(steps)).numpy()
  with tf.summary.create_file_writer(folder).as_default() as writer:
    for step, rate in zip(steps, rates):
      tf.summary.scalar("learning_rate", rate, step=step)
    writer.close()
  with tf.io.gfile.GFile(path, "w") as file:
    file.write(settings)
  return True


def _schedule_steps(schedule: optimization.WarmupPolynomialDecay) -> list[int]:
  """Returns up to `SCHEDULE_POINTS` steps, with the corners of the curve."""
  last, warmup = schedule.num_train_steps, schedule.num_warmup_steps
  # The rate may drop right after the last step of the warm-up.
  corners = {0, max(warmup - 1, 0), min(warmup, last), last}
  evenly = np.linspace(0, last, SCHEDULE_POINTS - len(corners)).round()
  return sorted(corners | {int(step) for step in evenly})


class StepProfiler:
  """Profiles the updates after step FROM up to step TO.

  TensorFlow's profiler slows training down, so it runs for these steps only. It
  changes no number of the run. A run that is resumed between FROM and TO
  profiles the rest. Each profile has a folder of its own, named by the time.

  A context manager; leaving it ends a profile.
  """

  def __init__(self, model_dir: str, steps: Optional[tuple[int, int]]):
    """Writes to `model_dir`/profile; `steps` None profiles nothing."""
    self._folder = os.path.join(model_dir, PROFILE_FOLDER)
    self._steps = steps
    self._active = False

  def __enter__(self) -> StepProfiler:
    return self

  def __exit__(self, *unused) -> None:
    self._stop()

  def steps_until_stop(self, step: int) -> float:
    """Returns the updates until FROM or TO; infinity if both are over."""
    later = [s - step for s in self._steps or () if s > step]
    return min(later, default=float("inf"))

  @contextlib.contextmanager
  def watch(self, step: int, steps: int) -> Iterator[None]:
    """Profiles the body, which runs and awaits `steps` updates after `step`.

    Raises:
      tf.errors.OpError: another profiler is active in this process.
    """
    if not self._steps or not self._steps[0] <= step < self._steps[1]:
      self._stop()  # A rollback may have gone back before FROM.
      yield
      return
    if not self._active:
      tf.profiler.experimental.start(self._folder)
      self._active = True
    with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
      yield
    if step + steps >= self._steps[1]:
      self._stop()

  def _stop(self) -> None:
    if self._active:
      self._active = False
      tf.profiler.experimental.stop()


def describe_plan(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  parameters: int,
  strategy: tf.distribute.Strategy,
) -> list[str]:
  """Describes a run in three lines: model and devices, total work, schedule.

  A batch size or a number of steps that is wrong by a factor of ten shows in
  the operations before the first step.

  Args:
    tasks: of each phase; they give tokens and operations of one example.
    config: the settings.
    parameters: of the model.
    strategy: the devices.

  Returns:
    The lines to print.
  """
  replicas = strategy.num_replicas_in_sync
  device = strategy.extended.worker_devices[0].rsplit("device:", 1)[-1]
  precision = tf.keras.mixed_precision.global_policy().name
  work, tokens, operations = [], 0, 0
  starts = (0, *config.phase_ends)
  for index, task in enumerate(tasks):
    phase = config.in_phase(index)
    steps, batch = starts[index + 1] - starts[index], phase.train_batch_size
    parts = replicas * phase.gradient_accumulation_steps
    share = f", {batch // parts:,} at a time on a device" if parts > 1 else ""
    depth = config.phases[index].num_layers if config.phases else None
    layers = f" at depth {depth}" if depth else ""
    work.append(f"{steps:,} steps of {batch:,} sequences{layers}{share}")
    tokens += steps * batch * task.tokens_per_example
    flops = objective.training_flops(task, config.random_depths)
    operations += steps * batch * flops
  if config.random_depths:
    depths = ", ".join(map(str, config.random_depths))
    work[-1] += f", each step at a random depth of {depths}"
  return [
    f"{tasks[0].name}: {parameters:,} parameters, {precision}, {replicas} x "
    f"{device.split(':')[0]}",
    f"{', then '.join(work)}: {tokens:.4g} tokens, {operations:.3g} operations",
    f"{config.optimizer}, learning rate 0 to {config.learning_rate:.4g} in "
    f"{config.num_warmup_steps:,} steps, then to 0 "
    f"({config.learning_rate_decay})",
  ]
