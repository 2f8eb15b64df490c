"""Writes and draws the numbers of a table beside the paper's."""

from __future__ import annotations

import math
import os
import statistics
from typing import Any, Mapping, Sequence

from official_albert import files
from official_albert.tools.cli import printing
from official_albert.tools.experiments import tables

# By label, then by column: a number for each seed.
Rows = Mapping[str, Mapping[str, list[Any]]]


def _columns(table: tables.Table, tasks: Sequence[str]) -> list[str]:
  columns = [x for x in table.columns if x != tables.SCORES]
  if tables.SCORES in table.columns:
    # One task is its own average.
    columns += [*tasks] + [tables.AVERAGE] * (len(tasks) > 1)
  return columns


def _values(
  found: Mapping[str, list[Any]], column: str, tasks: Sequence[str]
) -> list[float]:
  """Returns a number for each seed."""
  if column != tables.AVERAGE:
    return found.get(column, [])
  return [statistics.mean(x) for x in zip(*(found.get(t, []) for t in tasks))]


def _paper(row: tables.Row, column: str, tasks: Sequence[str]) -> float:
  """Returns the paper's number, NaN where it has none."""
  return row.average(tasks if column == tables.AVERAGE else [column])


def _format(column: str, values: Sequence[float]) -> str:
  """Returns the mean, and the range of several seeds."""
  if not values:
    return ""
  decimals = 3 if column == tables.LOSS else 1
  mean, *ends = (
    f"{value:.{decimals}f}"
    for value in (statistics.mean(values), min(values), max(values))
  )
  return mean if len(values) == 1 else f"{mean} ({' to '.join(ends)})"


def markdown(
  table: tables.Table, tasks: Sequence[str], rows: Rows, notes: str
) -> str:
  """Returns a heading, the table without empty columns, and the notes."""
  sizes = [rows[label].get("parameters", [])[:1] for label in table.rows]
  papers = [row.paper_parameters for row in table.rows.values()]
  columns = [
    ("", list(table.rows)),
    ("parameters", ["".join(f"{n / 1e6:.2f}M" for n in x) for x in sizes]),
    ("paper's", papers),
  ]
  for name in _columns(table, tasks):
    ours, paper = [], []
    for label, row in table.rows.items():
      number = _paper(row, name, tasks)
      ours.append(_format(name, _values(rows[label], name, tasks)))
      paper.append("" if math.isnan(number) else f"{number:.1f}")
    columns += [(name, ours), ("paper", paper)]
  header, cells = zip(*(column for column in columns if any(column[1])))
  text = printing.table(header, list(zip(*cells)))
  return f"## {table.name}: {table.title}\n\n{text}\n\n({notes})\n"


def draw(
  table: tables.Table, tasks: Sequence[str], rows: Rows, path: str
) -> None:
  """Writes a PNG: each column beside the paper's numbers."""
  panels = {}  # By title: numbers by row.
  for name in _columns(table, tasks):
    ours = [_values(rows[label], name, tasks) for label in table.rows]
    paper = [_paper(row, name, tasks) for row in table.rows.values()]
    panels[name] = ours
    panels[f"{name}, paper"] = [[] if math.isnan(x) else [x] for x in paper]
  panels = {title: values for title, values in panels.items() if any(values)}
  figure, [axes] = printing.load_pyplot().subplots(
    ncols=len(panels),
    figsize=(2 + 2.2 * len(panels), max(2.8, 0.36 * len(table.rows) + 1.5)),
    squeeze=False,
    sharey=True,
    layout="constrained",
  )
  for axis, (title, values) in zip(axes, panels.items()):
    for i, numbers in enumerate(values):
      axis.plot(numbers, [i] * len(numbers), "o", color=f"C{i}", alpha=0.6)
    axis.set_title(title, fontsize=9)
  axes[0].set_yticks(range(len(table.rows)), list(table.rows))
  axes[0].set_ylim(len(table.rows) - 0.5, -0.5)
  figure.suptitle(table.title, x=0.01, ha="left")
  printing.save_figure(figure, path)


def write(
  table: tables.Table,
  tasks: Sequence[str],
  rows: Rows,
  notes: str,
  output_dir: str,
) -> str:
  """Writes table_NAME.md, .json and .png; returns the Markdown."""
  path = os.path.join(output_dir, f"table_{table.name}")
  text = markdown(table, tasks, rows, notes)
  files.write_text(f"{path}.md", text)
  files.write_json(f"{path}.json", {"notes": notes, "rows": rows})
  draw(table, tasks, rows, f"{path}.png")
  return text
