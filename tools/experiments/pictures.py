"""Draws a table as a PNG.

Most tables show each seed as a dot, next to the paper's averages. Tables with
curves also show held-out loss over time. Speeds, layers and depths at inference
have pictures of their own.
"""

from __future__ import annotations

from tools import inspection
from tools.cli import figures
from tools.cli.figures import pyplot
from tools.experiments import declaration, report


def draw(made: report.Report, output_file: str) -> None:
  """Writes the PNG of a report."""
  figure = make_figure(made)
  scale = f" (scale {made.scale.name})" if made.seeds else ""
  figure.suptitle(f"{made.table.title}{scale}", x=0.01, ha="left")
  figure.tight_layout()
  figures.save(figure, output_file)


def make_figure(made: report.Report):
  """Returns the Matplotlib figure of a report."""
  first = made.table.rows[0]
  if made.table.layers:
    return inspection.plot.similarity_figure(
      {result.row.label: result.layers for result in made.rows}
    )
  if first.preset:
    return _speeds(made)
  if first.num_applied_layers:
    return _depths(made)
  return _scores(made)


def _scores(made: report.Report):
  """Panels: held-out accuracy, average, the paper's average, curves."""
  average = declaration.AVERAGE
  average_name = made.tasks[0] if len(made.tasks) == 1 else average
  columns = {declaration.ACCURACY: "held-out MLM accuracy (%)"}
  if made.table.tasks:
    columns[average] = f"{average_name} (%)"
  papers = [made.paper(result.row, average) for result in made.rows]
  with_paper = made.table.tasks and any(papers)
  widths = [1.0] * (len(columns) + with_paper) + [1.6] * made.table.curves
  figure, axes = pyplot.subplots(
    *(1, len(widths)),
    figsize=(1.6 + 3.4 * sum(widths), _height(made)),
    squeeze=False,
    width_ratios=widths,
  )
  axes = list(axes[0])
  for i, (column, title) in enumerate(columns.items()):
    _dots(axes[i], made, column)
    _label_rows(axes[i], made, title, labels=i == 0)
  if with_paper:
    axis = axes[len(columns)]
    _squares(axis, papers)
    _label_rows(axis, made, f"the paper's {average_name} (%)", labels=False)
  if made.table.curves:
    _curves(axes[-1], made)
  return figure


def _height(made: report.Report) -> float:
  return max(2.6, 0.36 * len(made.rows) + 1.2)


def _color(row: int):
  # The ten strong colors of the map first, then their pale variants.
  return pyplot.get_cmap("tab20")(2 * row % 20 + row // 10 % 2)


def _dots(axis, made: report.Report, column: str) -> None:
  for i, result in enumerate(made.rows):
    values = result.values.get(column, [])
    # With curves, colors link the dots to them.
    color = _color(i) if made.table.curves else "tab:blue"
    axis.plot(values, [i] * len(values), "o", color=color, alpha=0.6)
    if values:
      mean = sum(values) / len(values)
      axis.plot([mean], [i], "|", color="black", markersize=14)


def _squares(axis, papers: list[str], **options) -> None:
  known = [(i, float(paper)) for i, paper in enumerate(papers) if paper]
  axis.plot(
    [number for _, number in known],
    [i for i, _ in known],
    *("s",),
    color="gray",
    **options,
  )


def _label_rows(axis, made: report.Report, title: str, labels=True) -> None:
  names = [result.row.label for result in made.rows]
  axis.set_yticks(range(len(names)), names if labels else [""] * len(names))
  axis.set_ylim(len(names) - 0.5, -0.5)
  axis.set_title(title, fontsize=10)
  axis.grid(alpha=0.3)


def _curves(axis, made: report.Report) -> None:
  for i, result in enumerate(made.rows):
    for curve in result.curves:
      axis.plot(
        [point["seconds"] / 60 for point in curve[1:]],
        [point["loss"] for point in curve[1:]],
        color=_color(i),
        alpha=0.8,
        linewidth=1,
      )
  axis.set_title("held-out MLM loss (nats)", fontsize=10)
  axis.set_xlabel("minutes of training")
  axis.grid(alpha=0.3)


def _log_ticks(axis, ticks) -> None:
  axis.set_xscale("log")
  axis.set_xticks(ticks, [str(tick) for tick in ticks])
  axis.minorticks_off()


def _speeds(made: report.Report):
  """Our speeds and the paper's, each relative to one model."""
  figure, axis = pyplot.subplots(figsize=(6.4, _height(made)))
  numbers = [result.number(declaration.SPEED) for result in made.rows]
  axis.plot(
    [number.mean for number in numbers if number],
    [i for i, number in enumerate(numbers) if number],
    *("o",),
    color="tab:blue",
    label="measured here",
  )
  papers = [made.paper(result.row, declaration.SPEED) for result in made.rows]
  _squares(axis, papers, label="the paper's")
  reference = made.table.speed_reference
  _label_rows(axis, made, f"training speed, {reference} = 1")
  _log_ticks(axis, (0.25, 0.5, 1, 2, 4))
  axis.legend(fontsize=8)
  return figure


def _depths(made: report.Report):
  """Accuracy over latency, one point per depth."""
  figure, axes = pyplot.subplots(
    1, len(made.tasks), figsize=(1 + 4.2 * len(made.tasks), 3.6), squeeze=False
  )
  latencies = [result.number(declaration.MILLISECONDS) for result in made.rows]
  for axis, task in zip(axes[0], made.tasks):
    for i, more in enumerate(("", *declaration.MORE_TRAINING)):
      column = declaration.task_column(task, more)
      points = [
        (latency.mean, result.number(column))
        for latency, result in zip(latencies, made.rows)
        if latency and result.number(column)
      ]
      times = [time for time, _ in points]
      axis.plot(
        times,
        [score.mean for _, score in points],
        *("o-",),
        markersize=3,
        color=f"C{i}",
        label=f"then {declaration.MORE_STEPS} steps at {more}"
        if more
        else "fine-tuned",
      )
      axis.fill_between(
        times,
        [score.lowest for _, score in points],
        [score.highest for _, score in points],
        color=f"C{i}",
        alpha=0.15,
      )
    for latency, result in zip(latencies, made.rows):
      if latency:
        axis.annotate(
          str(result.row.num_applied_layers),
          (latency.mean, 0.97),
          xycoords=("data", "axes fraction"),
          fontsize=7,
          ha="center",
          va="top",
        )
    _log_ticks(axis, (1, 2, 5, 10, 20, 50, 100))
    means = [latency.mean for latency in latencies if latency]
    axis.set_xlim(0.8 * min(means, default=1.0), 1.25 * max(means, default=1.0))
    axis.set_title(f"{task} (%); the small numbers are depths", fontsize=10)
    axis.set_xlabel("milliseconds per sequence")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
  return figure
