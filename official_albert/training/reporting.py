"""Reports progress to the terminal, TensorBoard, metrics.jsonl, report.json."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
import time
from typing import Any, Iterator, Mapping, Optional, Sequence, TextIO

import numpy as np
import tensorflow as tf

from official_albert import distribution, files, run_logs
from official_albert.train_config import TrainConfig
from official_albert.training import objective

# In a bucket, each flush of a file takes several requests.
_REMOTE_FLUSH_SECONDS = 60
# There, a flush that was killed leaves what it uploaded.
_UPLOADS = ".tmpcompose"


@contextlib.contextmanager
def open_report(
  model_dir: str, strategy: tf.distribute.Strategy
) -> Iterator[Reporter]:
  """Opens the logs of a run; those of other workers than the chief are lost.

  Raises:
    ConnectionError: another worker was lost in the body.
  """
  with contextlib.ExitStack() as stack:
    stream = sys.stdout
    if not distribution.is_chief(strategy):
      model_dir = stack.enter_context(tempfile.TemporaryDirectory())
      stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
    report = stack.enter_context(Reporter(model_dir, stream))
    stack.enter_context(distribution.naming_lost_workers(strategy))
    yield report


class Reporter(contextlib.AbstractContextManager):
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
    refusal = (
      f"another process writes to {model_dir}: wait until it ends, or choose "
      "another folder."
    )
    self._stack = contextlib.ExitStack()
    self._stack.enter_context(files.lock(path, refusal))
    self._writers: dict[str, tf.summary.SummaryWriter] = {}
    for kind in ("", "train", "eval"):
      files.remove_tree(os.path.join(model_dir, kind, _UPLOADS))
    # In a bucket, opening creates no object. Without one, TensorFlow would ask
    # for the bucket, which takes more than the permission to write objects.
    if not files.exists(path):
      files.write_text(path, "")
    with files.open(path, "rb") as file:
      file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
      last = file.read()
    self._file = self._stack.enter_context(files.open(path, "a"))
    # A kill or a full disk may have cut the last line.
    if last not in (b"", b"\n"):
      self._file.write("\n")
    self._last_flush = -math.inf

  def __exit__(self, *unused: Any) -> None:
    self._stack.close()

  def note(self, text: str) -> None:
    """Prints one line."""
    print(text, file=self._stream, flush=True)

  def training(
    self,
    step: int,
    last_step: int,
    values: objective.Values,
    silent: Mapping[str, float],
    speeds: Mapping[str, float],
    seconds_left: float,
  ) -> None:
    """Reports losses and metrics of the updates since the last report.

    The terminal does not show the values of `silent`. Those with a slash in
    their names are written to TensorBoard only.
    """
    self._write("train", step, {**values, **silent, **speeds})
    period = _REMOTE_FLUSH_SECONDS if files.is_remote(self._model_dir) else 0
    now = time.monotonic()
    if now - self._last_flush >= period:
      self.flush()
      self._last_flush = now
    self.note(
      f"step {step:,}/{last_step:,}  {_line(values)}  "
      f"{speeds['sequences_per_second']:,.1f} sequences/s  "
      f"{speeds['tokens_per_second']:,.0f} tokens/s  "
      f"{speeds['model_flops_per_second'] / 1e9:,.0f} GFLOP/s  "
      f"{run_logs.duration(seconds_left)} left"
    )

  def flush(self) -> None:
    """Writes all reports so far to the files."""
    self._file.flush()
    for writer in self._writers.values():
      writer.flush()

  def evaluation(
    self, step: int, values: objective.Values, phase: int = 0
  ) -> None:
    """Reports losses and metrics on held-out data.

    Only the terminal shows values that are None. With several phases, `phase`
    counts from 1 and is a field of metrics.jsonl.
    """
    self._write("eval", step, values, **({"phase": phase} if phase else {}))
    where = f" (phase {phase})" if phase else ""
    self.note(f"step {step:,} held-out{where}  {_line(values)}")

  def finish(self, metric: str, best: Optional[Mapping[str, Any]]) -> None:
    """Writes report.json: the last and the best step, and their losses.

    `best` is the record of the best checkpoint by `metric`; None without one.
    """
    self.flush()
    last = run_logs.read_metrics(self._model_dir, "train")[-1]
    report = {
      "best_metric": metric,
      "best_step": best and best["step"],
      "best_value": best and best["values"][metric],
      "last_step": last["step"],
      "last_loss": last.get("loss"),
    }
    path = os.path.join(self._model_dir, run_logs.REPORT_FILE)
    files.write_json(path, report)
    about_best = "no best checkpoint is kept"
    if best:
      about_best = (
        f"best held-out {metric} {best['values'][metric]:.4g} at step "
        f"{best['step']:,}"
      )
    self.note(f"{about_best}; more in {path}")

  def _write(
    self, kind: str, step: int, values: objective.Values, **labels: int
  ) -> None:
    values = {name: x for name, x in values.items() if x is not None}
    if kind not in self._writers:
      folder = os.path.join(self._model_dir, kind)
      # Leaves flushing to `flush`. TensorFlow counts microseconds in 32 bits.
      writer = tf.summary.create_file_writer(
        folder, max_queue=10**9, flush_millis=10**6
      )
      self._writers[kind] = writer
      self._stack.callback(writer.close)
      # Restores the default writer and step when the reporter is closed.
      self._stack.enter_context(writer.as_default(step))
    # The context `as_default` would flush at its end.
    self._writers[kind].set_as_default(step)
    for name, value in values.items():
      tf.summary.scalar(name, value)
    logged = {name: x for name, x in values.items() if "/" not in name}
    record = {"kind": kind, "step": step, "unix_time_seconds": time.time()}
    self._file.write(json.dumps({**record, **logged, **labels}) + "\n")
    if kind != "train":
      self.flush()


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


class Plan:
  """The work of a run: its sequences, tokens and floating-point operations."""

  def __init__(self, tasks: Sequence[objective.Task], config: TrainConfig):
    """Counts the work of an update in each phase; `tasks` has one for each."""
    self._name, self._config = tasks[0].name, config
    self._updates = []
    for index, task in enumerate(tasks):
      batch = config.in_phase(index).train_batch_size
      at_depths = objective.at_depths(task, config.random_depths)
      flops = sum(t.flops_per_example for t in at_depths) / len(at_depths)
      each = 1, task.tokens_per_example, flops
      self._updates.append([batch * count for count in each])

  def _left(self, step: int) -> np.ndarray:
    """Returns the sequences, tokens and operations after `step`."""
    ends = np.maximum([0, *self._config.phase_ends], step)
    return np.diff(ends) @ np.array(self._updates, float)

  def speeds(
    self, step: int, steps: int, seconds: float
  ) -> tuple[dict[str, float], float]:
    """Returns the speeds of `steps` updates up to `step`, by name.

    Also returns the seconds that the rest of the run takes at this speed.
    """
    work = self._updates[self._config.phase_after(step - 1)]
    rates = [x * steps / seconds for x in work]
    names = "sequences", "tokens", "model_flops"
    speeds = {f"{n}_per_second": rate for n, rate in zip(names, rates)}
    return speeds, self._left(step)[2] / rates[2]

  def describe(
    self, parameters: int, strategy: tf.distribute.Strategy
  ) -> list[str]:
    """Describes a run in three lines: model and devices, work, schedule.

    The number of operations reveals a batch size or a number of steps that is
    wrong by a factor of ten. `parameters` is the model's number of parameters.
    """
    config, replicas = self._config, strategy.num_replicas_in_sync
    device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    precision = tf.keras.mixed_precision.global_policy().name
    work, begin = [], 0
    for index, end in enumerate(config.phase_ends):
      phase = config.in_phase(index)
      batch = phase.train_batch_size
      parts = replicas * phase.gradient_accumulation_steps
      share = f", {batch // parts:,} at a time on a device" if parts > 1 else ""
      work.append(f"{end - begin:,} steps of {batch:,} sequences{share}")
      begin = end
    _, tokens, operations = self._left(0)
    return [
      f"{self._name}: {parameters:,} parameters, {precision}, {replicas} x "
      f"{device.device_type}",
      f"{', then '.join(work)}: {tokens:.4g} tokens, {operations:.3g} "
      "operations",
      f"{config.optimizer}, learning rate 0 to {config.learning_rate:.4g} in "
      f"{config.num_warmup_steps:,} steps, then to 0 "
      f"({config.learning_rate_decay})",
    ]
