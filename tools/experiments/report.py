"""Reports a table as Markdown, JSON and PNG, next to the paper's numbers.

Most pictures show each seed as a dot, next to the paper's averages. Tables with
curves also show held-out loss over time. Speeds, layers and depths at inference
have pictures of their own.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Mapping, Optional, Sequence

from tools import inspection
from tools.cli import printing
from tools.experiments import declaration, results, scales

pyplot = printing.load_pyplot()

_DECIMALS = {
  declaration.LOSS: 3,
  declaration.SAME_LOSS: 2,
  declaration.SAME_LOSS_FLOPS: 2,
  declaration.STEPS: 0,
  declaration.SPEED: 2,
}


@dataclasses.dataclass(frozen=True)
class Report:
  """The results of a table and how they were obtained."""

  table: declaration.Table
  scale: scales.Scale
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]  # Empty where nothing is trained.
  rows: Sequence[results.RowResults]
  failed: Mapping[str, str]  # The reason by the key of a job.
  missing: int  # Number of jobs that were not run.
  machine: str = ""

  @property
  def verdicts(self) -> dict[str, dict[str, str]]:
    """See `results.verdicts`."""
    return results.verdicts(self.table, self.rows, self.tasks)

  def to_json(self) -> str:
    """Returns every number of every seed; null is a loss never reached."""
    verdicts = self.verdicts
    rows = [
      {
        "label": result.row.label,
        "compared_with": result.row.compared_with,
        "parameters": result.parameters,
        "values": {
          column: [n if math.isfinite(n) else None for n in numbers]
          for column, numbers in result.values.items()
        },
        "paper": result.row.paper,
        "paper_parameters": result.row.paper_parameters,
        "verdicts": verdicts.get(result.row.label, {}),
        "curves": result.curves,
        "layers": result.layers,
      }
      for result in self.rows
    ]
    record = {
      "table": self.table.name,
      "title": self.table.title,
      "source": self.table.source,
      "scale": self.scale.name,
      "steps": self.scale.steps_of(self.table.name) if self.seeds else 0,
      "tasks": self.tasks,
      "seeds": self.seeds,
      "machine": self.machine,
      "failed": dict(self.failed),
      "missing": self.missing,
      "rows": rows,
    }
    return json.dumps(record, indent=1) + "\n"

  def to_markdown(self) -> str:
    """Returns a heading, the settings, the table, and a conclusion."""
    name = self.table.name
    heading = f"Table {name}" if name[0].isdigit() else name
    parts = [
      f"## {heading}: {self.table.title}",
      self.table.question,
      self._settings(),
      self._table(),
      self._conclusion(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"

  def _settings(self) -> str:
    source = f"Source: {self.table.source}."
    if self.machine:
      source = f"{source} Run on {self.machine}."
    if not self.seeds:
      return source
    s, name = self.scale, self.table.name
    tasks = ", ".join(self.tasks if self.table.tasks else ()) or "none"
    rates = {s.peak_rate(name, row.rate) for row in self.table.rows}
    peak = " or ".join(f"{rate:g}" for rate in sorted(rates, reverse=True))
    return (
      f"Scale {s.name}: {s.steps_of(name):,} steps of "
      f"{int(s.training['train_batch_size']):,} x {s.max_seq_length} "
      f"tokens, {s.vocab_size:,} pieces, peak learning rate {peak}; "
      f"fine-tuned on: {tasks}; seeds {', '.join(map(str, self.seeds))}. "
      f"{source}"
    )

  def _table(self) -> str:
    """Returns the rows; columns that would be empty are left out."""
    verdicts, bases = self.verdicts, self._verdict_bases()
    columns = {
      "": [result.row.label for result in self.rows],
      "parameters": [
        "" if result.parameters is None else f"{result.parameters / 1e6:.2f}M"
        for result in self.rows
      ],
    }
    printed = [result.row.paper_parameters for result in self.rows]
    if any(printed):
      columns["paper's"] = printed
    header, cells = list(columns), list(columns.values())
    for column in self.table.columns(self.tasks):
      header.append(column)
      cells.append([_format(column, r.number(column)) for r in self.rows])
      papers = [self.paper(result.row, column) for result in self.rows]
      if any(papers):
        header.append("paper")
        cells.append(papers)
    for base in bases:
      header.append(f"direction, by {base}")
      labels = [result.row.label for result in self.rows]
      cells.append([verdicts.get(label, {}).get(base, "") for label in labels])
    return printing.table(header, list(zip(*cells)))

  def paper(self, row: declaration.Row, column: str) -> str:
    """Returns the paper's number as text, "" where it has none."""
    if column == declaration.AVERAGE:
      average = row.paper_average(self.tasks)
      return "" if average is None else f"{average:.1f}"
    value = row.paper.get(column)
    if isinstance(value, tuple):
      parts = "/".join(f"{part:.1f}" for part in value)
      return f"{declaration.score(value):.1f} ({parts})"
    return "" if value is None else f"{value:.1f}"

  def _conclusion(self) -> str:
    sentences = []
    any_direction = False
    for base in self._verdict_bases():
      # One seed has no spread, so its verdicts don't count.
      words = [
        verdict[base]
        for verdict in self.verdicts.values()
        if results.ONE_SEED not in verdict[base]
      ]
      agree, disagree, spread = (
        sum(word.startswith(kind) for word in words)
        for kind in (results.AGREES, results.DISAGREES, results.SPREAD)
      )
      any_direction |= bool(agree + disagree)
      if agree + disagree + spread:
        sentences.append(
          f"By {base} {agree} agree with the paper, {disagree} disagree, "
          f"{spread} lie within the spread of the seeds."
        )
    if sentences and not any_direction:
      sentences.append("At this scale the table shows nothing.")
    if self.failed:
      sentences.append(f"{len(self.failed)} jobs failed.")
    if self.missing:
      sentences.append(f"{self.missing} jobs were not run.")
    return " ".join(sentences)

  def _verdict_bases(self) -> list[str]:
    """Returns what verdicts are based on, where there are any."""
    bases: dict[str, None] = {}
    for verdict in self.verdicts.values():
      bases |= {base: None for base, words in verdict.items() if words}
    return list(bases)

  def figure(self):
    """Returns the Matplotlib figure of the table."""
    first = self.table.rows[0]
    if self.table.layers:
      figure = inspection.plot.similarity_figure(
        {result.row.label: result.layers for result in self.rows}
      )
    elif first.preset:
      figure = _speeds(self)
    elif first.num_applied_layers:
      figure = _depths(self)
    else:
      figure = _scores(self)
    scale = f" (scale {self.scale.name})" if self.seeds else ""
    figure.suptitle(f"{self.table.title}{scale}", x=0.01, ha="left")
    figure.tight_layout()
    return figure

  def draw(self, output_file: str) -> None:
    """Writes the figure as a PNG."""
    printing.save_figure(self.figure(), output_file)


def _format(column: str, number: Optional[results.Number]) -> str:
  if number is None:
    return ""
  decimals = _DECIMALS.get(column, 1)
  mean, lowest, highest = (
    "never" if math.isinf(value) else f"{value:.{decimals}f}"
    for value in number[:3]
  )
  return mean if number.seeds == 1 else f"{mean} ({lowest} to {highest})"


def _scores(made: Report):
  """Draws held-out accuracy, our average, the paper's average, and curves."""
  average = declaration.AVERAGE
  average_name = made.tasks[0] if len(made.tasks) == 1 else average
  columns = {declaration.ACCURACY: "held-out MLM accuracy (%)"}
  if made.table.tasks:
    columns[average] = f"{average_name} (%)"
  papers = [made.paper(result.row, average) for result in made.rows]
  with_paper = made.table.tasks and any(papers)
  widths = [1.0] * (len(columns) + with_paper) + [1.6] * made.table.curves
  figure, [axes] = pyplot.subplots(
    *(1, len(widths)),
    figsize=(1.6 + 3.4 * sum(widths), _height(made)),
    squeeze=False,
    width_ratios=widths,
  )
  for i, (column, title) in enumerate(columns.items()):
    _label_rows(axes[i], made, title, labels=i == 0)
    for row, result in enumerate(made.rows):
      values = result.values.get(column, [])
      # With curves, colors link the dots to them.
      color = _color(row) if made.table.curves else "tab:blue"
      axes[i].plot(values, [row] * len(values), "o", color=color, alpha=0.6)
      if number := result.number(column):
        axes[i].plot([number.mean], [row], "|", color="black", markersize=14)
  if with_paper:
    axis = axes[len(columns)]
    _squares(axis, papers)
    _label_rows(axis, made, f"the paper's {average_name} (%)", labels=False)
  if made.table.curves:
    for i, result in enumerate(made.rows):
      for curve in result.curves:
        minutes = [point["seconds"] / 60 for point in curve[1:]]
        losses = [point["loss"] for point in curve[1:]]
        axes[-1].plot(minutes, losses, color=_color(i), alpha=0.8, linewidth=1)
    axes[-1].set_title("held-out MLM loss (nats)", fontsize=10)
    axes[-1].set_xlabel("minutes of training")
    axes[-1].grid(alpha=0.3)
  return figure


def _height(made: Report) -> float:
  return max(2.6, 0.36 * len(made.rows) + 1.2)


def _color(row: int):
  # The ten strong colors of the map first, then their pale variants.
  return pyplot.get_cmap("tab20")(2 * row % 20 + row // 10 % 2)


def _squares(axis, papers: Sequence[str], **options) -> None:
  known = {i: float(paper) for i, paper in enumerate(papers) if paper}
  axis.plot(list(known.values()), list(known), "s", color="gray", **options)


def _label_rows(axis, made: Report, title: str, labels: bool = True) -> None:
  names = [result.row.label for result in made.rows]
  axis.set_yticks(range(len(names)), names if labels else [""] * len(names))
  axis.set_ylim(len(names) - 0.5, -0.5)
  axis.set_title(title, fontsize=10)
  axis.grid(alpha=0.3)


def _log_ticks(axis, ticks: Sequence[float]) -> None:
  axis.set_xscale("log")
  axis.set_xticks(ticks, [str(tick) for tick in ticks])
  axis.minorticks_off()


def _speeds(made: Report):
  """Draws our speeds and the paper's, each relative to one model."""
  figure, axis = pyplot.subplots(figsize=(6.4, _height(made)))
  numbers = [result.number(declaration.SPEED) for result in made.rows]
  known = {i: number.mean for i, number in enumerate(numbers) if number}
  axis.plot(
    *(list(known.values()), list(known), "o"),
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


def _depths(made: Report):
  """Draws accuracy over latency, one point per depth."""
  figure, [axes] = pyplot.subplots(
    1, len(made.tasks), figsize=(1 + 4.2 * len(made.tasks), 3.6), squeeze=False
  )
  measured = [
    (result.number(declaration.MILLISECONDS).mean, result)
    for result in made.rows
    if result.number(declaration.MILLISECONDS)
  ]
  times = [time for time, _ in measured]
  for axis, task in zip(axes, made.tasks):
    for i, more in enumerate(("", *declaration.MORE_TRAINING)):
      column = declaration.task_column(task, more)
      points = [
        (time, *result.number(column)[:3])
        for time, result in measured
        if result.number(column)
      ]
      x, means, lowest, highest = zip(*points) if points else [()] * 4
      label = f"then {declaration.MORE_STEPS} steps at {more}"
      axis.plot(
        *(x, means, "o-"),
        markersize=3,
        color=f"C{i}",
        label=label if more else "fine-tuned",
      )
      axis.fill_between(x, lowest, highest, color=f"C{i}", alpha=0.15)
    for time, result in measured:
      axis.annotate(
        str(result.row.num_applied_layers),
        (time, 0.97),
        xycoords=("data", "axes fraction"),
        fontsize=7,
        ha="center",
        va="top",
      )
    _log_ticks(axis, (1, 2, 5, 10, 20, 50, 100))
    axis.set_xlim(0.8 * min(times, default=1.0), 1.25 * max(times, default=1.0))
    axis.set_title(f"{task} (%); the small numbers are depths", fontsize=10)
    axis.set_xlabel("milliseconds per sequence")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
  return figure
