"""Reports progress to the terminal, TensorBoard, metrics.jsonl, report.json."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
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

import tensorflow as tf

from official_albert import files, run_logs
from official_albert.train_config import TrainConfig
from official_albert.training import objective

PROFILE_FOLDER = "profile"
# In a bucket, each flush of a file takes several requests.
_REMOTE_FLUSH_SECONDS = 60
# There, a flush that was killed leaves what it uploaded.
_UPLOADS = ".tmpcompose"


class Reporter:
  """Reports the progress of a run; a context manager that closes its files.

  Each report prints a line, appends a JSON object to metrics.jsonl, and writes
  the same values as TensorBoard scalars to `train/` or `eval/`. In a bucket,
  reports of training appear once a minute and at the next `flush`.
  """

  def __init__(self, model_dir: str, stream: Optional[TextIO] = None):
    """Opens the logs in `model_dir`; `stream` defaults to stdout.

    Raises:
      OSError: another process writes there; buckets have no locks.
    """
    self._stream = stream or sys.stdout
    self._model_dir = model_dir
    files.make_folder(model_dir)
    path = os.path.join(model_dir, run_logs.METRICS_FILE)
    self._lock = files.lock(
      path,
      f"another process writes to {model_dir}: wait until it ends, or choose "
      "another folder.",
    )
    self._writers: dict[str, tf.summary.SummaryWriter] = {}
    self._defaults = contextlib.ExitStack()
    for kind in ("", "train", "eval"):
      files.remove_tree(os.path.join(model_dir, kind, _UPLOADS))
    # In a bucket, opening creates no object. Without one, TensorFlow would ask
    # for the bucket, which takes more than the permission to write objects.
    if not files.exists(path):
      files.write_text(path, "")
    with files.open(path, "rb") as file:
      file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
      last = file.read()
    self._file = files.open(path, "a")
    # A kill or a full disk may have cut the last line.
    if last not in (b"", b"\n"):
      self._file.write("\n")
    self._last_flush = -math.inf
    self._first_step: Optional[int] = None
    self._is_waiting = False

  def __enter__(self) -> Reporter:
    return self

  def __exit__(self, *unused: Any) -> None:
    self._file.close()
    self._defaults.close()
    for writer in self._writers.values():
      writer.close()
    self._lock.close()

  def note(self, text: str) -> None:
    """Prints one line."""
    if self._is_waiting:
      text, self._is_waiting = f"\n{text}", False
    print(text, file=self._stream, flush=True)

  @contextlib.contextmanager
  def waiting(self, what: str) -> Iterator[None]:
    """Prints what the body does before it runs, then the time it took."""
    print(f"{what} ...", end="", file=self._stream, flush=True)
    self._is_waiting, begun = True, time.monotonic()
    try:
      yield
    finally:
      if self._is_waiting:  # The body has not ended the line.
        self._is_waiting = False
        self.note(f" {run_logs.duration(time.monotonic() - begun)}")

  def start(
    self, step: int, tasks: Sequence[objective.Task], config: TrainConfig
  ) -> None:
    """Starts timing after `step`; called at the beginning of each phase."""
    self._last_time, self._paused = time.monotonic(), 0.0
    if self._first_step is None:
      self._first_step = step
      self._event("start", step)
    now = config.phase_after(step)
    flops = [objective.training_flops(t, config.random_depths) for t in tasks]
    batches = [config.in_phase(i).train_batch_size for i in range(len(tasks))]
    self._last_step, self._batch_size = config.num_train_steps, batches[now]
    self._tokens, self._flops = tasks[now].tokens_per_example, flops[now]
    # What the steps of later phases cost beyond their number.
    self._extra_steps = sum(
      config.phases[i].steps
      * (batches[i] * flops[i] / (batches[now] * flops[now]) - 1)
      for i in range(now + 1, len(tasks))
    )

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
    values: objective.Values,
    silent: Optional[Mapping[str, float]] = None,
    waited_seconds: Optional[float] = 0.0,
  ) -> None:
    """Reports losses and metrics of `steps` updates up to `step`.

    The terminal does not show the values of `silent`. Those with a slash in
    their names are written to TensorBoard only. `waited_seconds`, the time
    spent waiting for batches, is None if it was not measured.
    """
    now = time.monotonic()
    seconds = max(now - self._last_time - self._paused, 1e-9)
    self._last_time, self._paused = now, 0.0
    rate = steps / seconds * self._batch_size
    left = self._last_step - step + self._extra_steps
    speeds = {
      "sequences_per_second": rate,
      "tokens_per_second": rate * self._tokens,
      "model_flops_per_second": rate * self._flops,
    }
    waiting = ""
    if waited_seconds is not None:
      share = speeds["data_wait_share"] = waited_seconds / seconds
      waiting = f"{share:.0%} waiting for data  " if share >= 0.01 else ""
    self._write("train", step, {**values, **(silent or {}), **speeds})
    period = _REMOTE_FLUSH_SECONDS if files.is_remote(self._model_dir) else 0
    if now - self._last_flush >= period:
      self.flush()
      self._last_flush = now
    self.note(
      f"step {step:,}/{self._last_step:,}  {_line(values)}  "
      f"{rate:,.1f} sequences/s  {rate * self._tokens:,.0f} tokens/s  "
      f"{rate * self._flops / 1e9:,.0f} GFLOP/s  {waiting}"
      f"{run_logs.duration(left * seconds / steps)} left"
    )

  def flush(self) -> None:
    """Writes all reports so far to the files."""
    self._file.flush()
    for writer in self._writers.values():
      writer.flush()

  def rollback(self, step: int, to_step: int, message: str) -> None:
    """Reports a return from `step` to `to_step`."""
    self._event("rollback", step, to_step=to_step)
    self.note(f"warning: {message}; its batches are skipped")

  def evaluation(
    self, step: int, values: objective.Values, **labels: int
  ) -> None:
    """Reports losses and metrics on held-out data.

    Only the terminal shows values that are None. `labels` are additional fields
    of metrics.jsonl; the terminal also shows `phase` and `depth`.
    """
    self._write("eval", step, values, **labels)
    shown = [f"{n} {labels[n]}" for n in ("phase", "depth") if n in labels]
    where = f" ({', '.join(shown)})" if shown else ""
    self.note(f"step {step:,} held-out{where}  {_line(values)}")

  def finish(
    self, step: int, metric: str, best: Optional[Mapping[str, Any]]
  ) -> None:
    """Summarizes the run up to `step` on the terminal and in report.json.

    `best` is the record of the best checkpoint by `metric`; None without one.
    """
    if step <= self._first_step:
      return
    self.flush()
    records = run_logs.read_report(
      os.path.join(self._model_dir, run_logs.METRICS_FILE)
    )
    s = {
      "best_metric": metric,
      "best_step": best and best["step"],
      "best_value": best and best["values"][metric],
      **run_logs.summarize_run(records),
    }
    path = os.path.join(self._model_dir, run_logs.REPORT_FILE)
    files.write_json(path, s)
    about_best = "no best checkpoint is kept"
    if best:
      value = best["values"][metric]
      about_best = (
        f"best held-out {metric} {value:.4g} at step {best['step']:,}"
      )
    self.note(
      f"{about_best}; {s['tokens_per_second']:,.0f} tokens/s (median); "
      f"{run_logs.duration(s['training_seconds'])} of training in all"
    )
    self.note(
      f"{s['restarts']} restarts ({s['steps_lost_to_restarts']:,} steps "
      f"repeated), {s['rollbacks']} rollbacks "
      f"({s['steps_lost_to_rollbacks']:,} steps lost); more in {path}"
    )

  def _write(
    self, kind: str, step: int, values: objective.Values, **labels: int
  ) -> None:
    values = {name: x for name, x in values.items() if x is not None}
    if kind not in self._writers:
      folder = os.path.join(self._model_dir, kind)
      # Leaves flushing to `flush`. TensorFlow counts microseconds in 32 bits.
      self._writers[kind] = tf.summary.create_file_writer(
        folder, max_queue=10**9, flush_millis=10**6
      )
      # Restores the default writer and step when the reporter is closed.
      self._defaults.enter_context(self._writers[kind].as_default(step))
    # The context `as_default` would flush at its end.
    self._writers[kind].set_as_default(step)
    for name, value in values.items():
      tf.summary.scalar(name, value)
    logged = {name: x for name, x in values.items() if "/" not in name}
    self._event(kind, step, **logged, **labels)

  def _event(self, kind: str, step: int, **values: float) -> None:
    record = {"kind": kind, "step": step, run_logs.TIME: time.time()}
    self._file.write(json.dumps({**record, **values}) + "\n")
    if kind != "train":
      self.flush()


class SilentReporter:
  """A reporter that does nothing, for workers other than the chief."""

  def __enter__(self) -> SilentReporter:
    return self

  def __exit__(self, *unused: Any) -> None:
    pass

  def pause(self) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext()

  def waiting(self, what: str) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext()

  def __getattr__(self, name: str) -> Callable[..., Any]:
    getattr(Reporter, name)  # Raises if there is no such method.
    return lambda *args, **kwargs: None


AnyReporter = Union[Reporter, SilentReporter]


def _line(values: objective.Values) -> str:
  """Formats values; `x_loss` and `x_accuracy` become "x 6.28 (8.3% right)"."""
  parts = []
  for name, value in values.items():
    if name.endswith("_loss"):
      prefix = name.removesuffix("_loss")
      accuracy = values.get(f"{prefix}_accuracy")
      right = "" if accuracy is None else f" ({accuracy:.1%} right)"
      parts.append(f"{prefix} {objective.shown(value)}{right}")
    elif name == "learning_rate":
      parts.append(f"learning rate {value:.2e}")
    elif f"{name.removesuffix('_accuracy')}_loss" not in values:
      parts.append(f"{name.replace('_', ' ')} {objective.shown(value)}")
  return "  ".join(parts)


@contextlib.contextmanager
def profile(config: TrainConfig, step: int) -> Iterator[None]:
  """Profiles the body, which trains from `step`, if `profile_steps` has it.

  TensorFlow's profiler slows training down, so it runs for these steps only. A
  checkpoint or an evaluation in between divides the profile into two, which
  are named by the time.
  """
  first, last = config.profiled_steps()
  if not first <= step < last:
    yield
    return
  folder = os.path.join(config.model_dir, PROFILE_FOLDER)
  with (
    tf.profiler.experimental.Profile(folder),
    tf.profiler.experimental.Trace("train", step_num=step, _r=1),
  ):
    yield


def describe_plan(
  tasks: Sequence[objective.Task],
  config: TrainConfig,
  parameters: int,
  strategy: tf.distribute.Strategy,
) -> list[str]:
  """Describes a run in three lines: model and devices, total work, schedule.

  The total number of operations reveals a batch size or a number of steps that
  is wrong by a factor of ten. `tasks` has a task for each phase; `parameters`
  is the model's number of parameters.
  """
  replicas = strategy.num_replicas_in_sync
  device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
  precision = tf.keras.mixed_precision.global_policy().name
  work, tokens, operations = [], 0, 0.0
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
    f"{device.device_type}",
    f"{', then '.join(work)}: {tokens:.4g} tokens, {operations:.3g} operations",
    f"{config.optimizer}, learning rate 0 to {config.learning_rate:.4g} in "
    f"{config.num_warmup_steps:,} steps, then to 0 "
    f"({config.learning_rate_decay})",
  ]
