"""Experiment declarations: a table has rows, a row describes one model.

Sizes are the paper's. A scale (`scales.py`) maps them to its own sizes, so one
declaration serves a laptop and a TPU pod.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Mapping, Optional, Sequence

# The downstream tasks: from column titles to values of --task.
TASKS = {
  "SQuAD1.1": "squad_v1",
  "SQuAD2.0": "squad_v2",
  "MNLI": "mnli",
  "SST-2": "sst2",
  "RACE": "race",
}
# Sequences per epoch: RACE has four per question.
TRAIN_SEQUENCES = {
  "SQuAD1.1": 87_599,
  "SQuAD2.0": 130_319,
  "MNLI": 392_702,
  "SST-2": 67_349,
  "RACE": 4 * 87_866,
}
# Titles of columns.
AVERAGE = "Avg"
LOSS, ACCURACY = "MLM loss", "MLM"
SPEED = "speed"
STEPS = "steps"
FLOPS, TOKENS = "MFLOP/token", "tokens/s"
MILLISECONDS = "ms"
# As fractions of the full cost of the row compared with, up to its final loss.
SAME_LOSS = "time to the same loss"
SAME_LOSS_FLOPS = "operations to it"
# Angles between the input and output of a layer, in degrees.
FIRST, LAST, JUMP = "first layer", "last layer", "largest jump"
# What follows fine-tuning where a row sets `num_applied_layers`: this many
# steps with these flags.
MORE_STEPS = 300
MORE_TRAINING = {
  "own depth": {},
  "random depths": {"random_depths": "2,3,4,6,8,12"},
}


@dataclasses.dataclass(frozen=True)
class Row:
  """One model, trained once per seed.

  Attributes:
    model: fields of `AlbertConfig` that differ from the scale's base model, in
      the paper's sizes; see `Scale.config`.
    sentence_pair: the second objective: "sop", "nsp" or "none".
    more_data: whether the model also reads the additional text.
    training: flags of tools.run_pretraining that differ, without dashes.
    starts_from: label of an earlier row whose weights initialize this one.
    equal_time: whether to train for the time of the first row, not its steps.
    share: fraction of the table's steps.
    rate: fraction of the table's peak learning rate.
    preset: measure the speed of this preset instead of training anything.
    num_applied_layers: measure a model that all rows share at this depth.
    compared_with: label of the row that the verdict compares with.
    paper: the paper's numbers by column.
    paper_says: 1 (better) or -1 (worse) where the paper gives a direction but
      no numbers.
    paper_parameters: as printed, for example "12M".
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
  preset: str = ""
  num_applied_layers: int = 0
  compared_with: Optional[str] = None
  paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  paper_says: Optional[int] = None
  paper_parameters: str = ""

  def paper_average(self, columns: Sequence[str]) -> Optional[float]:
    """Returns the paper's average over tasks, None if one is missing.

    SQuAD counts as the mean of F1 and exact match, as in the paper's "Avg".
    """
    if not columns or not all(column in self.paper for column in columns):
      return None
    return sum(score(self.paper[column]) for column in columns) / len(columns)


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows that are compared.

  Attributes:
    question: what the rows show, in one or two sentences.
    direction: the column that verdicts are based on.
    tasks: whether to fine-tune the models; if not, only held-out text counts.
    pairs: sentence objectives on which every model is evaluated.
    layers: whether to compare the input and output of each layer.
    curves: whether the picture shows held-out loss over time.
    time_to_loss: whether to report the cost of reaching the final loss of the
      row compared with.
    speed_reference: label of the row whose training speed is 1.
  """

  name: str
  title: str
  source: str
  question: str
  rows: tuple[Row, ...]
  direction: str = AVERAGE
  tasks: bool = True
  pairs: tuple[str, ...] = ()
  layers: bool = False
  curves: bool = False
  time_to_loss: bool = False
  speed_reference: str = ""

  def row(self, label: str) -> Row:
    """Returns the row with this label."""
    return next(row for row in self.rows if row.label == label)

  @property
  def trains(self) -> bool:
    """Whether the table trains models (table 1 does not)."""
    return not self.rows[0].preset

  def columns(self, tasks: Sequence[str]) -> list[str]:
    """Returns the titles of the measured columns, in their order."""
    if not self.trains:
      return [FLOPS, TOKENS, SPEED]
    if self.rows[0].num_applied_layers:
      pairs = itertools.product(tasks, ("", *MORE_TRAINING))
      return [MILLISECONDS, *itertools.starmap(task_column, pairs)]
    shown = [SPEED] if self.speed_reference else []
    if any(row.equal_time for row in self.rows):
      shown.append(STEPS)
    shown += [LOSS, ACCURACY, *(pair.upper() for pair in self.pairs)]
    if self.time_to_loss:
      shown += [SAME_LOSS, SAME_LOSS_FLOPS]
    if self.layers:
      shown += [FIRST, LAST, JUMP]
    if self.tasks:
      shown += [*tasks, AVERAGE] if len(tasks) > 1 else tasks
    return shown


def task_column(task: str, more: str = "") -> str:
  """Returns the column of a task, after the additional training `more`."""
  return f"{task}, {more}" if more else task


def score(value: Any) -> float:
  """Returns a number of the paper; the mean of SQuAD's (F1, EM)."""
  return sum(value) / len(value) if isinstance(value, tuple) else float(value)
