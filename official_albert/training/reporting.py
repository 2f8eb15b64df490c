"""What a run says while it trains: terminal, TensorBoard, metrics.jsonl.

A line on the terminal for each loop, the same numbers as TensorBoard scalars
(`train/` and `eval/` under the run's folder), and one JSON object a line in
`metrics.jsonl`, which is what plots are made from.
"""

from __future__ import annotations

import contextlib
import json
import os
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
from official_albert.training import objective, optimization, run_summary
from official_albert.training.train_config import TrainConfig

METRICS_FILE = run_summary.METRICS_FILE
REPORT_FILE = "report.json"


class Reporter:
  """Writes a run's progress; a context manager that closes its files."""

  def __init__(self, model_dir: str, stream: Optional[TextIO] = None):
    """Opens the logs under `model_dir`; `stream` defaults to stdout."""
    self._stream = stream or sys.stdout
    self._model_dir = model_dir
    files.make_folder(model_dir)
    self._writers: dict[str, tf.summary.SummaryWriter] = {}
    path = os.path.join(model_dir, METRICS_FILE)
    self._file = open(path, "a", encoding="utf-8")
    # A full disk or a kill can have cut the last line; it ends here.
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

  def schedule(self, schedule) -> None:
    """Draws the learning-rate schedule in TensorBoard, if it is a new one."""
    write_schedule(self._model_dir, schedule)

  def start(
    self,
    step: int,
    last_step: int,
    batch_size: int,
    task,
    extra_steps: float = 0,
    flops_per_example: float = 0,
  ) -> None:
    """Starts the clock; `task` gives tokens and operations per example.

    Called again when a next phase begins, with that phase's batch and task.
    The time left is that of `extra_steps` more such steps, because the steps
    of later phases may be longer. `flops_per_example` are those of the
    training where it does less than `task` says.
    """
    self._last_step, self._extra_steps = last_step, extra_steps
    self._looked = time.monotonic()
    self._paused = 0.0
    self._compiles_at = step
    if self._first_step is None:
      self._begun = self._looked
      self._first_step = step
      self._event("start", step)
    self._batch_size = batch_size
    self._tokens = task.tokens_per_example
    self._flops = flops_per_example or task.flops_per_example

  @contextlib.contextmanager
  def pause(self) -> Iterator[None]:
    """Keeps the time of what runs inside it out of the throughput."""
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
    """Reports `steps` updates that ended at `step`.

    Args:
      step: the last of them.
      steps: how many.
      values: losses, metrics and so on.
      silent: what the terminal does not show; of these, names with a slash
        are for TensorBoard alone.
      waited_seconds: how long the updates waited for their batches; a line
        shows it from one percent of the time on. None if it is not measured,
        and then no log has it.
    """
    now = time.monotonic()
    seconds = max(now - self._looked - self._paused, 1e-9)
    self._looked, self._paused = now, 0.0
    rate = steps * self._batch_size / seconds
    # The first loop includes the compilation of the graph; it would spoil the
    # estimate of the time left.
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
    """Reports that the steps from `to_step` to `step` were of no use."""
    self._event("rollback", step, {"to_step": to_step})
    self._speed = None
    self.note(f"warning: {message}; its batches are left out")

  def evaluation(
    self, step: int, values: Mapping[str, float], **labels: int
  ) -> None:
    """Reports losses and metrics on held-out data.

    Args:
      step: updates before it.
      values: what was measured.
      **labels: what metrics.jsonl says besides; of these the line on the
        terminal has the `phase` and the `depth`.
    """
    self._write("eval", step, values, labels)
    said = [f"{n} {labels[n]}" for n in ("phase", "depth") if n in labels]
    where = f" ({', '.join(said)})" if said else ""
    self.note(f"step {step:,} held-out{where}  {_line(values)}")

  def finish(
    self, step: int, metric: str = "loss", best_is: str = "lowest"
  ) -> None:
    """Says how the run went as a whole, on the terminal and in report.json.

    Args:
      step: the last one.
      metric: what the best evaluation is chosen by.
      best_is: "lowest" or "highest".
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
    left_out = summary["steps_lost_to_rollbacks"]
    self.note(
      f"best held-out {metric} {summary['best_value']:.4g} at step "
      f"{summary['best_step']:,}; {summary['tokens_per_second']:,.0f} tokens/s "
      f"(median); {duration(summary['training_seconds'])} of training in all"
    )
    self.note(
      f"{summary['restarts']} restarts"
      + (f" ({repeated:,} steps repeated)" if repeated else "")
      + f", {summary['rollbacks']} rollbacks"
      + (f" ({left_out:,} steps lost)" if left_out else "")
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


def read_metrics(model_dir: str, kind: str) -> list[dict[str, float]]:
  """The records of `kind` ("train" or "eval") in the order of their steps.

  A resumed run repeats some steps; the newest record of a step counts. At the
  border of two phases there are evaluations on the held-out data of both.
  """
  records = {
    (r["step"], r.get("phase", 1)): r
    for r in _records(model_dir)
    if r.pop("kind") == kind
  }
  return [records[key] for key in sorted(records)]


def summarize(
  model_dir: str, metric: str = "loss", best_is: str = "lowest"
) -> dict[str, Any]:
  """What `report.json` holds; see `run_summary.summarize`."""
  return run_summary.summarize_run(_records(model_dir), metric, best_is)


def _records(model_dir: str) -> list[dict[str, Any]]:
  return run_summary.read_report(os.path.join(model_dir, METRICS_FILE))


def duration(seconds: float) -> str:
  """Seconds as 59s, 4m05s or 2h03m."""
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
  """One line's worth: each objective with its accuracy, then the rest.

  `x_loss` and `x_accuracy` become "x 6.283 (8.3% right)".
  """
  parts = []
  for name, value in values.items():
    objective = name[: -len("_loss")] if name.endswith("_loss") else ""
    if objective:
      accuracy = values.get(f"{objective}_accuracy")
      right = "" if accuracy is None else f" ({accuracy:.1%} right)"
      parts.append(f"{objective} {value:.4g}{right}")
    elif name == "learning_rate":
      parts.append(f"learning rate {value:.2e}")
    elif f"{name[: -len('_accuracy')]}_loss" not in values:
      parts.append(f"{name.replace('_', ' ')} {value:.4g}")
  return "  ".join(parts)


class SilentReporter:
  """Has every method of `Reporter`, to no effect."""

  def __enter__(self) -> SilentReporter:
    return self

  def __exit__(self, *unused) -> None:
    pass

  @contextlib.contextmanager
  def pause(self) -> Iterator[None]:
    yield

  def __getattr__(self, name: str) -> Callable[..., Any]:
    getattr(Reporter, name)  # Raises if it has none of that name.
    return lambda *args, **kwargs: None


def make_reporter(
  strategy: tf.distribute.Strategy, model_dir: str
) -> Union[Reporter, SilentReporter]:
  """A reporter on the chief, a silent one on the others."""
  if distribution.is_chief(strategy):
    return Reporter(model_dir)
  return SilentReporter()


# The schedule is a TensorBoard run of its own (beside `train/`) with the same
# tag, so that TensorBoard draws both curves in one chart.
SCHEDULE_FOLDER = "schedule"
MAX_POINTS = 200
# Written last: a curve without it was cut short by a kill.
_SETTINGS_FILE = "settings.json"


def schedule_points(schedule: optimization.WarmupPolynomialDecay) -> list[int]:
  """Up to `MAX_POINTS` steps, from 0 to the last, with the warm-up's end."""
  last, warmup = schedule.num_train_steps, schedule.num_warmup_steps
  # The rate may fall at once after the warm-up's last step.
  corners = {0, max(warmup - 1, 0), min(warmup, last), last}
  evenly = np.linspace(0, last, MAX_POINTS - len(corners)).round()
  return sorted(corners | {int(step) for step in evenly})


def write_schedule(
  model_dir: str, schedule: optimization.WarmupPolynomialDecay
) -> bool:
  """Writes the curve unless that of the same settings is there.

  Args:
    model_dir: the run's folder.
    schedule: what to draw; another schedule replaces the curve that is there.

  Returns:
    Whether it was written.

  Raises:
    OSError: the folder cannot be written.
  """
  folder = os.path.join(model_dir, SCHEDULE_FOLDER)
  settings_path = os.path.join(folder, _SETTINGS_FILE)
  settings = json.dumps(schedule.get_config(), sort_keys=True)
  if tf.io.gfile.exists(settings_path):
    with tf.io.gfile.GFile(settings_path) as file:
      if file.read() == settings:
        return False
  if tf.io.gfile.isdir(folder):
    tf.io.gfile.rmtree(folder)
  steps = schedule_points(schedule)
  rates = schedule(tf.constant(steps)).numpy()
  with tf.summary.create_file_writer(folder).as_default() as writer:
    for step, rate in zip(steps, rates):
      tf.summary.scalar("learning_rate", rate, step=step)
    writer.close()
  with tf.io.gfile.GFile(settings_path, "w") as file:
    file.write(settings)
  return True


PROFILE_FOLDER = "profile"


class StepProfiler:
  """Profiles the updates after step FROM, up to and with step TO.

  TensorFlow's profiler slows training down, so it runs for these steps only. It
  changes no number of the run.

  A context manager; leaving it ends a profile that is still going on. A run
  that is resumed between FROM and TO profiles what is left. Each profile is
  written to a folder of its own, named by the time.
  """

  def __init__(self, model_dir: str, steps: Optional[tuple[int, int]]):
    """Writes below `model_dir`/profile; `steps` None profiles nothing."""
    self._folder = os.path.join(model_dir, PROFILE_FOLDER)
    self._steps = steps
    self._active = False

  def __enter__(self) -> StepProfiler:
    return self

  def __exit__(self, *unused) -> None:
    self._stop()

  def steps_until_stop(self, step: int) -> float:
    """Updates until FROM or TO, whichever is next; infinite if neither is."""
    later = [s - step for s in self._steps or () if s > step]
    return min(later, default=float("inf"))

  @contextlib.contextmanager
  def watch(self, step: int, steps: int) -> Iterator[None]:
    """For `steps` updates after `step`, not beyond `steps_until_stop`.

    What the updates compute has to be awaited inside it.

    Raises:
      tf.errors.OpError: another profiler is at work in this process.
    """
    if not self._steps or not self._steps[0] <= step < self._steps[1]:
      self._stop()  # A rollback went back beyond FROM.
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
