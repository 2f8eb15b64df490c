"""Markdown tables."""

from __future__ import annotations

from typing import Any, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns a table with aligned columns; the cells stay as they are."""
  import tabulate  # Here, as few starts of a program print a table.

  return tabulate.tabulate(rows, head, "github", disable_numparse=True)


def line(cells: Iterable[Any]) -> str:
  """Returns one row, for tables that are printed while they are measured."""
  return f"| {' | '.join(map(str, cells))} |"
