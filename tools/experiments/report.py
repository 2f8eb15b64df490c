"""Reports a table as Markdown and JSON, next to the paper's numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Mapping, Optional, Sequence

from tools.cli import markdown
from tools.experiments import declaration, results, scales

_DECIMALS = {
  declaration.LOSS: 3,
  declaration.SAME_LOSS: 2,
  declaration.SAME_LOSS_FLOPS: 2,
  declaration.STEPS: 0,
  declaration.SPEED: 2,
}


@dataclasses.dataclass(frozen=True)
class Report:
  """The results of a table and how they were obtained.

  Attributes:
    table, scale: what was run.
    tasks: columns that were fine-tuned.
    seeds: of the runs; empty where nothing is trained.
    rows: the numbers.
    failed: by key of a failed job, the reason.
    missing: number of jobs that were not run.
    machine: one line.
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
    parts = [
      f"## {f'Table {name}' if name[0].isdigit() else name}: "
      f"{self.table.title}",
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
    columns = self.table.columns(self.tasks)
    with_paper = {
      column
      for column in columns
      if any(self.paper(result.row, column) for result in self.rows)
    }
    verdicts, bases = self.verdicts, self._verdict_bases()
    header = ["", "parameters"]
    if any(result.row.paper_parameters for result in self.rows):
      header.append("paper's")
    for column in columns:
      header += [column, *(["paper"] if column in with_paper else [])]
    header += [f"direction, by {base}" for base in bases]
    lines = []
    for result in self.rows:
      count = result.parameters
      line = [result.row.label, "" if count is None else f"{count / 1e6:.2f}M"]
      if "paper's" in header:
        line.append(result.row.paper_parameters)
      for column in columns:
        line.append(_format(column, result.number(column)))
        if column in with_paper:
          line.append(self.paper(result.row, column))
      verdict = verdicts.get(result.row.label, {})
      lines.append(line + [verdict.get(base, "") for base in bases])
    return markdown.table(header, lines)

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
    bases = (
      base
      for verdict in self.verdicts.values()
      for base, words in verdict.items()
      if words
    )
    return list(dict.fromkeys(bases))


def _format(column: str, number: Optional[results.Number]) -> str:
  if number is None:
    return ""
  decimals = _DECIMALS.get(column, 1)
  mean, lowest, highest = (
    "never" if math.isinf(value) else f"{value:.{decimals}f}"
    for value in number[:3]
  )
  return mean if number.seeds == 1 else f"{mean} ({lowest} to {highest})"
