"""Markdown tables."""

from __future__ import annotations

from typing import Any, Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns a table with aligned columns; the cells stay as they are."""
  import tabulate  # Here, as few starts of a program print a table.

  return tabulate.tabulate(rows, columns, "github", disable_numparse=True)


def head(cells: Sequence[str]) -> str:
  """Returns the head of a table whose rows are printed as they are measured."""
  return f"{row(cells)}\n|{'---|' * len(cells)}"


def row(cells: Iterable[Any]) -> str:
  """Returns one row below `head`."""
  return f"| {' | '.join(map(str, cells))} |"
