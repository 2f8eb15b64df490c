"""Reads the numbers of finished commands, judges, writes and draws them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
import statistics
from typing import Any, Mapping, Optional, Sequence

from official_albert import files, run_logs
from official_albert.config import AlbertConfig
from official_albert.tools.cli import printing
from official_albert.tools.experiments import tables
from official_albert.tools.experiments.tables import Row, Table

SHOWN, CONTRADICTED, NOT_RESOLVED = KINDS = (
  "shown",
  "contradicted",
  "not resolved",
)
# Smaller differences count as none: the paper prints the MNLI of one model as
# 81.6 and as 82.0, and its averages with one decimal.
_EQUAL = 0.2
_WORDS = {1: "higher", 0: "no different", -1: "lower"}
_DECIMALS = {**{tables.LOSS: 3, tables.STEPS: 0, tables.SPEED: 2}}
# By label, then by column: a number for each seed.
Rows = Mapping[str, Mapping[str, list[Any]]]


def read_json(path: str) -> dict[str, Any]:
  """Returns the object in a JSON file of a finished command."""
  return files.read_json(path, dict[str, Any], "remove it to run the job again")


def read_pretraining(folder: str, config: AlbertConfig) -> dict[str, Any]:
  """Returns the numbers of a run of a model.

  `curve` has the `step` and `loss` of each evaluation.
  """
  evaluations = run_logs.read_metrics(folder, "eval")
  last = evaluations[-1]
  return {
    "parameters": config.parameter_count(),
    tables.STEPS: int(last["step"]),
    tables.LOSS: last["masked_lm_loss"],
    tables.ACCURACY: 100 * last["masked_lm_accuracy"],
    "curve": [
      {"step": record["step"], "loss": record["masked_lm_loss"]}
      for record in evaluations
    ],
  }


def read_speed(folder: str) -> dict[str, float]:
  """Returns the median speed of a run."""
  log = run_logs.read_report(os.path.join(folder, run_logs.METRICS_FILE))
  return {tables.TOKENS: run_logs.summarize_run(log)["tokens_per_second"]}


def read_pair(metrics_file: str, folder: str, pair: str) -> dict[str, float]:
  """Returns the accuracy of a sentence objective, in percent, and its chance.

  Chance is the share of the more frequent label. In NSP that is more than half,
  because a segment cannot be followed by its document's next if there is none.
  Records of --masking=dynamic have no order yet: half of the pairs are swapped.

  The records of SOP also give the masked-LM metrics, because their text and
  masks are the same for all rows.
  """
  metrics = read_json(metrics_file)
  manifest = read_json(os.path.join(folder, "dataset.json"))
  heldout = manifest["splits"].get("heldout", manifest["splits"]["train"])
  # Not in the statistics where it is drawn as the records are read.
  share = heldout["statistics"].get("label_1_share", 0.5)
  values = {
    pair: 100 * metrics["sentence_order_accuracy"],
    f"{pair} chance": 100 * max(share, 1 - share),
  }
  if pair == tables.SOP:
    values[tables.LOSS] = metrics["masked_lm_loss"]
    values[tables.ACCURACY] = 100 * metrics["masked_lm_accuracy"]
  return values


def read_layers(path: str) -> dict[str, float]:
  """Returns the angles of the first and last layer and their largest change."""
  layers = read_json(path)["models"][0]["layers"]
  degrees = [layer["degrees"] for layer in layers]
  jumps = [abs(a - b) for a, b in itertools.pairwise(degrees)]
  names = tables.FIRST, tables.LAST, tables.JUMP
  return dict(zip(names, (degrees[0], degrees[-1], max(jumps, default=0.0))))


def read_finetuning(folder: str, task: str) -> dict[str, float]:
  """Returns the result of a task in percent.

  That of SQuAD is the mean of F1 and exact match, as in the paper's average.
  """
  found = read_json(os.path.join(folder, "eval_results.json"))
  first = next(iter(found.values()))
  if not task.startswith("SQuAD"):
    return {task: 100 * first["accuracy"]}
  # The paper's numbers of SQuAD 2.0 are those of the best thresholds.
  f1 = first.get("best_f1", first["f1"])
  names = ("best_exact", "exact", "exact_match")
  exact = next(first[name] for name in names if name in first)
  return {task: (f1 + exact) / 2}


def collect(
  table: Table, found: Mapping[tuple[str, int], Mapping[str, Any]]
) -> Rows:
  """Arranges the numbers by row and seed, and adds those that compare rows."""
  rows: Rows = {label: collections.defaultdict(list) for label in table.rows}
  for (label, seed), values in found.items():
    values = dict(values)
    fastest = found.get((tables.SPEED_REFERENCE, seed), {}).get(tables.TOKENS)
    # Measured once for all seeds.
    if fastest and tables.TOKENS in values and seed == next(iter(found))[1]:
      values[tables.SPEED] = values[tables.TOKENS] / fastest
    for name, value in values.items():
      rows[label][name].append(value)
  return rows


@dataclasses.dataclass(frozen=True)
class Report:
  """The results of a table; `notes` say how they were obtained."""

  table: Table
  tasks: Sequence[str]
  rows: Rows
  notes: str

  def values(self, row: Row, column: str) -> list[float]:
    """Returns a number for each seed."""
    found = self.rows[row.label]
    if column != tables.AVERAGE:
      return found.get(column, [])
    scores = [found.get(task, []) for task in self.tasks]
    return [statistics.mean(x) for x in zip(*scores)]

  def paper(self, row: Row, column: str) -> str:
    """Returns the paper's number as text, "" where it has none."""
    mean = row.average(self.tasks if column == tables.AVERAGE else [column])
    values = row.paper.get(column, ())
    parts = f" ({'/'.join(map(str, values))})" if len(values) > 1 else ""
    return "" if math.isnan(mean) else f"{mean:.1f}{parts}"

  def verdicts(self) -> dict[str, dict[str, str]]:
    """Judges each row that is compared with another.

    Returns a verdict by label, then by what it is based on, if measured:
    "tasks" compares averages over the tasks that were run with the paper's over
    the same tasks; "MLM" compares held-out accuracy with the paper's or, where
    the paper has none, with the direction of its own average; "NSP" and "SOP"
    compare accuracies, unless a row trained no such head or neither learned it.
    A table without tasks has one, based on layers or on held-out accuracy.
    """
    found, table, tasks = {}, self.table, self.tasks
    for row in (row for row in table.rows.values() if row.compared_with):
      both = row, table.rows[row.compared_with]
      paper_tasks = [task for task in tables.TASKS if task in row.paper]
      # Our column, and the paper's.
      own = [tables.ACCURACY] if tables.ACCURACY in row.paper else paper_tasks
      bases: dict[str, Sequence[str]] = {tables.ACCURACY: own}
      if tables.SCORES in table.columns:
        bases = {tables.AVERAGE: tasks, **bases}
      elif tables.JUMP in table.columns:
        bases = {tables.JUMP: paper_tasks}
      for pair in (tables.NSP, tables.SOP):
        if pair in table.columns and self._have_learned(pair, both):
          bases[pair] = [pair]
      words = {
        "tasks" if column == tables.AVERAGE else column: verdict(
          paper_direction(*both, columns),
          *(self.values(x, column) for x in both),
        )
        for column, columns in bases.items()
      }
      found[row.label] = {name: word for name, word in words.items() if word}
    return found

  def _have_learned(self, pair: str, both: Sequence[Row]) -> bool:
    """Returns whether both trained a head, and the best is above chance."""
    values = [self.rows[row.label] for row in both]
    best = max(
      values, key=lambda x: statistics.mean(x.get(pair) or [-math.inf])
    )
    chance, found = best.get(f"{pair} chance"), best.get(pair)
    above = not (found and chance) or min(found) > statistics.mean(chance)
    return above and all(x.flags.get("sentence_pair") != "none" for x in both)

  def markdown(self) -> str:
    """Returns a heading, the table without empty columns, and the notes."""
    name, rows, judged = self.table.name, self.table.rows, self.verdicts()
    sizes = [self.rows[label].get("parameters", [])[:1] for label in rows]
    # Titles and cells, as two columns may have the same title.
    columns = [
      ("", list(rows)),
      ("parameters", ["".join(f"{n / 1e6:.2f}M" for n in x) for x in sizes]),
      ("paper's", [row.paper_parameters for row in rows.values()]),
    ]
    for title in self.table.titles(self.tasks):
      cells = [_format(title, self.values(row, title)) for row in rows.values()]
      columns.append((title, cells))
      columns.append(("paper", [self.paper(x, title) for x in rows.values()]))
    for base in dict.fromkeys(itertools.chain(*judged.values())):
      words = [judged.get(label, {}).get(base, "") for label in rows]
      columns.append((f"by {base}", words))
    header, shown = zip(*(column for column in columns if any(column[1])))
    heading = f"Table {name}" if name[0].isdigit() else name
    return (
      f"## {heading}: {self.table.title}\n\n"
      f"{printing.table(header, list(zip(*shown)))}\n\n({self.notes})\n"
    )

  def draw(self, path: str) -> None:
    """Writes a PNG: columns beside the paper's numbers, and held-out losses."""
    rows = list(self.table.rows.values())
    # Not what would be too small to read.
    hidden = self.tasks if len(self.tasks) > 2 else (tables.AVERAGE,)
    panels = {}  # By title: numbers by row.
    for title in self.table.titles(self.tasks):
      values = [self.values(row, title) for row in rows]
      if any(values) and title not in (*hidden, tables.LOSS, tables.STEPS):
        texts = [self.paper(row, title).split() for row in rows]
        panels[title] = values
        panels[f"{title}, paper"] = [[float(x) for x in y[:1]] for y in texts]
    panels = {title: values for title, values in panels.items() if any(values)}
    curves = [self.rows[row.label].get("curve", []) for row in rows]
    count = len(panels) + any(curves)
    if not count:
      return
    figure, [axes] = printing.load_pyplot().subplots(
      ncols=count,
      figsize=(2 + 2.2 * count, max(2.8, 0.36 * len(rows) + 1.5)),
      squeeze=False,
      layout="constrained",
    )
    for axis, (title, values) in zip(axes, panels.items()):
      for i, numbers in enumerate(values):
        axis.plot(numbers, [i] * len(numbers), "o", color=f"C{i}", alpha=0.6)
      axis.set_title(title, fontsize=9)
      axis.set_ylim(len(rows) - 0.5, -0.5)
      labels = [row.label if axis is axes[0] else "" for row in rows]
      axis.set_yticks(range(len(rows)), labels)
    for i, (row, seeds) in enumerate(zip(rows, curves)):
      for j, curve in enumerate(seeds):
        x, y = zip(*((point["step"], point["loss"]) for point in curve))
        label = "_" if j else row.label  # Once per row.
        axes[-1].plot(x[1:], y[1:], color=f"C{i}", linewidth=1, label=label)
    if any(curves):
      axes[-1].set_title("held-out MLM loss by updates", fontsize=9)
      axes[-1].legend(fontsize=7)
    figure.suptitle(self.table.title, x=0.01, ha="left")
    printing.save_figure(figure, path)


def paper_direction(
  row: Row, other: Row, columns: Sequence[str]
) -> Optional[int]:
  """Returns 1, 0 or -1 if the paper finds `row` better, equal or worse.

  Returns None if the paper does not say. Several columns are averaged.
  """
  if row.paper_says:
    return row.paper_says
  gain = row.average(columns) - other.average(columns)
  if not columns or math.isnan(gain):
    return None
  return 0 if abs(gain) < _EQUAL else 1 if gain > 0 else -1


def verdict(
  paper: Optional[int], row: Sequence[float], other: Sequence[float]
) -> str:
  """Compares our direction with the paper's, from `paper_direction`, in words.

  A direction of the paper is one of `KINDS`: resolved only if both rows have
  several seeds and the ranges of the seeds don't overlap. Returns our direction
  alone where the paper gives none or sees no difference; "" without numbers.
  """
  if not row or not other:
    return ""
  ours = (min(row) > max(other)) - (max(row) < min(other))
  one_seed = min(len(row), len(other)) == 1
  if not paper:
    words = _WORDS[ours] + ", paper no different" * (paper == 0 and ours != 0)
  elif one_seed or not ours:
    words = NOT_RESOLVED
  else:
    words = f"{SHOWN if ours == paper else CONTRADICTED}: {_WORDS[ours]}"
  return f"{words}, one seed" if one_seed else words


def _format(column: str, values: Sequence[float]) -> str:
  """Returns the mean, and the range of several seeds."""
  if not values:
    return ""
  decimals = _DECIMALS.get(column, 1)
  mean, lowest, highest = (
    f"{value:.{decimals}f}"
    for value in (statistics.mean(values), min(values), max(values))
  )
  return mean if len(values) == 1 else f"{mean} ({lowest} to {highest})"


def score(reports: Sequence[Report]) -> str:
  """Returns how many directions of the paper the tables show, as Markdown."""
  counts = {
    f"{made.table.name}: {made.table.title}": collections.Counter(
      (kind, base == "tasks")
      for row in made.verdicts().values()
      for base, words in row.items()
      for kind in KINDS
      if words.startswith(kind)
    )
    for made in reports
  }
  total = counts["all"] = sum(counts.values(), collections.Counter())
  if not total:
    return ""
  cells = [
    [title] + [" / ".join(str(n[k, x]) for k in KINDS) for x in (True, False)]
    for title, n in counts.items()
    if n
  ]
  shown, not_shown, open_ = (total[k, True] + total[k, False] for k in KINDS)
  return (
    f"Of {shown + not_shown + open_} directions of the paper, {shown} are "
    f"shown, {not_shown} contradicted, and {open_} not resolved (the ranges of "
    "the seeds overlap, or there is one seed).\n\n"
    + printing.table([" / ".join(KINDS), "by tasks", "by pretraining"], cells)
    + "\n"
  )


def write(reports: Sequence[Report], output_dir: str) -> None:
  """Writes the last report, and the score with all reports."""
  made = reports[-1]
  path = os.path.join(output_dir, f"table_{made.table.name}")
  files.write_text(f"{path}.md", made.markdown())
  files.write_json(
    f"{path}.json",
    {"notes": made.notes, "rows": made.rows, "verdicts": made.verdicts()},
  )
  made.draw(f"{path}.png")
  texts = [score(reports), *(x.markdown() for x in reports)]
  path = os.path.join(output_dir, "results.md")
  files.write_text(path, "\n".join(filter(None, texts)))
