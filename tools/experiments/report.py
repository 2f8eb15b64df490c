"""Writes and draws the numbers of a table beside the paper's."""

from __future__ import annotations

import os
import statistics
from typing import Any, Mapping, Sequence

from official_albert import files
from official_albert.tools.cli import printing
from official_albert.tools.experiments import tables


def write(
  table: tables.Table,
  tasks: Sequence[str],
  rows: Mapping[str, Mapping[str, list[Any]]],
  notes: str,
  output_dir: str,
) -> str:
  """Writes table_NAME.md, .json and .png; returns the Markdown.

  `rows` are by label, then by column: a number for each seed.
  """
  parts = {x: [x] for x in (*table.columns, *tasks)}
  if len(tasks) > 1:  # One task is its own average.
    parts["Avg"] = list(tasks)
  sizes = [rows[label].get("parameters", [])[:1] for label in table.rows]
  shown = [
    ("", list(table.rows)),
    ("parameters", ["".join(f"{n / 1e6:.2f}M" for n in x) for x in sizes]),
    ("paper's", [row.paper_parameters for row in table.rows.values()]),
  ]
  # What is drawn: for each row, our number of each seed, or the paper's if any.
  panels: list[tuple[str, list[list[float]]]] = []
  for title, names in parts.items():
    ours = [
      [
        statistics.mean(x)
        for x in zip(*(rows[label].get(n, []) for n in names))
      ]
      for label in table.rows
    ]
    paper = [
      [statistics.mean(row.paper[n] for n in names)]
      if row.paper.keys() >= {*names}
      else []
      for row in table.rows.values()
    ]
    panels += [(title, ours), (f"{title}, paper", paper)]
    decimals = 3 if title == tables.LOSS else 1
    shown += [
      (title, [_cell(x, decimals) for x in ours]),
      ("paper", [_cell(x, 1) for x in paper]),
    ]
  header, cells = zip(*(column for column in shown if any(column[1])))
  body = printing.table(header, list(zip(*cells)))
  text = f"## {table.name}: {table.title}\n\n{body}\n\n({notes})\n"
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", text)
  files.write_json(f"{path}.json", {"notes": notes, "rows": rows})
  _draw(table, [x for x in panels if any(x[1])], f"{path}.png")
  return text


def _cell(values: Sequence[float], decimals: int) -> str:
  """Returns the mean of a row, and the range of several seeds."""
  if not values:
    return ""
  mean, low, high = (
    f"{x:.{decimals}f}"
    for x in (statistics.mean(values), min(values), max(values))
  )
  return f"{mean} ({low} to {high})" if len(values) > 1 else mean


def _draw(
  table: tables.Table,
  panels: Sequence[tuple[str, list[list[float]]]],
  path: str,
) -> None:
  """Writes a PNG: each column beside the paper's numbers."""
  figure, [axes] = printing.load_pyplot().subplots(
    ncols=len(panels),
    figsize=(2 + 2.2 * len(panels), max(2.8, 0.36 * len(table.rows) + 1.5)),
    squeeze=False,
    sharey=True,
    layout="constrained",
  )
  for axis, (title, values) in zip(axes, panels):
    for i, numbers in enumerate(values):
      axis.plot(numbers, [i] * len(numbers), "o", color=f"C{i}", alpha=0.6)
    axis.set_title(title, fontsize=9)
  axes[0].set_yticks(range(len(table.rows)), list(table.rows))
  axes[0].set_ylim(len(table.rows) - 0.5, -0.5)
  figure.suptitle(table.title, x=0.01, ha="left")
  printing.save_figure(figure, path)
