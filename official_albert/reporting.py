"""What a run says while it trains: terminal, TensorBoard, metrics.jsonl.

A line on the terminal for each loop, the same numbers as TensorBoard scalars
(`train/` and `eval/` under the run's folder), and one JSON object a line in
`metrics.jsonl`, which is what plots are made from.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import sys
import time
from typing import Iterator, Mapping, Optional, TextIO

import tensorflow as tf

METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.json"


class Reporter:
  """Writes a run's progress; a context manager that closes its files."""

  def __init__(self, model_dir: str, stream: Optional[TextIO] = None):
    """Opens the logs under `model_dir`; `stream` defaults to stdout."""
    self._stream = stream or sys.stdout
    self._model_dir = model_dir
    os.makedirs(model_dir, exist_ok=True)
    self._writers = {
      kind: tf.summary.create_file_writer(os.path.join(model_dir, kind))
      for kind in ("train", "eval")
    }
    path = os.path.join(model_dir, METRICS_FILE)
    self._file = open(path, "a", encoding="utf-8")
    # A full disk or a kill can have cut the last line; it ends here.
    if os.path.getsize(path) and not _ends_with_newline(path):
      self._file.write("\n")
    self._speed = None

  def __enter__(self) -> Reporter:
    return self

  def __exit__(self, *unused) -> None:
    self._file.close()
    for writer in self._writers.values():
      writer.close()

  def note(self, text: str) -> None:
    """Prints one line."""
    print(text, file=self._stream, flush=True)

  def start(self, step: int, last_step: int, batch_size: int, task) -> None:
    """Starts the clock; `task` gives tokens and operations per example."""
    self._last_step = last_step
    self._begun = self._looked = time.monotonic()
    self._paused = 0.0
    self._first_step = step
    self._event("start", step)
    self._batch_size = batch_size
    self._tokens = task.tokens_per_example
    self._flops = task.flops_per_example

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
  ) -> None:
    """Reports `steps` updates that ended at `step`.

    Args:
      step: the last of them.
      steps: how many.
      values: losses, metrics and so on.
      silent: what the terminal does not show; of these, names with a slash
        are for TensorBoard alone.
    """
    now = time.monotonic()
    seconds = max(now - self._looked - self._paused, 1e-9)
    self._looked, self._paused = now, 0.0
    rate = steps * self._batch_size / seconds
    # The first loop includes the compilation of the graph; it would spoil the
    # estimate of the time left.
    if step - steps == self._first_step:
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
    self._write("train", step, {**values, **(silent or {}), **speeds})
    left = (self._last_step - step) / (self._speed or steps / seconds)
    self.note(
      f"step {step:,}/{self._last_step:,}  {_line(values)}  "
      f"{rate:,.1f} sequences/s  {rate * self._tokens:,.0f} tokens/s  "
      f"{rate * self._flops / 1e9:,.0f} GFLOP/s  {duration(left)} left"
    )

  def rollback(self, step: int, message: str) -> None:
    """Reports that the steps up to `step` were of no use."""
    self._event("rollback", step)
    self._speed = None
    self.note(f"warning: {message}; its batches are left out")

  def evaluation(self, step: int, values: Mapping[str, float]) -> None:
    """Reports losses and metrics on held-out data."""
    self._write("eval", step, values)
    self.note(f"step {step:,} held-out  {_line(values)}")

  def finish(self, step: int) -> None:
    """Says how the run went as a whole, on the terminal and in report.json."""
    if step <= self._first_step:
      return
    seconds = time.monotonic() - self._begun
    self.note(
      f"trained {step - self._first_step:,} steps in {duration(seconds)}"
    )
    summary = summarize(self._model_dir)
    path = os.path.join(self._model_dir, REPORT_FILE)
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
      json.dump(summary, file, indent=1)
    os.replace(f"{path}.tmp", path)
    self.note(
      f"best held-out loss {summary['best_loss']:.4g} at step "
      f"{summary['best_step']:,}; {summary['restarts']} restarts, "
      f"{summary['rollbacks']} rollbacks; more in {path}"
    )

  def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
    with self._writers[kind].as_default(step=step):
      for name, value in values.items():
        tf.summary.scalar(name, value)
    self._writers[kind].flush()
    values = {k: value for k, value in values.items() if "/" not in k}
    self._event(kind, step, values)

  def _event(
    self, kind: str, step: int, values: Optional[Mapping[str, float]] = None
  ) -> None:
    record = {"kind": kind, "step": step, "unix_time_seconds": time.time()}
    self._file.write(json.dumps({**record, **(values or {})}) + "\n")
    self._file.flush()


def read_metrics(model_dir: str, kind: str) -> list[dict[str, float]]:
  """The records of `kind` ("train" or "eval") in the order of their steps.

  A resumed run repeats some steps; the newest record of a step counts.
  """
  records = {r["step"]: r for r in _records(model_dir) if r.pop("kind") == kind}
  return [records[step] for step in sorted(records)]


def summarize(model_dir: str) -> dict[str, float]:
  """What `report.json` holds: the best evaluation, speed, accidents.

  Returns:
    `best_step` and `best_loss` of the evaluations (-1 and NaN if none was
    finite), `last_step`, the median
    `tokens_per_second`, how many `restarts` and `rollbacks` there were.
  """
  kinds = [record["kind"] for record in _records(model_dir)]
  trained = read_metrics(model_dir, "train")
  evaluated = [
    record
    for record in read_metrics(model_dir, "eval")
    if math.isfinite(record["loss"])
  ]
  best = min(
    evaluated,
    key=lambda record: record["loss"],
    default={"step": -1, "loss": math.nan},
  )
  return {
    "best_step": best["step"],
    "best_loss": best["loss"],
    "last_step": trained[-1]["step"],
    "tokens_per_second": statistics.median(
      record["tokens_per_second"] for record in trained
    ),
    "restarts": kinds.count("start") - 1,
    "rollbacks": kinds.count("rollback"),
  }


def _records(model_dir: str) -> Iterator[dict]:
  with open(os.path.join(model_dir, METRICS_FILE), encoding="utf-8") as file:
    for line in file:
      with contextlib.suppress(ValueError):  # Cut short by a kill.
        yield json.loads(line)


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
