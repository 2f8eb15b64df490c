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
from typing import Any, Iterator, Mapping, Optional, TextIO

import tensorflow as tf

from official_albert import files
from official_albert.training import run_summary, schedule_curve

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
    schedule_curve.write(self._model_dir, schedule)

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
