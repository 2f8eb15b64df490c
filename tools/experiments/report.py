"""Reports a table as Markdown, JSON and PNG, next to the paper's numbers."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import statistics
from typing import Any, Mapping, Optional, Sequence

from official_albert.tools import inspection
from official_albert.tools.cli import printing
from official_albert.tools.experiments import results, scales, tables

_DECIMALS = {
  tables.LOSS: 3,
  tables.SAME_LOSS: 2,
  tables.SAME_LOSS_FLOPS: 2,
  tables.STEPS: 0,
  tables.SPEED: 2,
}
# Percent of guesses that are right, for results of earlier versions, which lack
# the share of the most frequent answer.
_CHANCE = {"MNLI": 100 / 3, "SST-2": 50.0, "RACE": 25.0}


@dataclasses.dataclass(frozen=True)
class Report:
  """The results of a table and how they were obtained."""

  table: tables.Table
  scale: scales.Scale
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]  # Empty if nothing is trained.
  rows: Sequence[results.RowResults]
  failed: Mapping[str, str]  # The reason by the key of a failed job.
  missing: int  # Jobs that were not run.
  machine: str = ""

  @property
  def verdicts(self) -> dict[str, dict[str, str]]:
    """See `results.verdicts`."""
    return results.verdicts(self.table, self.rows, self.tasks)

  def to_json(self) -> dict[str, Any]:
    """Returns every number of every seed; None is a loss never reached."""
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
        "verdicts": self.verdicts.get(result.row.label, {}),
        "curves": result.curves,
        "layers": result.layers,
      }
      for result in self.rows
    ]
    return {
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

  def to_markdown(self) -> str:
    """Returns a heading, the question, the table, and how it was made."""
    name = self.table.name
    heading = f"Table {name}" if name[0].isdigit() else name
    parts = [
      f"## {heading}: {self.table.title}",
      self.table.question,
      self._table(),
      self._settings(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"

  def _settings(self) -> str:
    """Returns what differs between tables, and what is missing."""
    s, name, parts = self.scale, self.table.name, []
    if self.seeds:
      parts = [
        f"scale {s.name}",
        f"{s.steps_of(name):,} steps",
        f"peak learning rate {s.training['learning_rate']:g}",
        f"seeds {', '.join(map(str, self.seeds))}",
      ]
    parts += [self.machine] if self.machine else []
    counts = {"failed": len(self.failed), "were not run": self.missing}
    parts += [f"{count} jobs {what}" for what, count in counts.items() if count]
    return f"({'; '.join(parts)})" if parts else ""

  def _table(self) -> str:
    """Returns the rows; without the paper's columns that would be empty."""
    sizes = [result.parameters for result in self.rows]
    # Titles and cells, as two columns may have the same title.
    columns = [
      ("", [result.row.label for result in self.rows]),
      (
        "parameters",
        ["" if size is None else f"{size / 1e6:.2f}M" for size in sizes],
      ),
      ("paper's", [result.row.paper_parameters for result in self.rows]),
    ]
    for title in self.table.titles(self.tasks):
      papers = [self.paper(result.row, title) for result in self.rows]
      if any(row.runs for row in self.table.rows):
        numbers = [_format(title, r.number(title)) for r in self.rows]
        columns += [(title, numbers), ("paper", papers)]
      else:
        columns.append((title, papers))
    verdicts = self.verdicts
    bases = dict.fromkeys(itertools.chain(*verdicts.values()))
    for base in bases:
      words = [verdicts.get(r.row.label, {}).get(base, "") for r in self.rows]
      columns.append((f"by {base}", words))
    shown = [
      (title, cells)
      for title, cells in columns
      if any(cells) or title not in ("parameters", "paper's", "paper")
    ]
    header, cells = zip(*shown)
    return printing.table(header, list(zip(*cells)))

  def paper(self, row: tables.Row, column: str) -> str:
    """Returns the paper's number as text, "" where it has none."""
    if column == tables.AVERAGE and row.runs:
      average = row.paper_average(self.tasks)
      return "" if average is None else f"{average:.1f}"
    value = row.paper.get(column)
    if isinstance(value, tuple):
      parts = "/".join(f"{part:.1f}" for part in value)
      return f"{tables.mean_score(value):.1f} ({parts})"
    return "" if value is None else f"{value:.1f}"

  def figure(self):
    """Returns the Matplotlib figure; None if the table says as much."""
    layers = {r.row.label: r.layers for r in self.rows if r.layers}
    if tables.JUMP in self.table.columns:
      figure = inspection.plot.similarity_figure(layers) if layers else None
    elif tables.MILLISECONDS in self.table.columns:
      figure = _depths(self)
    else:
      figure = _scores(self)
    if figure:
      scale = f" (scale {self.scale.name})" if self.seeds else ""
      figure.suptitle(f"{self.table.title}{scale}", x=0.01, ha="left")
      figure.set_layout_engine("constrained")
    return figure

  def draw(self, output_file: str) -> None:
    """Writes the figure, if there is one, as a PNG."""
    if figure := self.figure():
      printing.save_figure(figure, output_file)


def score(reports: Sequence[Report]) -> str:
  """Returns how many directions of the paper the tables show, as Markdown."""
  counts = {
    f"{made.table.name}: {made.table.title}": collections.Counter(
      (kind, base == "tasks")
      for verdict in made.verdicts.values()
      for base, words in verdict.items()
      for kind in results.KINDS
      if words.startswith(kind)
    )
    for made in reports
  }
  total = counts["all"] = sum(counts.values(), collections.Counter())
  if not total:
    return ""
  shown, contradicted, unresolved = (
    total[kind, True] + total[kind, False] for kind in results.KINDS
  )
  cells = [
    (
      title,
      *(
        " / ".join(str(count[kind, by_tasks]) for kind in results.KINDS)
        for by_tasks in (True, False)
      ),
    )
    for title, count in counts.items()
    if count
  ]
  kinds = " / ".join(results.KINDS)
  return (
    f"Of {shown + contradicted + unresolved} directions of the paper, {shown} "
    f"are shown, {contradicted} contradicted, and {unresolved} not resolved "
    "(the ranges of the seeds overlap, or there is one seed).\n\n"
    + printing.table([kinds, "by tasks", "by pretraining"], cells)
    + "\n"
  )


def _format(column: str, number: Optional[results.Number]) -> str:
  if number is None:
    return ""
  decimals = _DECIMALS.get(column, 1)
  mean, lowest, highest = (
    "never" if math.isinf(value) else f"{value:.{decimals}f}"
    for value in number[:3]
  )
  return mean if number.seeds == 1 else f"{mean} ({lowest} to {highest})"


def _chance(made: Report, column: str) -> Optional[float]:
  """Returns the accuracy of guesses in percent; None if it has none."""
  columns = made.tasks if column == tables.AVERAGE else (column,)
  known = []
  for name in columns:
    found = [result.number(f"{name} chance") for result in made.rows]
    numbers = [number.mean for number in found if number]
    known.append(numbers[0] if numbers else _CHANCE.get(name, math.nan))
  return None if math.isnan(sum(known)) else statistics.mean(known)


def _scores(made: Report):
  """Draws each measured score, next to the paper's, and held-out losses.

  A table of two rows is as clear as a picture of its scores.
  """
  table, rows = made.table, [r for r in made.rows if r.values]
  # More panels than these are too small to read.
  hidden = made.tasks if len(made.tasks) > 2 else (tables.AVERAGE,)
  columns = [
    column
    for column in table.titles(made.tasks)
    if (column not in (*hidden, *_DECIMALS) or not table.trains)
    and column not in (tables.FLOPS, tables.TOKENS)
    and len(table.rows) > 2
    and any(column in result.values for result in rows)
  ]
  # A panel for our numbers and, unless it would be empty, one for the paper's.
  panels = [
    (column, is_paper)
    for column in columns
    for is_paper in (False, True)
    if not is_paper or any(made.paper(result.row, column) for result in rows)
  ]
  curves = table.curves and any(result.curves for result in rows)
  widths = [0.6 if is_paper else 1.0 for _, is_paper in panels]
  widths += [2.0] * curves
  if not widths:
    return None
  figure, [axes] = printing.load_pyplot().subplots(
    ncols=len(widths),
    figsize=(2 + 1.8 * sum(widths), max(2.8, 0.36 * len(rows) + 1.5)),
    squeeze=False,
    width_ratios=widths,
  )
  marks = {}  # For the legend.
  for axis, (column, is_paper) in zip(axes, panels):
    title = column if column == tables.SPEED else f"{column} (%)"
    axis.set_title("paper" if is_paper else title)
    for i, result in enumerate(rows):
      paper = made.paper(result.row, column).split(" ")[0]
      if is_paper and paper:
        [marks["the paper"]] = axis.plot([float(paper)], [i], "s", color="gray")
      elif number := None if is_paper else result.number(column):
        values = result.values[column]
        color = f"C{i}" if curves else "C0"
        [marks["a seed"]] = axis.plot(
          values, [i] * len(values), "o", color=color, alpha=0.6
        )
        [marks["mean"]] = axis.plot(
          [number.mean], [i], "|k", markersize=14, markeredgewidth=2
        )
    if not is_paper and (chance := _chance(made, column)):
      marks["chance"] = axis.axvline(chance, color="C3", linestyle="--")
    axis.xaxis.get_major_locator().set_params(nbins=2 if is_paper else 4)
    axis.set_yticks(range(len(rows)), [""] * len(rows))
    axis.set_ylim(len(rows) - 0.5, -0.5)
  if panels:
    axes[0].set_yticklabels([result.row.label for result in rows])
    figure.legend(
      marks.values(), marks, loc="outside lower left", ncols=4, fontsize=8
    )
  if curves:
    for i, result in enumerate(rows):
      for number, curve in enumerate(result.curves):
        minutes = [point["seconds"] / 60 for point in curve[1:]]
        losses = [point["loss"] for point in curve[1:]]
        label = "_" if number else result.row.label  # Once per row.
        axes[-1].plot(minutes, losses, color=f"C{i}", linewidth=1, label=label)
    axes[-1].set_title("held-out MLM loss (nats)")
    axes[-1].set_xlabel("minutes of training")
    axes[-1].legend(fontsize=7)
  for axis in axes:
    axis.grid(alpha=0.3)
  return figure


def _depths(made: Report):
  """Draws accuracy over latency, one point per depth."""
  tasks = [t for t in made.tasks if any(t in r.values for r in made.rows)]
  if not tasks:
    return None
  figure, [axes] = printing.load_pyplot().subplots(
    ncols=len(tasks), figsize=(1 + 4.2 * len(tasks), 3.6), squeeze=False
  )
  for axis, task in zip(axes, tasks):
    for more in ("", *tables.MORE_TRAINING):
      column = tables.task_column(task, more)
      points = [
        (time.mean, *number[:3])
        for result in made.rows
        if (time := result.number(tables.MILLISECONDS))
        and (number := result.number(column))
      ]
      x, means, lowest, highest = zip(*points) if points else [()] * 4
      label = f"then {tables.MORE_STEPS} steps at {more}"
      axis.plot(
        x, means, "o-", markersize=3, label=label if more else "fine-tuned"
      )
      axis.fill_between(x, lowest, highest, alpha=0.15)
    if chance := _chance(made, task):
      axis.axhline(chance, color="C3", linestyle="--", label="chance")
    axis.set_title(f"{task} (%) at each depth", fontsize=10)
    axis.set_xlabel("milliseconds per sequence")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
  return figure
