"""Reads the log of a run, metrics.jsonl. Does not load TensorFlow.

`training.Reporter` writes it: a JSON object on a line, with its `kind`, its
`step` and numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Mapping, Sequence

import numpy as np

from official_albert import files

METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.json"
TIME = "unix_time_seconds"


def read_report(path: str) -> list[dict[str, Any]]:
  """Reads a metrics.jsonl; skips lines that a kill has truncated."""
  records = []
  with files.open(path, errors="replace") as file:
    for line in file:
      with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if _is_record(record):
          records.append(record)
  return records


def _is_record(value: Any) -> bool:
  """Returns whether a value is an object as `Reporter` writes it."""
  if not isinstance(value, dict):
    return False
  numbers = [x for name, x in value.items() if name != "kind"]
  return {"kind", "step"} <= value.keys() and all(
    isinstance(x, (int, float)) for x in numbers
  )


def read_metrics(model_dir: str, kind: str) -> list[dict[str, float]]:
  """Returns the records of a kind, "train" or "eval", sorted by step.

  A resumed run repeats some steps; only the newest record of each is returned.
  At the boundary of two phases, both evaluations are returned.
  """
  found = {}
  for record in read_report(os.path.join(model_dir, METRICS_FILE)):
    if record["kind"] == kind:
      key = record["step"], record.get("phase", 1)
      found[key] = {k: x for k, x in record.items() if k != "kind"}
  return [found[key] for key in sorted(found)]


def summarize_run(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Summarizes the records of a metrics.jsonl over all restarts.

  Returns:
    `last_step` and its training `last_loss` (None if undefined); the medians
    `sequences_per_second`, `tokens_per_second` and `model_flops_per_second`
    without the first loop of each start, which compiles; the
    number of `restarts`; `training_seconds`, from each start to its last logged
    step, including evaluations and checkpoints.

  Raises:
    ValueError: no training was logged.
  """
  starts: list[list[Mapping[str, Any]]] = []
  for record in records:
    if record["kind"] == "start":
      starts.append([record])
    elif record["kind"] == "train" and starts:
      starts[-1].append(record)
  # A start that was stopped before the first steps has trained nothing.
  starts = [start for start in starts if len(start) > 1]
  if not starts:
    raise ValueError("no training was logged, so there is no summary.")
  last = starts[-1][-1]
  timed = [loop for start in starts for loop in start[2:]] or [last]
  speeds = (
    "sequences_per_second",
    "tokens_per_second",
    "model_flops_per_second",
  )
  return {
    "last_step": last["step"],
    "last_loss": last.get("loss"),
    **{
      name: float(np.median(values))
      for name in speeds
      if (values := [loop[name] for loop in timed if name in loop])
    },
    "restarts": len(starts) - 1,
    # The clock may have been set back.
    "training_seconds": sum(
      max(0.0, start[-1][TIME] - start[0][TIME]) for start in starts
    ),
  }


def duration(seconds: float) -> str:
  """Formats seconds as 59s, 4m05s or 2h03m."""
  seconds = int(seconds + 0.5)
  if seconds < 60:
    return f"{seconds}s"
  if seconds < 3600:
    return f"{seconds // 60}m{seconds % 60:02d}s"
  return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
