"""Tables and a picture of `quality`: what models learned in the same minutes.

A run is a dict with its last held-out metrics (`COLUMNS`), `step`, `minutes`,
`operations`, and the `curve` of all evaluations.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import numpy as np

from official_albert.tools.cli import printing
from official_albert.tools.experiments import report

PEER = "huggingface"
TOKEN_LOSS = "token_masked_lm_loss"
COLUMNS = {
  "masked_lm_loss": "masked LM loss",
  "masked_lm_accuracy": "masked LM accuracy",
  "sentence_order_loss": "sentence-order loss",
  "sentence_order_accuracy": "sentence-order accuracy",
}
_TFLOP = 1e12
# What is drawn over what, and the unit of the latter.
_PANELS = (
  ("masked_lm_loss", "minutes", "minutes of training", 1.0),
  ("masked_lm_loss", "operations", "TFLOP of training", _TFLOP),
  ("sentence_order_accuracy", "minutes", "minutes of training", 1.0),
)

Run = Mapping[str, Any]
Runs = Mapping[str, Sequence[Run]]


def objective(value: Run) -> float:
  """Returns the loss of a run at its end; infinity if it has diverged."""
  loss = value["masked_lm_loss"] + value["sentence_order_loss"]
  return loss if math.isfinite(loss) else math.inf


def mean_curve(runs: Sequence[Run]) -> list[dict[str, float]]:
  """Returns the means over runs with the same number of updates."""
  points = zip(*(run["curve"] for run in runs))
  return [
    {name: float(np.mean([p[name] for p in same])) for name in same[0]}
    for same in points
  ]


def _cell(runs: Sequence[Run], name: str) -> str:
  """Returns the mean over the seeds, and the range of several."""
  found = [run[name] for run in runs]
  spread = f" ({min(found):.3f} to {max(found):.3f})" if len(found) > 1 else ""
  return f"{np.mean(found):.3f}{spread}"


def table(runs: Runs) -> str:
  """Returns a row per system; see `_minutes_to`."""
  rows = []
  for system, same in runs.items():
    cells = [_cell(same, name) for name in (*COLUMNS, TOKEN_LOSS)]
    minutes = np.mean([run["minutes"] for run in same])
    operations = np.mean([run["operations"] for run in same]) / _TFLOP
    reached = []
    if PEER in runs:
      loss = mean_curve(runs[PEER])[-1]["masked_lm_loss"]
      reached = [_minutes_to(mean_curve(same), loss)]
    work = f"{same[0]['step']:,}", f"{minutes:.2f}", f"{operations:,.1f}"
    rows.append((system, *work, *cells, *reached))
  head = ["system", "updates", "minutes", "TFLOP", *COLUMNS.values()]
  head.append("masked LM loss, token masks")
  if PEER in runs:
    head.append(f"minutes to {PEER}'s masked LM loss")
  return printing.table(head, rows)


def _minutes_to(curve: Sequence[Run], loss: float) -> str:
  """Returns when a mean curve reaches a masked LM loss."""
  points = [{**p, "depth": 0, "loss": p["masked_lm_loss"]} for p in curve]
  minutes = report.cost_to_reach(points, loss, "minutes")
  return f"{minutes:.2f}" if math.isfinite(minutes) else "-"


def rate_table(tried: Mapping[float, Run]) -> str:
  """Returns a row per learning rate, and whether the best is at an end."""
  rows = [
    (f"{rate:g}", *(_cell([run], name) for name in COLUMNS))
    for rate, run in tried.items()
  ]
  text = printing.table(("learning rate", *COLUMNS.values()), rows)
  best = min(tried, key=lambda rate: objective(tried[rate]))
  if best in (min(tried), max(tried)):
    text += (
      "\n\nThe best learning rate is the lowest or the highest: try others "
      "beyond it with --learning_rates."
    )
  return text


def draw(title: str, runs: Runs, output_file: str) -> None:
  """Writes a PNG: metrics by cost, seeds as thin lines, means as bold."""
  figure, axes = printing.load_pyplot().subplots(1, 3, figsize=(14, 3.8))
  for axis, (name, cost, label, unit) in zip(axes, _PANELS):
    for i, (system, same) in enumerate(runs.items()):
      mean = mean_curve(same)
      for points, width in [(run["curve"], 0.6) for run in same] + [(mean, 2)]:
        axis.plot(
          [point[cost] / unit for point in points],
          [point[name] for point in points],
          color=f"C{i}",
          linewidth=width,
          label=system if points is mean else None,
        )
    axis.set_title(f"held-out {COLUMNS[name]}", fontsize=11)
    axis.set_xlabel(label)
    axis.grid(alpha=0.3)
  axes[2].axhline(0.5, color="#444444", linewidth=1, linestyle=":")
  axes[2].text(0, 0.5, "chance", fontsize=8, va="bottom")
  axes[0].legend(fontsize=9)
  figure.suptitle(title, fontsize=8)
  figure.tight_layout()
  printing.save_figure(figure, output_file, dpi=120)
