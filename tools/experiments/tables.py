"""The experiments: the tables and figures of arXiv 1909.11942, and our own.

A table has rows, and a row describes one model. Sizes are the paper's; a scale
(`scales.py`) maps them to its own, so one declaration serves a laptop and a TPU
pod. The columns of a table determine its jobs (`plan.py`).

The paper's numbers are those of its last version (v6): dev sets, in percent,
SQuAD as (F1, exact match). The paper pretrained all models for 125,000 steps of
4,096 sequences unless a row says otherwise. Figures, table v1_1 and BERT-xlarge
are those of the first version (v1).
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Iterable, Mapping, Optional, Sequence

# The downstream tasks: from titles of columns to values of --task.
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
# Titles of other columns.
AVERAGE = "Avg"  # Of the tasks.
LOSS, ACCURACY = "MLM loss", "MLM"  # On held-out text.
NSP, SOP = "NSP", "SOP"
# The same on the texts of tasks: "RACE SOP".
TEXTS = ("SQuAD1.1", "RACE")
TEXT_COLUMNS = {
  f"{text} {column}": (text, column)
  for text in TEXTS
  for column in (ACCURACY, NSP, SOP)
}
STEPS = "steps"
FLOPS, TOKENS = "MFLOP/token", "tokens/s"
SPEED = "speed"  # The row `SPEED_REFERENCE` has 1.
MILLISECONDS = "ms"
# As fractions of the full cost of the row compared with, up to its final loss.
SAME_LOSS = "time to the same loss"
SAME_LOSS_FLOPS = "operations to it"
# Angles between the input and output of a layer, in degrees.
FIRST, LAST, JUMP = "first layer", "last layer", "largest jump"
# In `Table.columns`, stands for a column per task and their average.
SCORES = "scores"

SPEED_REFERENCE = "BERT-large"
# Sequences per step and tokens per sequence where a preset is measured.
SPEED_BATCH, SPEED_LENGTH = 4, 128
# Additional training where rows set `num_applied_layers`: this many steps with
# these flags.
MORE_STEPS = 300
MORE_TRAINING = {
  "own depth": {},
  "random depths": {"random_depths": "2,3,4,6,8,12"},
}


@dataclasses.dataclass(frozen=True)
class Row:
  """One model, trained once per seed."""

  label: str
  # Fields of `AlbertConfig` that differ from the scale's base model, in the
  # paper's sizes; see `Scale.config`.
  model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  compared_with: Optional[str] = None  # The label of another row.
  # The paper's numbers by column, and its parameters as printed: "12M".
  paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  paper_parameters: str = ""
  # 1 (better) or -1 (worse) if the paper gives a direction but no numbers.
  paper_says: Optional[int] = None
  sentence_pair: str = "sop"  # The second objective; also "nsp" or "none".
  more_data: bool = False  # Also reads the additional text.
  # Flags of tools.run_pretraining that differ, without dashes.
  training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  starts_from: Optional[str] = None  # The earlier row with its first weights.
  equal_time: bool = False  # Trains for the first row's time, not its steps.
  share: float = 1.0  # Of the table's steps.
  preset: str = ""  # Whose speed is measured instead of training a model.
  num_applied_layers: int = 0  # The depth to measure a common model at.
  runs: bool = True  # Otherwise shows only the paper's numbers.

  def paper_average(self, columns: Sequence[str]) -> Optional[float]:
    """Returns the paper's average over columns, None if one is missing.

    SQuAD counts as the mean of F1 and exact match, as in the paper's "Avg".
    """
    if not columns or not all(column in self.paper for column in columns):
      return None
    return sum(mean_score(self.paper[c]) for c in columns) / len(columns)


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows that are compared."""

  name: str
  title: str
  source: str
  question: str  # What the rows show, in one or two sentences.
  rows: tuple[Row, ...]
  # What is measured; without `SCORES`, models are not fine-tuned.
  columns: tuple[str, ...] = (LOSS, ACCURACY, SCORES)
  curves: bool = False  # Whether the picture shows held-out loss over time.

  def row(self, label: str) -> Row:
    """Returns the row with this label."""
    return next(row for row in self.rows if row.label == label)

  @property
  def trains(self) -> bool:
    """Whether the table trains models (tables 1, 9 and 10 do not)."""
    return any(row.runs and not row.preset for row in self.rows)

  def titles(self, tasks: Sequence[str]) -> list[str]:
    """Returns the titles of all columns if these tasks are run."""
    scores = [*tasks, AVERAGE] if len(tasks) > 1 else [*tasks]
    if self.rows[0].num_applied_layers:
      pairs = itertools.product(tasks, ("", *MORE_TRAINING))
      scores = [task_column(task, more) for task, more in pairs]
    shown = []
    for column in self.columns:
      shown += scores if column == SCORES else [column]
    return shown


def task_column(task: str, more: str) -> str:
  """Returns the column of a task, after the additional training `more`."""
  return f"{task}, {more}" if more else task


def mean_score(value: Any) -> float:
  """Returns a number of the paper; the mean of SQuAD's (F1, EM)."""
  return sum(value) / len(value) if isinstance(value, tuple) else float(value)


_GLUE = "MNLI QNLI QQP RTE SST-2 MRPC CoLA STS-B WNLI"
_SCORES = (*TASKS, AVERAGE)
# The columns of the numbers in `_PAPER`, where they are not `_SCORES`.
_PAPER_COLUMNS = {
  "2": (SPEED, *_SCORES),
  "5": (ACCURACY, NSP, SOP, *_SCORES),
  "9": (*_GLUE.split(), AVERAGE),
  "10": tuple("SQuAD1.1,SQuAD2.0,SQuAD2.0 test,RACE test".split(",")),
  "v1_1": ("RACE",),
}
# Table, row, parameters as printed, and numbers, SQuAD as F1/EM. BERT-xlarge is
# of v1, which gives speeds relative to it. The single models of table 9 are
# measured on dev sets, the ensembles on test sets; Avg is the leaderboard's.
_PAPER = """
2 | BERT-base | 108M | 4.7 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3
2 | BERT-large | 334M | 1.0 92.2/85.5 85.0/82.2 86.6 93.0 73.9 85.2
2 | BERT-xlarge | 1270M | - 86.4/78.1 75.5/72.6 81.6 90.7 54.3 76.6
2 | ALBERT-base | 12M | 5.6 89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1
2 | ALBERT-large | 18M | 1.7 90.6/83.9 82.3/79.4 83.5 91.7 68.5 82.4
2 | ALBERT-xlarge | 60M | 0.6 92.5/86.1 86.1/83.1 86.4 92.4 74.8 85.5
2 | ALBERT-xxlarge | 235M | 0.3 94.1/88.3 88.1/85.1 88.0 95.2 82.3 88.7
3 | not-shared, E 64 | 87M | 89.9/82.9 80.1/77.8 82.9 91.5 66.7 81.3
3 | not-shared, E 128 | 89M | 89.9/82.8 80.3/77.3 83.7 91.5 67.9 81.7
3 | not-shared, E 256 | 93M | 90.2/83.2 80.3/77.4 84.1 91.9 67.3 81.8
3 | not-shared, E 768 | 108M | 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3
3 | all-shared, E 64 | 10M | 88.7/81.4 77.5/74.8 80.8 89.4 63.5 79.0
3 | all-shared, E 128 | 12M | 89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1
3 | all-shared, E 256 | 16M | 88.8/81.5 79.1/76.3 81.5 90.3 63.4 79.6
3 | all-shared, E 768 | 31M | 88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8
4 | E 768, all-shared | 31M | 88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8
4 | E 768, shared-attention | 83M | 89.9/82.7 80.0/77.2 84.0 91.4 67.7 81.6
4 | E 768, shared-FFN | 57M | 89.2/82.1 78.2/75.4 81.5 90.8 62.6 79.5
4 | E 768, not-shared | 108M | 90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3
4 | E 128, all-shared | 12M | 89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1
4 | E 128, shared-attention | 64M | 89.9/82.8 80.7/77.9 83.4 91.9 67.6 81.7
4 | E 128, shared-FFN | 38M | 88.9/81.6 78.6/75.6 82.3 91.7 64.4 80.2
4 | E 128, not-shared | 89M | 89.9/82.8 80.3/77.3 83.2 91.5 67.9 81.6
5 | none | - | 54.9 52.4 53.3 88.6/81.5 78.1/75.3 81.5 89.9 61.7 79.0
5 | NSP | - | 54.5 90.5 52.0 88.4/81.5 77.2/74.6 81.6 91.1 62.3 79.2
5 | SOP | - | 54.0 78.9 86.5 89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1
6 | ALBERT-xxlarge | 235M | 94.0/88.1 88.3/85.3 87.8 95.4 82.5 88.7
6 | BERT-large | 334M | 93.5/87.4 86.9/84.3 87.8 94.6 77.3 87.2
7 | no additional data | 12M | 89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1
7 | with additional data | 12M | 88.8/81.7 79.1/76.3 82.4 92.8 66.0 80.8
8 | with dropout | - | 94.7/89.2 89.6/86.9 90.0 96.3 85.7 90.4
8 | without dropout | - | 94.8/89.5 89.9/87.2 90.4 96.5 86.1 90.7
9 | BERT-large | - | 86.6 92.3 91.3 70.4 93.2 88.0 60.6 90.0 - -
9 | XLNet-large | - | 89.8 93.9 91.8 83.8 95.6 89.2 63.6 91.8 - -
9 | RoBERTa-large | - | 90.2 94.7 92.2 86.6 96.4 90.9 68.0 92.4 - -
9 | ALBERT, 1M steps | - | 90.4 95.2 92.0 88.1 96.8 90.2 68.7 92.7 - -
9 | ALBERT, 1.5M steps | - | 90.8 95.3 92.2 89.2 96.9 90.9 71.4 93.0 - -
9 | ALICE ensemble | - | 88.2 95.7 90.7 83.5 95.2 92.6 69.2 91.1 80.8 87.0
9 | MT-DNN ensemble | - | 87.9 96.0 89.9 86.3 96.5 92.7 68.4 91.1 89.0 87.6
9 | XLNet ensemble | - | 90.2 98.6 90.3 86.3 96.8 93.0 67.8 91.6 90.4 88.4
9 | RoBERTa ensemble | - | 90.8 98.9 90.2 88.2 96.7 92.3 67.8 92.2 89.0 88.5
9 | Adv-RoBERTa ensemble | - | 91.1 98.8 90.3 88.7 96.8 93.1 68.0 92.4 89.0 88.8
9 | ALBERT ensemble | - | 91.3 99.2 90.5 89.2 97.1 93.4 69.1 92.5 91.8 89.4
10 | BERT-large | - | 90.9/84.1 81.8/79.0 89.1/86.3 72.0
10 | XLNet | - | 94.5/89.0 88.8/86.1 89.1/86.3 81.8
10 | RoBERTa | - | 94.6/88.9 89.4/86.5 89.8/86.8 83.2
10 | UPM | - | - - 89.9/87.2 -
10 | XLNet + SG-Net Verifier++ | - | - - 90.1/87.2 -
10 | ALBERT, 1M steps | - | 94.8/89.2 89.9/87.2 - 86.0
10 | ALBERT, 1.5M steps | - | 94.8/89.3 90.2/87.4 90.9/88.1 86.5
10 | BERT-large ensemble | - | 92.2/86.2 - - -
10 | XLNet + SG-Net Verifier ensemble | - | - - 90.7/88.2 -
10 | UPM ensemble | - | - - 90.7/88.2 -
10 | XLNet + DAAF + Verifier ensemble | - | - - 90.9/88.6 -
10 | DCMN+ ensemble | - | - - - 84.1
10 | ALBERT ensemble | - | 95.5/90.1 91.4/88.9 92.2/89.7 89.4
11 | 1 layer | 18M | 31.1/22.9 50.1/50.1 66.4 80.8 40.1 52.9
11 | 3 layers | 18M | 79.8/69.7 64.4/61.7 77.7 86.7 54.0 71.2
11 | 6 layers | 18M | 86.4/78.4 73.8/71.1 81.2 88.9 60.9 77.2
11 | 12 layers | 18M | 89.8/83.3 80.7/77.9 83.3 91.7 66.7 81.5
11 | 24 layers | 18M | 90.3/83.3 81.8/79.0 83.3 91.5 68.7 82.1
11 | 48 layers | 18M | 90.0/83.1 81.8/78.9 83.4 91.9 66.9 81.8
12 | H 1024 | 18M | 79.8/69.7 64.4/61.7 77.7 86.7 54.0 71.2
12 | H 2048 | 60M | 83.3/74.1 69.1/66.6 79.7 88.6 58.2 74.6
12 | H 4096 | 225M | 85.0/76.4 71.0/68.1 80.3 90.4 60.4 76.3
12 | H 6144 | 499M | 84.7/75.8 67.8/65.4 78.1 89.1 56.0 74.0
13 | 12 layers | - | 94.0/88.1 88.3/85.3 87.8 95.4 82.5 88.7
13 | 24 layers | - | 94.1/88.3 88.1/85.1 88.0 95.2 82.3 88.7
v1_1 | BERT-large (Devlin et al.) | 334M | 72.0
v1_1 | BERT-large | 334M | 73.9
v1_1 | BERT-xlarge | 1270M | 54.3
"""


def _lines_of(table: str) -> list[str]:
  return [x for x in _PAPER.splitlines() if x.startswith(f"{table} | ")]


def _numbers(table: str, cells: str) -> dict[str, Any]:
  """Returns the last field of a line of `_PAPER` by column."""
  columns = _PAPER_COLUMNS.get(table, _SCORES)
  numbers = {}
  for column, cell in zip(columns, cells.split(), strict=True):
    if cell != "-":
      values = tuple(map(float, cell.split("/")))
      numbers[column] = values if len(values) > 1 else values[0]
  return numbers


def _with_paper(table: Table) -> Table:
  """Returns a table whose rows have the paper's numbers."""
  rows = {row.label: row for row in table.rows}
  # Table 1 repeats sizes and speeds of table 2.
  source = "2" if table.name == "1" else table.name
  for line in _lines_of(source):
    _, label, parameters, cells = line.split(" | ")
    rows[label] = dataclasses.replace(
      rows[label],
      paper=_numbers(source, cells),
      paper_parameters=parameters.strip("-"),
    )
  return dataclasses.replace(table, rows=tuple(rows.values()))


# The scale translates "depth"; `num_hidden_layers` is used as it is.
_LARGE = {"hidden_size": 1024, "depth": 24}
_XXLARGE = {"hidden_size": 4096, "depth": 12}
_BERT = {"embedding_size": "H", "sharing": "none"}
_OVERALL = {
  "BERT-base": {**_BERT, "hidden_size": 768},
  "BERT-large": {**_BERT, **_LARGE},
  "BERT-xlarge": {**_BERT, **_LARGE, "hidden_size": 2048},
  "ALBERT-base": {},
  "ALBERT-large": _LARGE,
  "ALBERT-xlarge": {**_LARGE, "hidden_size": 2048},
  "ALBERT-xxlarge": _XXLARGE,
}
_STRATEGIES = {
  "all": "all-shared",
  "attention": "shared-attention",
  "ffn": "shared-FFN",
  "none": "not-shared",
}


def _preset(label: str) -> str:
  name = label.lower().replace("-", "_")
  return f"{name}_v1" if name.startswith("albert") else name


def _only_stated(name: str, title: str, question: str) -> Table:
  """Returns a table of the paper that is not run."""
  labels = [line.split(" | ")[1] for line in _lines_of(name)]
  return Table(
    *(name, title, f"table {name}, only the paper's numbers", question),
    rows=tuple(Row(label, runs=False) for label in labels),
    columns=_PAPER_COLUMNS[name],
  )


def _shared(sharing: str, size: int, label: str, compared_with: str) -> Row:
  model = {"embedding_size": size, "sharing": sharing}
  return Row(label, model, compared_with if compared_with != label else None)


def _pairs(*sizes: int) -> Iterable[tuple[Optional[int], int]]:
  """Yields each size with the one before, whose row it is compared with."""
  return zip((None, *sizes), sizes)


def _layers(count: int) -> str:
  return f"{count} layers" if count > 1 else "1 layer"


def _dropout(rate: float) -> dict[str, Any]:
  names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
  return {**_XXLARGE, **dict.fromkeys(names, rate)}


_CONSTANT = "12 throughout"
_BEST_SCHEDULE = "3:0.5,6:0.25,12:0.25"
_SCHEDULES = (
  "3:0.25,12:0.75",
  "3:0.5,12:0.5",
  "3:0.75,12:0.25",
  _BEST_SCHEDULE,
)


_DECLARED = (
  Table(
    "1",
    "Configurations and their speed",
    "tables 1 and 2",
    "How many parameters, how many operations, and how fast compared with "
    f"BERT-large? Real sizes, {SPEED_BATCH} sequences of {SPEED_LENGTH} tokens "
    "per step.",
    rows=tuple(
      # A step of BERT-xlarge needs more than 20 GiB.
      Row(label, preset=_preset(label), runs=label != "BERT-xlarge")
      for label in _OVERALL
    ),
    columns=(FLOPS, TOKENS, SPEED),
  ),
  Table(
    "2",
    "BERT and ALBERT",
    "table 2",
    "What do larger sizes bring, and what do they cost? In the paper "
    "ALBERT-xxlarge is best, with 70% of BERT-large's parameters and 0.3 times "
    "its speed.",
    rows=tuple(
      Row(label, model, "BERT-large" if label != "BERT-large" else None)
      for label, model in _OVERALL.items()
    ),
    columns=(SPEED, LOSS, ACCURACY, SCORES),
  ),
  Table(
    "3",
    "Embedding size",
    "table 3",
    "Which embedding size E is enough? In the paper larger sizes help a little "
    "without sharing, and 128 is best with full sharing.",
    rows=tuple(
      _shared(sharing, size, f"{name}, E {size}", f"{name}, E 128")
      for sharing, name in (("none", "not-shared"), ("all", "all-shared"))
      for size in (64, 128, 256, 768)
    ),
  ),
  Table(
    "4",
    "Sharing strategies",
    "table 4; the groups of section 4.5",
    "What does sharing cost? In the paper most of the loss comes from sharing "
    "the feed-forward half, and more groups lose less.",
    rows=(
      *(
        _shared(sharing, size, f"E {size}, {name}", f"E {size}, all-shared")
        for size in (768, 128)
        for sharing, name in _STRATEGIES.items()
      ),
      # Section 4.5 says that more groups are better, without numbers.
      *(
        Row(
          f"E 128, {groups} groups",
          {"embedding_size": 128, "num_hidden_groups": groups},
          compared_with="E 128, all-shared",
          paper_says=1,
        )
        for groups in (2, 3)
      ),
    ),
  ),
  Table(
    "5",
    "The loss between sentences: none, NSP, SOP",
    "table 5",
    "What does a model learn from predicting the next sentence (NSP) or the "
    "order of two sentences (SOP)? In the paper NSP does not help with order, "
    "but SOP helps with NSP.",
    rows=(
      Row("none", compared_with="SOP", sentence_pair="none"),
      Row("NSP", compared_with="SOP", sentence_pair="nsp"),
      Row("SOP", sentence_pair="sop"),
    ),
    columns=(LOSS, ACCURACY, NSP, SOP, SCORES),
  ),
  Table(
    "task_texts",
    "The models of table 5 on the texts of SQuAD and RACE",
    "table 5, with other text",
    "What do they know of text that the tasks ask about? Measured on SQuAD's "
    "paragraphs and RACE's passages (dev sets).",
    rows=tuple(
      Row(pair, sentence_pair=pair.lower()) for pair in ("none", NSP, SOP)
    ),
    columns=tuple(TEXT_COLUMNS),
  ),
  Table(
    "6",
    "Equal time instead of equal steps",
    "table 6",
    "Is the wide shared model still better if BERT trains for the same time? "
    "In the paper it is: 32 hours of ALBERT-xxlarge, 34 of BERT-large.",
    rows=(
      Row("ALBERT-xxlarge", _XXLARGE),
      Row("BERT-large", {**_LARGE, **_BERT}, "ALBERT-xxlarge", equal_time=True),
    ),
    columns=(STEPS, LOSS, ACCURACY, SCORES),
  ),
  Table(
    "7",
    "More data",
    "table 7",
    "Does additional text help? In the paper it does, except for SQuAD, which "
    "is built from Wikipedia.",
    rows=(
      Row("no additional data"),
      Row(
        "with additional data",
        compared_with="no additional data",
        more_data=True,
      ),
    ),
    curves=True,
  ),
  Table(
    "8",
    "Dropout on and off",
    "table 8",
    "Does dropout hurt? In the paper ALBERT-xxlarge is better without it, "
    "after a million steps.",
    rows=(
      Row("with dropout", _dropout(0.1)),
      Row("without dropout", _dropout(0.0), "with dropout"),
    ),
    curves=True,
  ),
  _only_stated(
    "9",
    "State of the art on GLUE",
    "How good is ALBERT-xxlarge after 1 and 1.5 million steps, alone (on dev "
    "sets) and as an ensemble (on test sets)?",
  ),
  _only_stated(
    "10",
    "State of the art on SQuAD and RACE",
    "How good are the models of table 9 at answering questions?",
  ),
  Table(
    "11",
    "Depth",
    "table 11",
    "How many times should the shared layer be applied? In the paper the gain "
    "becomes small after 12, and 48 is worse than 24.",
    rows=tuple(
      Row(
        _layers(layers),
        {"hidden_size": 1024, "num_hidden_layers": layers},
        compared_with=before and _layers(before),
        # From three layers on, each starts with the weights of the one before.
        starts_from=before and _layers(before),
      )
      for before, layers in _pairs(1, 3, 6, 12, 24, 48)
    ),
  ),
  Table(
    "12",
    "Width",
    "table 12",
    "How wide should the shared layer be if it is applied three times? In the "
    "paper 4096 is best and 6144 is worse.",
    rows=tuple(
      Row(
        f"H {width}",
        {"hidden_size": width, "num_hidden_layers": 3},
        compared_with=before and f"H {before}",
      )
      for before, width in _pairs(1024, 2048, 4096, 6144)
    ),
  ),
  Table(
    "13",
    "Depth of a wide model",
    "table 13",
    "Must a wide model also be deep? In the paper it need not be.",
    rows=(
      Row("12 layers", _XXLARGE),
      Row("24 layers", {**_XXLARGE, "depth": 24}, "12 layers"),
    ),
  ),
  Table(
    "v1_1",
    "Bigger and worse",
    "table 1 of arXiv 1909.11942v1",
    "Is a wider BERT better? In the paper BERT-xlarge, twice as wide as "
    "BERT-large, is worse by 19.6 points on RACE.",
    rows=(
      Row("BERT-large (Devlin et al.)", runs=False),
      Row("BERT-large", _OVERALL["BERT-large"]),
      Row("BERT-xlarge", _OVERALL["BERT-xlarge"], "BERT-large"),
    ),
  ),
  Table(
    "figure_1",
    "Wider, without sharing and with it",
    "figure 1 of arXiv 1909.11942v1",
    "Does a wider BERT degrade? In the paper BERT-xlarge, twice as wide as "
    "BERT-large, has a lower held-out masked-LM accuracy.",
    rows=tuple(
      Row(
        f"{name}, H {width}",
        {**_LARGE, "hidden_size": width, **changes},
        compared_with=before and f"{name}, H {before}",
        # The printed curves allow no more precise reading.
        paper_says=-1 if (name, width) == ("BERT", 2048) else None,
      )
      for name, changes in (
        ("BERT", _BERT),
        ("ALBERT", {"embedding_size": 128}),
      )
      for before, width in _pairs(1024, 2048, 4096)
    ),
    columns=(LOSS, ACCURACY),
    curves=True,
  ),
  Table(
    "figure_2",
    "What a layer changes",
    "figure 2 of arXiv 1909.11942v1, figure 1 of v6",
    "How far apart are the input and output of each layer? In the paper the "
    "distances change smoothly from layer to layer in ALBERT, but not in BERT, "
    "and converge to 0 in neither. Angles are in degrees; a jump is the "
    "difference between two consecutive layers.",
    rows=(
      Row("shared (ALBERT)", _LARGE),
      Row(
        "not shared (BERT)",
        {**_LARGE, **_BERT},
        compared_with="shared (ALBERT)",
        paper_says=1,
      ),
    ),
    columns=(LOSS, ACCURACY, FIRST, LAST, JUMP),
  ),
  Table(
    "depth_schedule",
    "Depth as a dial: shallow first",
    "not in the paper, whose table 11 starts deeper models from shallower",
    "How much sooner does a model of 12 layers reach the final held-out "
    "masked-LM loss of constant depth if the same weights are applied fewer "
    "times at first? The schedules share their number of steps, and only "
    "losses at full depth count.",
    rows=(
      Row(_CONSTANT, {"num_hidden_layers": 12}),
      *(
        Row(
          schedule,
          {"num_hidden_layers": 12},
          _CONSTANT,
          training={"depth_schedule": schedule},
        )
        for schedule in _SCHEDULES
      ),
      # As many operations as the last schedule.
      Row(
        f"{_CONSTANT}, half the steps",
        {"num_hidden_layers": 12},
        _CONSTANT,
        share=0.5,
      ),
      # What depth is worth at this scale.
      Row("3 throughout", {"num_hidden_layers": 3}, _CONSTANT),
    ),
    columns=(LOSS, ACCURACY, SAME_LOSS, SAME_LOSS_FLOPS),
    curves=True,
  ),
  # One model is pretrained and fine-tuned at 12 layers. One copy trains further
  # at random depths, another at its own depth; all three are measured at each.
  Table(
    "depth_inference",
    "Depth as a dial: fewer layers for an answer",
    "not in the paper",
    "How good is a model of 12 shared layers, pretrained shallow first, if "
    "only some of them are applied, or more? And after a few hundred steps at "
    "random depths, compared with as many at its own depth?",
    rows=tuple(
      Row(
        _layers(depth),
        {"num_hidden_layers": 12},
        training={"depth_schedule": _BEST_SCHEDULE},
        num_applied_layers=depth,
      )
      for depth in (1, 2, 3, 4, 6, 8, 12, 16, 24)
    ),
    columns=(MILLISECONDS, SCORES),
  ),
)
TABLES = {table.name: _with_paper(table) for table in _DECLARED}
