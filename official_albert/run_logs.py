"""Reads the log of a run, metrics.jsonl. Does not load TensorFlow.

`training.Reporter` writes it: a JSON object on a line, with its `kind`, its
`step` and numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics

from official_albert import files

METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "report.json"


def read_metrics(model_dir: str, kind: str) -> list[dict[str, float]]:
  """Returns the records of a kind, "train" or "eval", sorted by step.

  A resumed run repeats some steps; only the newest record of each is returned.
  At the boundary of two phases, both evaluations are returned. Lines that are
  no records are left out.
  """
  found = {}
  path = os.path.join(model_dir, METRICS_FILE)
  with files.open(path, errors="replace") as file:
    for line in file:
      # A kill has cut the line, or something else has written it.
      with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict) and record.pop("kind", "") == kind:
          key = record.get("step"), record.get("phase", 1)
          if {*map(type, key)} == {int}:
            found[key] = record
  return [found[key] for key in sorted(found)]


def speeds_of_phases(model_dir: str, steps: int, phases: int) -> list[float]:
  """Returns the sequences per second of phases of `steps` updates each.

  They are medians, without the first record of a phase, which compiles.
  """
  name, log = "sequences_per_second", read_metrics(model_dir, "train")
  of_phases = (
    [x[name] for x in log if i < x["step"] / steps <= i + 1]
    for i in range(phases)
  )
  return [statistics.median(speeds[1:]) for speeds in of_phases]


def duration(seconds: float) -> str:
  """Formats seconds as 59s, 4m05s or 2h03m."""
  seconds = int(seconds + 0.5)
  if seconds < 60:
    return f"{seconds}s"
  if seconds < 3600:
    return f"{seconds // 60}m{seconds % 60:02d}s"
  return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
