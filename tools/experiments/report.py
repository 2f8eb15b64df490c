"""Writes and draws the numbers of a table beside the paper's."""

from __future__ import annotations

import os
import statistics
from typing import Any, Mapping, Sequence

from official_albert import files
from official_albert.tools.cli import printing
from official_albert.tools.experiments import tables

_Numbers = Mapping[str, Mapping[str, Sequence[float]]]


def write(
  table: tables.Table,
  tasks: Sequence[str],
  rows: _Numbers,
  notes: str,
  output_dir: str,
) -> str:
  """Writes table_NAME.md, .json and .png; returns the Markdown.

  `rows` are by label, then by column: a number for each seed.
  """
  paper = {
    label: {name: [x] for name, x in row.paper.items()}
    for label, row in table.rows.items()
  }
  parts = {x: [x] for x in (*table.columns, *tasks)}
  if len(tasks) > 1:  # One task is its own average.
    parts["Avg"] = list(tasks)
  columns: dict[str, list[list[float]]] = {}
  for title, names in parts.items():
    columns[title] = _averages(rows, names)
    columns[f"{title}, paper"] = _averages(paper, names)
  columns = {title: x for title, x in columns.items() if any(x)}
  cells = []
  for title, values in columns.items():
    form = ".3f" if title in (tables.SIZE, tables.LOSS) else ".1f"
    cells.append([printing.spread(x, form, statistics.mean) for x in values])
  body = printing.table(["", *columns], zip(table.rows, *cells))
  text = f"## {table.name}: {table.title}\n\n{body}\n\n({notes})\n"
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", text)
  files.write_json(f"{path}.json", {"notes": notes, "rows": rows})
  _draw(table, columns, f"{path}.png")
  return text


def _averages(rows: _Numbers, names: Sequence[str]) -> list[list[float]]:
  """Returns the average of columns for each row: of each seed that has all."""
  return [
    [statistics.mean(x) for x in zip(*(row.get(n, []) for n in names))]
    for row in rows.values()
  ]


def _draw(
  table: tables.Table, columns: Mapping[str, Sequence[Any]], path: str
) -> None:
  """Writes a PNG: each column beside the paper's numbers."""
  figure = printing.make_figure(
    2 + 2.2 * len(columns), max(2.8, 0.36 * len(table.rows) + 1.5)
  )
  axes = figure.subplots(ncols=len(columns), sharey=True)
  for axis, (title, values) in zip(axes, columns.items()):
    for i, numbers in enumerate(values):
      axis.plot(numbers, [i] * len(numbers), "o", color=f"C{i}", alpha=0.6)
    axis.set_title(title, fontsize=9)
  axes[0].set_yticks(range(len(table.rows)), list(table.rows))
  axes[0].set_ylim(len(table.rows) - 0.5, -0.5)
  figure.suptitle(table.title, x=0.01, ha="left")
  printing.save_figure(figure, path)
