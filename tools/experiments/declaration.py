"""What an experiment is: rows, columns, and what changes from row to row.

Sizes are the paper's. A scale (scales.py) says which sizes of its own stand for
them, so that one declaration serves a laptop and a pod.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

# The paper's downstream tasks, as its tables name them, and as --task does.
TASKS = {
  "SQuAD1.1": "squad_v1",
  "SQuAD2.0": "squad_v2",
  "MNLI": "mnli",
  "SST-2": "sst2",
  "RACE": "race",
}
# Sequences of an epoch: RACE has four a question.
TRAIN_SEQUENCES = {
  "SQuAD1.1": 87_599,
  "SQuAD2.0": 130_319,
  "MNLI": 392_702,
  "SST-2": 67_349,
  "RACE": 4 * 87_866,
}
# Measured on held-out text, in the order in which they are shown.
INTRINSIC = {
  "masked_lm_loss": "MLM loss",
  "masked_lm_accuracy": "MLM",
  "nsp_accuracy": "NSP",
  "sop_accuracy": "SOP",
}
AVERAGE = "Avg"
# Of training, as a multiple of one row's.
SPEED = "speed"


@dataclasses.dataclass(frozen=True)
class Row:
  """One model, trained once for each seed.

  Attributes:
    label: names it, once in a table.
    model: fields of `AlbertConfig` that differ from the scale's base model, in
      the paper's sizes.
    sentence_pair: the objective beside masked LM: "sop", "nsp" or "none".
    more_data: whether it reads the additional text too.
    training: flags of tools.run_pretraining that differ, without dashes.
    starts_from: the label of the row whose weights it begins with.
    equal_time: whether it trains as long as the first row, instead of as many
      steps.
    share: of the table's steps.
    rate: of the scale's peak learning rate.
    paper: the paper's numbers by column, in percent, SQuAD as (F1, EM); None
      where the paper only says a direction.
    paper_parameters: as the paper prints them, such as "12M".
  """

  label: str
  model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  sentence_pair: str = "sop"
  more_data: bool = False
  training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  starts_from: Optional[str] = None
  equal_time: bool = False
  share: float = 1.0
  rate: float = 1.0
  paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  paper_parameters: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows that are compared.

  Attributes:
    name: of --table.
    title: one line.
    source: where the paper has it.
    question: what the rows are to show, one or two sentences.
    rows: at least one.
    compare: label of a row to the label of the row it is compared with.
    direction: the column that the verdict goes by.
    paper_says: where the paper has no number: 1 if the row is better than the
      one it is compared with, -1 if worse.
    tasks: whether models are fine-tuned, or looked at on held-out text only.
    pairs: sentence objectives to measure each model on besides its own.
    layers: whether each layer's input and output are compared (figure 2).
    curves: whether the picture shows held-out losses over the steps.
    time_to_loss: whether it is told what each row takes to the last loss of the
      one it is compared with.
    depths: at which the one model is measured that all rows share, in their
      order; () where each row has its own model.
    speed_reference: label of the row whose training speed is 1; "" if none is
      shown.
    columns: what is shown, if not what follows from all this.

  Raises (when made):
    ValueError: two rows have one label, or a row refers to one that is not
      there or stands below it.
  """

  name: str
  title: str
  source: str
  question: str
  rows: tuple[Row, ...]
  compare: Mapping[str, str] = dataclasses.field(default_factory=dict)
  direction: str = AVERAGE
  paper_says: Mapping[str, int] = dataclasses.field(default_factory=dict)
  tasks: bool = True
  pairs: tuple[str, ...] = ()
  layers: bool = False
  curves: bool = False
  time_to_loss: bool = False
  depths: tuple[int, ...] = ()
  speed_reference: str = ""
  columns: tuple[str, ...] = ()

  def __post_init__(self):
    labels: list[str] = []
    for row in self.rows:
      if row.label in labels:
        raise ValueError(f"{self.name} has two rows called {row.label!r}.")
      if row.starts_from is not None and row.starts_from not in labels:
        raise ValueError(
          f"row {row.label!r} of {self.name} starts from {row.starts_from!r}, "
          "which does not stand above it."
        )
      labels.append(row.label)
    for label in (*self.compare, *self.compare.values(), *self.paper_says):
      if label not in labels:
        raise ValueError(f"{self.name} compares {label!r}, which is no row.")

  def row(self, label: str) -> Row:
    """The row called `label`."""
    return next(row for row in self.rows if row.label == label)


def score(value: Any) -> float:
  """A number of the paper; of SQuAD's (F1, EM) the mean, as its Avg has it."""
  return sum(value) / len(value) if isinstance(value, tuple) else float(value)


def paper_average(row: Row, columns: list[str]) -> Optional[float]:
  """The paper's average over some of its tasks; None if it has not all."""
  if not columns or not all(column in row.paper for column in columns):
    return None
  return sum(score(row.paper[column]) for column in columns) / len(columns)
