"""A table as a picture: each seed a dot, the paper's average beside it.

Tables with curves show held-out loss over time, those of layers what each layer
changes.
"""

from __future__ import annotations

import os

import matplotlib

from tools.experiments import declaration, report, results

matplotlib.use("Agg")

from matplotlib import pyplot


def draw(told: report.Report, output_file: str) -> None:
  """Writes the PNG, under a temporary name that is then changed."""
  figure = _figure(told)
  figure.suptitle(
    f"{told.table.title} (scale {told.scale.name})", x=0.01, ha="left"
  )
  figure.tight_layout()
  temporary = f"{output_file}.tmp"
  figure.savefig(temporary, format="png", dpi=110)
  pyplot.close(figure)
  os.replace(temporary, output_file)


def _figure(told: report.Report):
  if told.table.layers:
    return _layers(told)
  columns = [results.ACCURACY]
  if told.table.tasks:
    columns.append(declaration.AVERAGE)
  papers = [told._paper(r.row, declaration.AVERAGE) for r in told.rows]
  with_paper = told.table.tasks and any(papers)
  panels = len(columns) + with_paper + told.table.curves
  height = max(2.6, 0.36 * len(told.rows) + 1.2)
  figure, axes = pyplot.subplots(
    1, panels, figsize=(1.6 + 3.4 * panels, height), squeeze=False
  )
  axes = list(axes[0])
  for axis, column in zip(axes, columns):
    _dots(axis, told, column)
  if with_paper:
    axis = axes[len(columns)]
    numbers = [float(paper) if paper else None for paper in papers]
    places = [i for i, number in enumerate(numbers) if number is not None]
    axis.plot([numbers[i] for i in places], places, "s", color="gray")
    _rows(axis, told, f"the paper's {declaration.AVERAGE}", names=False)
  if told.table.curves:
    _curves(axes[-1], told)
  for axis in axes[1 : len(columns)]:
    axis.set_yticklabels([])
  return figure


def _dots(axis, told: report.Report, column: str) -> None:
  for place, result in enumerate(told.rows):
    values = result.values.get(column, [])
    axis.plot(values, [place] * len(values), "o", color="tab:blue", alpha=0.6)
    if values:
      mean = sum(values) / len(values)
      axis.plot([mean], [place], "|", color="black", markersize=14)
  title = "held-out MLM accuracy" if column == results.ACCURACY else column
  _rows(axis, told, title)


def _rows(axis, told: report.Report, title: str, names: bool = True) -> None:
  labels = [result.row.label for result in told.rows]
  axis.set_yticks(range(len(labels)))
  axis.set_yticklabels(labels if names else [])
  axis.set_ylim(len(labels) - 0.5, -0.5)
  axis.set_title(f"{title} (%)", fontsize=10)
  axis.grid(alpha=0.3)


def _curves(axis, told: report.Report) -> None:
  for place, result in enumerate(told.rows):
    for i, curve in enumerate(result.curves):
      begun = curve[0][1]
      axis.plot(
        [(seconds - begun) / 60 for _, seconds, _ in curve[1:]],
        [loss for _, _, loss in curve[1:]],
        color=f"C{place}",
        alpha=0.8,
        linewidth=1,
        label=result.row.label if not i else None,
      )
  axis.set_title("held-out MLM loss (nats)", fontsize=10)
  axis.set_xlabel("minutes")
  axis.legend(fontsize=7)
  axis.grid(alpha=0.3)


def _layers(told: report.Report):
  figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4))
  for axis, name, title in zip(
    axes,
    ("l2_distance", "degrees"),
    ("L2 distance of input and output", "angle between them (degrees)"),
  ):
    for place, result in enumerate(told.rows):
      for i, layers in enumerate(result.layers):
        axis.plot(
          [layer["layer"] for layer in layers],
          [layer[name] for layer in layers],
          "o-",
          markersize=3,
          linewidth=1,
          color=f"C{place}",
          label=result.row.label if not i else None,
        )
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("layer")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
  return figure
