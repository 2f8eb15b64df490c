"""A table's results as Markdown and JSON, with the paper's numbers beside."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Iterable, Mapping, Optional, Sequence

from tools.cli import markdown
from tools.experiments import declaration, results, scales

_DECIMALS = {
  results.LOSS: 3,
  results.SAME_LOSS: 2,
  results.SAME_LOSS_FLOPS: 2,
  results.STEPS: 0,
  declaration.SPEED: 2,
}


@dataclasses.dataclass(frozen=True)
class Report:
  """All there is to say of a table.

  Attributes:
    table, scale: what was run.
    tasks: columns that were fine-tuned.
    seeds: of the runs; none where nothing is trained.
    rows: the numbers.
    failed: of jobs that failed, why.
    missing: jobs that were not run.
    machine: that it was run on, one line.
  """

  table: declaration.Table
  scale: scales.Scale
  tasks: tuple[str, ...]
  seeds: tuple[int, ...]
  rows: Sequence[results.RowResults]
  failed: Mapping[str, str]
  missing: int
  machine: str = ""

  @property
  def verdicts(self) -> dict[str, dict[str, str]]:
    """See `verdicts_of`."""
    return verdicts_of(self.table, self.rows, self.tasks)

  def to_json(self) -> str:
    """Every number of every seed; null is a time that was never reached."""
    told = self.verdicts
    rows = [
      {
        "label": result.row.label,
        "compared_with": self.table.compare.get(result.row.label),
        "parameters": result.parameters,
        "values": {
          column: [number if math.isfinite(number) else None for number in many]
          for column, many in result.values.items()
        },
        "paper": result.row.paper,
        "paper_parameters": result.row.paper_parameters,
        "verdicts": told.get(result.row.label, {}),
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
    """A heading, what was run, the table, and what it shows."""
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
    end = f"Source: {self.table.source}."
    if self.machine:
      end = f"{end} Run on {self.machine}."
    if not self.seeds:
      return end
    s = self.scale
    batch = int(s.training["train_batch_size"])
    steps = s.steps_of(self.table.name)
    tasks = ", ".join(self.tasks if self.table.tasks else ()) or "none"
    rates = {s.peak_rate(self.table.name, row.rate) for row in self.table.rows}
    peak = " or ".join(f"{rate:g}" for rate in sorted(rates, reverse=True))
    return (
      f"Scale {s.name}: {steps:,} steps of {batch:,} x {s.max_seq_length} "
      f"tokens, {s.vocab_size:,} pieces, peak learning rate {peak}; "
      f"fine-tuned on: {tasks}; seeds {', '.join(map(str, self.seeds))}. {end}"
    )

  def _table(self) -> str:
    columns = results.columns(self.table, self.tasks)
    with_paper = [
      column
      for column in columns
      if any(self.paper(result.row, column) for result in self.rows)
    ]
    told = self.verdicts
    kinds = self._kinds()
    header = ["", "parameters"]
    if any(result.row.paper_parameters for result in self.rows):
      header.append("paper's")
    for column in columns:
      header += [column, *(["paper"] if column in with_paper else [])]
    header += [f"direction, by {kind}" for kind in kinds]
    lines = []
    for result in self.rows:
      line = [result.row.label, _millions(result.parameters)]
      if "paper's" in header:
        line.append(result.row.paper_parameters)
      for column in columns:
        line.append(_number(column, result.number(column)))
        if column in with_paper:
          line.append(self.paper(result.row, column))
      verdict = told.get(result.row.label, {})
      line += [verdict.get(kind, "") for kind in kinds]
      lines.append(line)
    return markdown.table(header, lines)

  def paper(self, row: declaration.Row, column: str) -> str:
    """The paper's number as it is shown, "" where it has none."""
    if column == declaration.AVERAGE:
      average = declaration.paper_average(row, list(self.tasks))
      return "" if average is None else f"{average:.1f}"
    value = row.paper.get(column)
    if isinstance(value, tuple):
      parts = "/".join(f"{part:.1f}" for part in value)
      return f"{declaration.score(value):.1f} ({parts})"
    return "" if value is None else f"{value:.1f}"

  def _conclusion(self) -> str:
    told = self.verdicts
    sentences = []
    shown = False  # Whether any direction was seen.
    for kind in self._kinds():
      every = [verdict[kind] for verdict in told.values()]
      counts = count_verdicts(every)
      shown |= bool(counts[AGREES] + counts[DISAGREES])
      if any(counts.values()):
        sentences.append(
          f"By {kind} {counts[AGREES]} agree with the paper, "
          f"{counts[DISAGREES]} disagree, {counts[SPREAD]} "
          "lie within the spread of the seeds."
        )
    if sentences and not shown:
      sentences.append("At this scale the table shows nothing.")
    if self.failed:
      sentences.append(f"{len(self.failed)} jobs failed.")
    if self.missing:
      sentences.append(f"{self.missing} jobs were not run.")
    return " ".join(sentences)

  def _kinds(self) -> list[str]:
    """What verdicts go by, where there are some."""
    return list(
      dict.fromkeys(
        kind
        for verdict in self.verdicts.values()
        for kind, words in verdict.items()
        if words
      )
    )


def _millions(count: Optional[int]) -> str:
  return "" if count is None else f"{count / 1e6:.2f}M"


def _number(column: str, number: Optional[results.Number]) -> str:
  if number is None:
    return ""
  decimals = _DECIMALS.get(column, 1)

  def told(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.{decimals}f}"

  if number.seeds == 1:
    return told(number.mean)
  spread = f"({told(number.lowest)} to {told(number.highest)})"
  return f"{told(number.mean)} {spread}"


AGREES, DISAGREES, SPREAD = "agrees", "disagrees", "within the spread"
# Less is taken for no difference: the paper has the same model's MNLI as 81.6
# and as 82.0, and its averages by one decimal.
_EQUAL = 0.2
ONE_SEED = "one seed"
_WORDS = {1: "higher", 0: "no different", -1: "lower"}


def paper_direction(
  table: declaration.Table, label: str, columns: Sequence[str]
) -> Optional[int]:
  """1 if the paper finds a row better than the one it is compared with.

  Args:
    table: the declaration.
    label: of the row.
    columns: the tasks that the average is over, or one other column.

  Returns:
    1, -1 if it is worse, 0 if hardly different; None if the paper does not say.
  """
  if label in table.paper_says:
    return table.paper_says[label]
  if label not in table.compare:
    return None
  here = declaration.paper_average(table.row(label), list(columns))
  there = declaration.paper_average(
    table.row(table.compare[label]), list(columns)
  )
  if here is None or there is None:
    return None
  if abs(here - there) < _EQUAL:
    return 0
  return 1 if here > there else -1


def our_direction(
  here: Optional[results.Number], there: Optional[results.Number]
) -> Optional[int]:
  """As the paper's: 1 where higher, 0 where the seeds' ranges overlap."""
  if here is None or there is None:
    return None
  if here.lowest <= there.highest and there.lowest <= here.highest:
    return 0
  return 1 if here.mean > there.mean else -1


def verdict(
  paper: Optional[int],
  here: Optional[results.Number],
  there: Optional[results.Number],
) -> str:
  """In words; "" where nothing was run.

  One of `AGREES`, `DISAGREES` and `SPREAD`, with our direction, and the paper's
  where it is another; our direction alone where the paper says none or sees no
  difference; and whether it is of one seed, which has no spread.
  """
  ours = our_direction(here, there)
  if ours is None:
    return ""
  one_seed = f", {ONE_SEED}" if min(here.seeds, there.seeds) == 1 else ""
  if paper is None:
    return _WORDS[ours] + one_seed
  if ours == 0:
    return SPREAD + one_seed
  if ours == paper:
    return f"{AGREES}: {_WORDS[ours]}{one_seed}"
  if paper == 0:  # No direction that one could share.
    return f"{_WORDS[ours]}, paper no different{one_seed}"
  return f"{DISAGREES}: {_WORDS[ours]}, paper {_WORDS[paper]}{one_seed}"


def count_verdicts(told: Iterable[str]) -> dict[str, int]:
  """How often each kind of verdict was given; of one seed it is none."""
  told = list(told)
  return {
    kind: sum(v.startswith(kind) and ONE_SEED not in v for v in told)
    for kind in (AGREES, DISAGREES, SPREAD)
  }


def verdicts_of(
  table: declaration.Table,
  rows: Sequence[results.RowResults],
  tasks: Sequence[str],
) -> dict[str, dict[str, str]]:
  """By label, and by what they go by, the verdicts of each row compared.

  "tasks" compares averages over the tasks that were run with the paper's over
  the same ones; "MLM" our held-out accuracy with the paper's, or where it has
  none, as in most of its tables, with its direction on its own average; "NSP"
  and "SOP" those accuracies, where a table has them. A table with another
  `direction` has one verdict, by that column.
  """
  told = {}
  for label in table.compare:
    paper = table.row(label).paper
    every = [task for task in declaration.TASKS if task in paper]
    if table.direction == declaration.AVERAGE:
      held_out = [results.ACCURACY] if results.ACCURACY in paper else every
      told[label] = {
        "tasks": _of_row(table, rows, label, tasks, declaration.AVERAGE),
        "MLM": _of_row(table, rows, label, held_out, results.ACCURACY),
      }
      for column in (pair.upper() for pair in table.pairs):
        told[label][column] = _of_row(table, rows, label, [column], column)
    else:
      verdict_ = _of_row(table, rows, label, every, table.direction)
      told[label] = {table.direction: verdict_}
  return told


def _of_row(
  table: declaration.Table,
  rows: Sequence[results.RowResults],
  label: str,
  columns: Sequence[str],
  shown: str,
) -> str:
  """The paper's direction by `columns`, ours by the column `shown`."""
  numbers = {result.row.label: result.number(shown) for result in rows}
  return verdict(
    paper_direction(table, label, columns),
    numbers[label],
    numbers[table.compare[label]],
  )
