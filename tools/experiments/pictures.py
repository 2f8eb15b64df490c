"""A table as a picture: each seed a dot, the paper's average beside it.

Tables with curves show held-out loss over time, those of layers what each layer
changes, those of speed and of depth at inference what they are about.
"""

from __future__ import annotations

from tools import inspection
from tools.cli import figures
from tools.cli.figures import pyplot
from tools.experiments import (
  declaration,
  depth_inference,
  report,
  results,
)


def draw(told: report.Report, output_file: str) -> None:
  """Writes the PNG, complete or not at all."""
  figure = _figure(told)
  scale = f" (scale {told.scale.name})" if told.seeds else ""
  figure.suptitle(f"{told.table.title}{scale}", x=0.01, ha="left")
  figure.tight_layout()
  figures.save(figure, output_file)


def _figure(told: report.Report):
  if told.table.layers:
    return inspection.plot.similarity_figure(
      {result.row.label: result.layers for result in told.rows}
    )
  if told.table.columns:
    return _speeds(told)
  if told.table.depths:
    return _depths(told)
  return _scores(told)


def _scores(told: report.Report):
  columns = [results.ACCURACY]
  if told.table.tasks:
    columns.append(declaration.AVERAGE)
  papers = [told.paper(r.row, declaration.AVERAGE) for r in told.rows]
  with_paper = told.table.tasks and any(papers)
  panels = len(columns) + with_paper + told.table.curves
  widths = [1.0] * panels
  if told.table.curves:
    widths[-1] = 1.6
  figure, axes = pyplot.subplots(
    *(1, panels),
    figsize=(1.6 + 3.4 * sum(widths), _height(told)),
    squeeze=False,
    width_ratios=widths,
  )
  axes = list(axes[0])
  for axis, column in zip(axes, columns):
    _dots(axis, told, column)
  if with_paper:
    axis = axes[len(columns)]
    _squares(axis, papers)
    _rows(axis, told, f"the paper's {_average_of(told)} (%)", names=False)
  if told.table.curves:
    _curves(axes[-1], told)
  for axis in axes[1 : len(columns)]:
    axis.set_yticklabels([])
  return figure


def _height(told: report.Report) -> float:
  return max(2.6, 0.36 * len(told.rows) + 1.2)


def _dots(axis, told: report.Report, column: str) -> None:
  for place, result in enumerate(told.rows):
    values = result.values.get(column, [])
    # The color tells which curve is whose.
    color = _color(place) if told.table.curves else "tab:blue"
    axis.plot(values, [place] * len(values), "o", color=color, alpha=0.6)
    if values:
      mean = sum(values) / len(values)
      axis.plot([mean], [place], "|", color="black", markersize=14)
  is_held_out = column == results.ACCURACY
  name = "held-out MLM accuracy" if is_held_out else _average_of(told)
  _rows(axis, told, f"{name} (%)")


def _average_of(told: report.Report) -> str:
  """What the average is called: of one task it is that task."""
  return told.tasks[0] if len(told.tasks) == 1 else declaration.AVERAGE


def _color(place: int):
  # The ten strong ones first, then their pale twins.
  return pyplot.get_cmap("tab20")(2 * place % 20 + place // 10 % 2)


def _squares(axis, papers: list[str], label: str = "") -> None:
  """The paper's numbers, where there are some."""
  known = [(place, float(paper)) for place, paper in enumerate(papers) if paper]
  axis.plot(
    [number for _, number in known],
    [place for place, _ in known],
    *("s",),
    color="gray",
    label=label or None,
  )


def _rows(axis, told: report.Report, title: str, names: bool = True) -> None:
  labels = [result.row.label for result in told.rows]
  axis.set_yticks(range(len(labels)))
  axis.set_yticklabels(labels if names else [])
  axis.set_ylim(len(labels) - 0.5, -0.5)
  axis.set_title(title, fontsize=10)
  axis.grid(alpha=0.3)


def _curves(axis, told: report.Report) -> None:
  for place, result in enumerate(told.rows):
    for curve in result.curves:
      axis.plot(
        [point["seconds"] / 60 for point in curve[1:]],
        [point["loss"] for point in curve[1:]],
        color=_color(place),
        alpha=0.8,
        linewidth=1,
      )
  axis.set_title("held-out MLM loss (nats)", fontsize=10)
  axis.set_xlabel("minutes of training")
  axis.grid(alpha=0.3)


def _speeds(told: report.Report):
  """Ours beside the paper's, both relative to one model."""
  figure, axis = pyplot.subplots(figsize=(6.4, _height(told)))
  column = declaration.SPEED
  known = [
    (place, result.number(column))
    for place, result in enumerate(told.rows)
    if result.number(column)
  ]
  axis.plot(
    [number.mean for _, number in known],
    [place for place, _ in known],
    *("o",),
    color="tab:blue",
    label="measured here",
  )
  papers = [told.paper(result.row, column) for result in told.rows]
  _squares(axis, papers, "the paper's")
  _rows(axis, told, f"training speed, {told.table.speed_reference} = 1")
  axis.set_xscale("log")
  ticks = (0.25, 0.5, 1, 2, 4)
  axis.set_xticks(ticks, [str(tick) for tick in ticks])
  axis.minorticks_off()
  axis.legend(fontsize=8)
  return figure


def _depths(told: report.Report):
  """Quality over latency; the points are depths."""
  figure, axes = pyplot.subplots(
    1, len(told.tasks), figsize=(1 + 4.2 * len(told.tasks), 3.6), squeeze=False
  )
  for axis, task in zip(axes[0], told.tasks):
    for place, more in enumerate(("", *depth_inference.MORE)):
      column = depth_inference.column_of(task, more)
      points = [
        (result.number(depth_inference.MILLISECONDS), result.number(column))
        for result in told.rows
      ]
      points = [(time, score) for time, score in points if time and score]
      times = [time.mean for time, _ in points]
      axis.plot(
        times,
        [score.mean for _, score in points],
        *("o-",),
        markersize=3,
        color=f"C{place}",
        label=f"then {depth_inference.MORE_STEPS} steps at {more}"
        if more
        else "fine-tuned",
      )
      axis.fill_between(
        times,
        [score.lowest for _, score in points],
        [score.highest for _, score in points],
        color=f"C{place}",
        alpha=0.15,
      )
    for result, depth in zip(told.rows, told.table.depths):
      time = result.number(depth_inference.MILLISECONDS)
      if time:
        axis.annotate(
          str(depth),
          (time.mean, 0.97),
          xycoords=("data", "axes fraction"),
          fontsize=7,
          ha="center",
          va="top",
        )
    axis.set_xscale("log")
    ticks = (1, 2, 5, 10, 20, 50, 100)
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xlim(*_log_limits(told))
    axis.minorticks_off()
    axis.set_title(f"{task} (%); the small numbers are depths", fontsize=10)
    axis.set_xlabel("milliseconds a sequence")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
  return figure


def _log_limits(told: report.Report) -> tuple[float, float]:
  numbers = [r.number(depth_inference.MILLISECONDS) for r in told.rows]
  times = [number.mean for number in numbers if number]
  return 0.8 * min(times, default=1.0), 1.25 * max(times, default=1.0)
