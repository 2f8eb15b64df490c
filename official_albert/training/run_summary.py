"""What a whole run comes to, over all its starts: the content of report.json.

A function of the records in metrics.jsonl alone, so that any process can
compute it for any run.
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any, Mapping, Sequence

METRICS_FILE = "metrics.jsonl"
Record = Mapping[str, Any]

_SPEEDS = (
  "sequences_per_second",
  "tokens_per_second",
  "model_flops_per_second",
  "data_wait_share",
)


def read_report(path: str) -> list[dict[str, Any]]:
  """The records of a run's log, without lines that a kill has cut short."""
  found = []
  with open(path, encoding="utf-8") as file:
    for line in file:
      try:
        found.append(json.loads(line))
      except ValueError:
        continue
  return found


def summarize_run(
  records: Sequence[Record], metric: str = "loss", best_is: str = "lowest"
) -> dict[str, Any]:
  """The best evaluation, speed, time and accidents of a run.

  Args:
    records: of metrics.jsonl in the order in which they were written.
    metric: the held-out number that evaluations are compared by.
    best_is: "lowest" or "highest".

  Returns:
    `best_metric`, its name, and `best_step` and `best_value` of the
    evaluations (-1 and NaN if none was finite); `last_step` and its training
    `last_loss`; the median `sequences_per_second`, `tokens_per_second`,
    `model_flops_per_second` and `data_wait_share` (of the time, for batches),
    without each start's first loop, which compiles; how many `restarts` and
    `rollbacks` there were; `training_seconds`, from each start to its last
    logged step, evaluations and checkpoints included;
    `steps_lost_to_restarts`, those logged that a later start had to repeat;
    `steps_lost_to_rollbacks`, those between a checkpoint and a divergence.

  Raises:
    ValueError: no training was logged.
  """
  trained = [record for record in records if record["kind"] == "train"]
  if not trained:
    raise ValueError("no training was logged, so there is nothing to sum up.")
  evaluated = _newest(records, "eval")
  # Phases of a run may be evaluated on data of their own; the last one counts.
  phase = max((record.get("phase", 1) for record in evaluated), default=1)
  evaluated = [
    record
    for record in evaluated
    if record.get("phase", 1) == phase
    and math.isfinite(record.get(metric, math.nan))
  ]
  best = (max if best_is == "highest" else min)(
    evaluated,
    key=lambda record: record[metric],
    default={"step": -1, metric: math.nan},
  )
  starts = _starts(records)
  # A first loop is better than none.
  loops = [record for start in starts for record in start.loops[1:]] or trained
  return {
    "best_metric": metric,
    "best_step": best["step"],
    "best_value": best[metric],
    "last_step": trained[-1]["step"],
    "last_loss": trained[-1]["loss"],
    **{
      name: statistics.median(record[name] for record in loops)
      for name in _SPEEDS
      if name in loops[0]
    },
    "restarts": len(starts) - 1,
    "rollbacks": sum(record["kind"] == "rollback" for record in records),
    "training_seconds": sum(start.seconds for start in starts),
    "steps_lost_to_restarts": sum(
      max(0, before.last_step - after.first_step)
      for before, after in zip(starts, starts[1:])
    ),
    "steps_lost_to_rollbacks": sum(
      record["step"] - record.get("to_step", record["step"])
      for record in records
      if record["kind"] == "rollback"
    ),
  }


class _Start:
  """One process's part of a run."""

  def __init__(self, record: Record):
    self.first_step = self.last_step = record["step"]
    self._begun = self._ended = record.get("unix_time_seconds", 0.0)
    self.loops: list[Record] = []

  def add(self, record: Record) -> None:
    # Not evaluations: the first one of a start is logged before its start.
    if record["kind"] not in ("train", "rollback"):
      return
    if record["kind"] == "train":
      self.loops.append(record)
    self.last_step = record["step"]
    self._ended = record.get("unix_time_seconds", self._ended)

  @property
  def seconds(self) -> float:
    # The clock may have been set back.
    return max(0.0, self._ended - self._begun)


def _starts(records: Sequence[Record]) -> list[_Start]:
  starts: list[_Start] = []
  for record in records:
    if record["kind"] == "start":
      starts.append(_Start(record))
    elif starts:
      starts[-1].add(record)
    elif record["kind"] == "train":  # Logs from before there were starts.
      starts.append(_Start(record))
      starts[-1].add(record)
  return starts


def _newest(records: Sequence[Record], kind: str) -> list[Record]:
  """One record a step and phase: a resumed run repeats some."""
  newest = {
    (r["step"], r.get("phase", 1)): r for r in records if r["kind"] == kind
  }
  return [newest[key] for key in sorted(newest)]
