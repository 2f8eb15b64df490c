"""Writes and draws the numbers of a table beside the paper's."""

from __future__ import annotations

import math
import os
import statistics
from typing import Any, Mapping, NamedTuple, Sequence

from official_albert import files
from official_albert.tools.cli import printing
from official_albert.tools.experiments import tables

# By label, then by column: a number for each seed.
Rows = Mapping[str, Mapping[str, list[Any]]]


class Column(NamedTuple):
  """A column: for each row, our number of each seed, and the paper's or NaN."""

  title: str
  ours: list[list[float]]
  paper: list[float]

  def cells(self) -> list[str]:
    """Returns the mean of each row, and the range of several seeds."""
    decimals, cells = 3 if self.title == tables.LOSS else 1, []
    for values in self.ours:
      cells.append("")
      if values:
        cells[-1] = f"{statistics.mean(values):.{decimals}f}"
      if len(values) > 1:
        ends = (f"{x:.{decimals}f}" for x in (min(values), max(values)))
        cells[-1] += f" ({' to '.join(ends)})"
    return cells


def columns_of(
  table: tables.Table, tasks: Sequence[str], rows: Rows
) -> list[Column]:
  """Returns the columns, of which some may be empty."""
  columns = {x: [x] for x in table.columns if x != tables.SCORES}
  if tables.SCORES in table.columns:
    columns |= {task: [task] for task in tasks}
    if len(tasks) > 1:  # One task is its own average.
      columns["Avg"] = list(tasks)
  found = []
  for title, names in columns.items():
    ours = [
      [
        statistics.mean(x)
        for x in zip(*(rows[label].get(n, []) for n in names))
      ]
      for label in table.rows
    ]
    paper = [
      statistics.mean(row.paper.get(n, math.nan) for n in names)
      for row in table.rows.values()
    ]
    found.append(Column(title, ours, paper))
  return found


def write(
  table: tables.Table,
  tasks: Sequence[str],
  rows: Rows,
  notes: str,
  output_dir: str,
) -> str:
  """Writes table_NAME.md, .json and .png; returns the Markdown."""
  columns = columns_of(table, tasks, rows)
  sizes = [rows[label].get("parameters", [])[:1] for label in table.rows]
  shown = [
    ("", list(table.rows)),
    ("parameters", ["".join(f"{n / 1e6:.2f}M" for n in x) for x in sizes]),
    ("paper's", [row.paper_parameters for row in table.rows.values()]),
  ]
  for column in columns:
    paper = ["" if math.isnan(x) else f"{x:.1f}" for x in column.paper]
    shown += [(column.title, column.cells()), ("paper", paper)]
  header, cells = zip(*(column for column in shown if any(column[1])))
  body = printing.table(header, list(zip(*cells)))
  text = f"## {table.name}: {table.title}\n\n{body}\n\n({notes})\n"
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", text)
  files.write_json(f"{path}.json", {"notes": notes, "rows": rows})
  _draw(table, columns, f"{path}.png")
  return text


def _draw(table: tables.Table, columns: Sequence[Column], path: str) -> None:
  """Writes a PNG: each column beside the paper's numbers."""
  panels = []
  for title, ours, paper in columns:
    printed = [[] if math.isnan(x) else [x] for x in paper]
    panels += [(title, ours), (f"{title}, paper", printed)]
  panels = [(title, values) for title, values in panels if any(values)]
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
