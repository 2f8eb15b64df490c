"""GLUE (arXiv 1804.07461): nine tasks on sentences or pairs of sentences.

The score of a task is the mean of its metrics, for MNLI that of matched and
mismatched accuracy. GLUE's score is the mean of the nine tasks without the
diagnostics (AX). It is not the column Avg of the ALBERT paper, which is the
mean of SQuAD 1.1, SQuAD 2.0 (each the mean of F1 and EM), MNLI, SST-2 and RACE.

Reference: google-research/albert classifier_utils.py, run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Callable, Mapping, Optional

import numpy as np

from official_albert import files
from official_albert.tasks import common
from official_albert.tasks.common import rows as rows_lib


@dataclasses.dataclass(frozen=True)
class GlueTask:
  """The properties of a task.

  Attributes:
    name: the value of `--task`.
    folder: the folder of its files in the official archives.
    texts: the columns of the text or of both texts.
    labels: the labels in the order of the head's outputs; None for a
      regression.
    recipe: learning rate, batch, steps, warm-up and dropout of the encoder.
    metrics: names of `scores` in task.py, in the official order. The first one
      selects the best checkpoint; higher is better.
    label: the column of the labels.
    guid: the column of the ids; "" numbers the rows from 0. Test files then
      have the column "index".
    dev_splits: the splits with labels for evaluation; MNLI has two.
    submissions: the official file of each predicted split, by default one that
      is named like the folder; MNLI's model also predicts the diagnostics, AX.
  """

  name: str
  folder: str
  texts: tuple[str, ...]
  labels: Optional[tuple[str, ...]]
  recipe: common.Recipe
  metrics: tuple[str, ...] = ("accuracy",)
  label: str = "label"
  guid: str = "index"
  dev_splits: tuple[str, ...] = ("dev",)
  submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def test_splits(self) -> tuple[str, ...]:
    """The splits without labels."""
    return tuple(self.submissions or ("test",))


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_F1 = ("accuracy", "f1")
_Recipe = common.Recipe

# Orders of labels and main metrics are those of google-research/albert
# classifier_utils.py and run_classifier.py. The recipes are arXiv 1909.11942,
# Table 14. run_glue.sh of google-research/albert has the same values for eight
# tasks (not WNLI), but cannot set the dropout for QQP, RTE and WNLI, because
# the model's JSON file sets that.
GLUE_TASKS: Mapping[str, GlueTask] = {
  task.name: task
  for task in (
    GlueTask(
      *("cola", "CoLA", ("sentence",), _BINARY),
      *(_Recipe(1e-5, 16, 5336, 320), ("matthews",)),
    ),
    GlueTask(
      *("sst2", "SST-2", ("sentence",), _BINARY),
      *(_Recipe(1e-5, 32, 20935, 1256), ("accuracy",), "label", ""),
    ),
    GlueTask(
      *("mrpc", "MRPC", ("#1 String", "#2 String"), _BINARY),
      *(_Recipe(2e-5, 32, 800, 200), _F1, "Quality", ""),
    ),
    GlueTask(
      *("stsb", "STS-B", _PAIR, None),
      *(_Recipe(2e-5, 16, 3598, 214), ("pearson", "spearman"), "score"),
    ),
    GlueTask(
      *("qqp", "QQP", ("question1", "question2"), _BINARY),
      *(_Recipe(5e-5, 128, 14000, 1000, 0.1), _F1, "is_duplicate", "id"),
    ),
    GlueTask(
      *("mnli", "MNLI", _PAIR, ("contradiction", "entailment", "neutral")),
      _Recipe(3e-5, 128, 10000, 1000),
      label="gold_label",
      dev_splits=("dev_matched", "dev_mismatched"),
      submissions={
        "test_matched": "MNLI-m.tsv",
        "test_mismatched": "MNLI-mm.tsv",
        "ax": "AX.tsv",
      },
    ),
    GlueTask(
      *("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT),
      _Recipe(1e-5, 32, 33112, 1986),
    ),
    GlueTask(
      "rte", "RTE", _PAIR, _ENTAILMENT, _Recipe(3e-5, 32, 800, 200, 0.1)
    ),
    GlueTask("wnli", "WNLI", _PAIR, _BINARY, _Recipe(2e-5, 16, 2000, 250, 0.1)),
  )
}
# CoLA's files without a header have source, label, original judgment, text.
_COLA_COLUMNS = ["", "label", "", "sentence"]


def find_file(data_dir: str, task: GlueTask, split: str) -> str:
  """Returns the file of a split.

  `data_dir` is the folder with CoLA/, MNLI/ and so on, or the task's folder.
  The diagnostics ("ax") are AX/diagnostic.tsv or diagnostic/diagnostic.tsv.
  """
  folders, file = [task.folder], f"{split}.tsv"
  if split == "ax":
    folders, file = ["AX", "diagnostic"], "diagnostic.tsv"
  for folder in (*folders, ""):
    path = os.path.join(data_dir, folder, file)
    if files.is_file(path):
      return path
  raise FileNotFoundError(
    f"{task.name} needs {folders[0]}/{file} in {data_dir}, or {file} if that "
    "is the task's own folder; neither exists."
  )


def read_split(
  data_dir: str,
  task: GlueTask,
  split: str,
  note: Callable[[str], None] = lambda text: None,
) -> list[common.TextExample]:
  """Reads one split; labels are None in test splits.

  As in the original, extra cells are ignored and a text may be empty, because
  gluebenchmark.com expects a prediction for every row of a test file. `note` is
  called with a line about skipped rows. Only QQP has rows with too few cells,
  because its original questions contained tabs and newlines.

  Deviation: columns are found by their names in the header, while the original
  uses positions. (CoLA's train and dev files have no header and are read by
  position.) Both agree on the official files.
  """
  path = find_file(data_dir, task, split)
  has_labels = split not in task.test_splits
  rows = common.read_tsv(path)
  columns = dict(zip(("text_a", "text_b"), task.texts))
  if has_labels:
    columns["label"] = task.label
  header = _COLA_COLUMNS
  if task.name != "cola" or not has_labels:
    _, header = next(rows, (1, []))
    if task.guid or not has_labels:
      columns["guid"] = task.guid or "index"
  missing = [name for name in columns.values() if name not in header]
  if missing:
    raise ValueError(
      f"{path}, line 1: the header of {task.name} has no column "
      f"{files.quote(*missing)}, it has {files.quote(*header)}; take the "
      "official file."
    )
  examples: list[common.TextExample] = []
  skipped: list[int] = []
  quoted: list[int] = []
  for line, cells in rows:
    if any(map(rows_lib.has_doubled_marks, cells)):
      quoted.append(line)
    where = f"{path}, line {line}"
    if len(cells) < len(header):
      # Deviation: the original also skips such a row of the test file, and
      # leaves it without a prediction.
      if task.name == "qqp" and has_labels:
        skipped.append(line)
        continue
      raise ValueError(
        f"{where} has {len(cells)} columns, {task.name} needs {len(header)}, "
        "separated by tabs."
      )
    by_name = dict(zip(header, cells))
    values = {key: by_name[name] for key, name in columns.items()}
    if has_labels:
      common.check_label(where, values["label"], task.labels, 0.0, 5.0)
    guid = values.pop("guid", str(len(examples)))
    examples.append(common.TextExample(guid, **values))
  if not examples:
    raise ValueError(f"{path} has a header, but no examples.")
  if quoted and task.name != "qqp":  # Whose official files are quoted.
    note(
      f"warning: {split} of {task.name}: {len(quoted):,} rows are quoted as in "
      f"CSV, the first in line {quoted[0]}, but quotation marks are characters "
      "in GLUE: take the official file"
    )
  if skipped:
    note(
      f"{split} of {task.name}: skipped {len(skipped)} malformed rows, the "
      f"first in line {skipped[0]}"
    )
  return examples


def write_predictions(
  folder: str, task: GlueTask, split: str, table: common.ProbabilityTable
) -> str:
  """Writes the official file of one of `task.test_splits`; returns its path.

  It has `index<TAB>prediction` for every row of the test file. For STS-B,
  predictions are clipped to [0, 5] and written with three decimals, as in the
  training file.
  """
  predictions = table.predictions
  if task.labels is None:
    # Adding 0 turns -0.0 into 0.0.
    predictions = [f"{x:.3f}" for x in np.clip(table.values, 0.0, 5.0) + 0.0]
  rows = zip(("index", *table.ids), ("prediction", *predictions))
  file = task.submissions.get(split, f"{task.folder}.tsv")
  path = os.path.join(folder, file)
  text = "".join(f"{guid}\t{prediction}\n" for guid, prediction in rows)
  files.write_text(path, text)
  return path
