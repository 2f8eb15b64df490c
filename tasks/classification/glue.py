"""GLUE (arXiv 1804.07461): nine tasks on sentences or pairs of sentences.

The score of a task is the mean of its metrics, for MNLI that of matched and
mismatched accuracy. GLUE's score is the mean of the nine tasks without the
diagnostics (AX). It is not the column Avg of the ALBERT paper, which is the
mean of SQuAD 1.1, SQuAD 2.0 (each the mean of F1 and EM), MNLI, SST-2 and RACE.

Reference: google-research/albert classifier_utils.py, run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import io
import os
import zipfile
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import numpy as np

from official_albert import files
from official_albert.tasks import common


@dataclasses.dataclass(frozen=True)
class GlueTask:
  """The properties of a task.

  Attributes:
    name: the value of `--task`.
    folder: the folder of its files in the official archives.
    texts: the columns of the text or of both texts.
    labels: the labels in the order of the head's outputs; None for a
      regression.
    metrics: functions of `tasks.common`, in the official order. The first one
      selects the best checkpoint; higher is better.
    label: the column of the labels.
    guid: the column of the ids; "" numbers the rows from 0. Test files then
      have the column "index".
    dev_splits: the splits with labels for evaluation; MNLI has two.
    test_splits: the splits without labels; MNLI's model also predicts the
      diagnostics, "ax".
  """

  name: str
  folder: str
  texts: tuple[str, ...]
  labels: Optional[tuple[str, ...]]
  metrics: tuple[str, ...] = ("accuracy",)
  label: str = "label"
  guid: str = "index"
  dev_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  @property
  def splits(self) -> tuple[str, ...]:
    return ("train", *self.dev_splits, *self.test_splits)


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_F1 = ("accuracy", "f1")

# Orders of labels and main metrics are those of google-research/albert
# classifier_utils.py and run_classifier.py.
GLUE_TASKS: Mapping[str, GlueTask] = {
  task.name: task
  for task in (
    GlueTask("cola", "CoLA", ("sentence",), _BINARY, ("matthews",)),
    GlueTask("sst2", "SST-2", ("sentence",), _BINARY, guid=""),
    GlueTask(
      "mrpc",
      "MRPC",
      ("#1 String", "#2 String"),
      _BINARY,
      _F1,
      label="Quality",
      guid="",
    ),
    GlueTask(
      "stsb", "STS-B", _PAIR, None, ("pearson", "spearman"), label="score"
    ),
    GlueTask(
      "qqp",
      "QQP",
      ("question1", "question2"),
      _BINARY,
      _F1,
      label="is_duplicate",
      guid="id",
    ),
    GlueTask(
      "mnli",
      "MNLI",
      _PAIR,
      ("contradiction", "entailment", "neutral"),
      label="gold_label",
      dev_splits=("dev_matched", "dev_mismatched"),
      test_splits=("test_matched", "test_mismatched", "ax"),
    ),
    GlueTask("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT),
    GlueTask("rte", "RTE", _PAIR, _ENTAILMENT),
    GlueTask("wnli", "WNLI", _PAIR, _BINARY),
  )
}

# Rate, batch, steps, warm-up, dropout of the encoder: arXiv 1909.11942, Table
# 14. run_glue.sh of google-research/albert has the same values for eight tasks
# (not WNLI), but cannot set the dropout for QQP, RTE and WNLI, because the
# model's JSON file sets that.
GLUE_RECIPES: Mapping[str, common.Recipe] = {
  "cola": common.Recipe(1e-5, 16, 5336, 320, 0.0),
  "sst2": common.Recipe(1e-5, 32, 20935, 1256, 0.0),
  "mrpc": common.Recipe(2e-5, 32, 800, 200, 0.0),
  "stsb": common.Recipe(2e-5, 16, 3598, 214, 0.0),
  "qqp": common.Recipe(5e-5, 128, 14000, 1000, 0.1),
  "mnli": common.Recipe(3e-5, 128, 10000, 1000, 0.0),
  "qnli": common.Recipe(1e-5, 32, 33112, 1986, 0.0),
  "rte": common.Recipe(3e-5, 32, 800, 200, 0.1),
  "wnli": common.Recipe(2e-5, 16, 2000, 250, 0.1),
}

# The official file of each predicted split.
SUBMISSION_FILES: Mapping[tuple[str, str], str] = {
  ("cola", "test"): "CoLA.tsv",
  ("sst2", "test"): "SST-2.tsv",
  ("mrpc", "test"): "MRPC.tsv",
  ("stsb", "test"): "STS-B.tsv",
  ("qqp", "test"): "QQP.tsv",
  ("mnli", "test_matched"): "MNLI-m.tsv",
  ("mnli", "test_mismatched"): "MNLI-mm.tsv",
  ("qnli", "test"): "QNLI.tsv",
  ("rte", "test"): "RTE.tsv",
  ("wnli", "test"): "WNLI.tsv",
  ("mnli", "ax"): "AX.tsv",
}

# CoLA's files without a header have source, label, original judgment, text.
_COLA_COLUMNS = ["", "label", "", "sentence"]


def find_file(data_dir: str, task: GlueTask, split: str) -> str:
  """Returns the file of a split.

  `data_dir` is the folder with CoLA/, MNLI/ and so on (also named cola/, STSB/
  or sts_b/), or the task's folder. The diagnostics ("ax") are
  AX/diagnostic.tsv or diagnostic/diagnostic.tsv, in the same folder as MNLI.
  """
  official, file = task.folder, f"{split}.tsv"
  folders = [official, official.replace("-", "")]
  folders += [official.lower().replace("-", "_"), task.name]
  parents = [data_dir]
  if split == "ax":
    folders, file = ["AX", "diagnostic"], "diagnostic.tsv"
    parents.append(os.path.dirname(files.absolute(data_dir)))
  paths = [os.path.join(p, x, file) for p in parents for x in folders]
  for path in (*paths, os.path.join(data_dir, file)):
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

  Raises:
    ValueError: the file is invalid; the message names file and line.
  """
  path = find_file(data_dir, task, split)
  has_labels = split not in task.test_splits
  rows = common.read_tsv(path)
  columns = {f"text_{letter}": name for letter, name in zip("ab", task.texts)}
  if has_labels:
    columns["label"] = task.label
  if task.name == "cola" and has_labels:
    header = _COLA_COLUMNS
  else:
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
  positions = {key: header.index(name) for key, name in columns.items()}
  examples: list[Any] = []
  skipped: list[Any] = []
  for line, cells in rows:
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
    values = {key: cells[position] for key, position in positions.items()}
    if has_labels:
      common.check_label(where, values["label"], task.labels, 0.0, 5.0)
    examples.append(
      common.TextExample(**{"guid": str(len(examples)), **values})
    )
  if not examples:
    raise ValueError(f"{path} has a header, but no examples.")
  if skipped:
    note(
      f"{split} of {task.name}: skipped {len(skipped)} malformed rows, the "
      f"first in line {skipped[0]}"
    )
  return examples


def write_predictions(
  folder: str,
  task: GlueTask,
  split: str,
  guids: Sequence[str],
  predictions: Sequence[Union[str, float]],
) -> str:
  """Writes the official file of one of `task.test_splits`; returns its path.

  It has `index<TAB>prediction` for every row of the test file, given its N ids
  `guids`. Predictions are N labels of `task.labels`. For STS-B, they are
  numbers, which are clipped to [0, 5] and written with three decimals, as in
  the training file.
  """
  name = SUBMISSION_FILES[task.name, split]
  if task.labels is None:
    # Adding 0 turns -0.0 into 0.0.
    predictions = [
      f"{x:.3f}"
      for x in np.clip(np.asarray(predictions, np.float64), 0.0, 5.0) + 0.0
    ]
  lines = ["index\tprediction\n"]
  for guid, prediction in zip(guids, predictions):
    if task.labels is not None and prediction not in task.labels:
      raise ValueError(
        f"{name}, row {guid}: {prediction!r} is not a label of {task.name}; "
        f"those are {', '.join(task.labels)}."
      )
    lines.append(f"{guid}\t{prediction}\n")
  path = os.path.join(folder, name)
  files.make_folder(folder)
  files.write_text(path, "".join(lines))
  return path


def write_zip(folder: str) -> str:
  """Packs the official files of `folder` into its `submission.zip`.

  Tasks may be written one after the other: the zip has the files that exist.
  Its bytes depend only on these: times are fixed, and nothing is compressed
  (the eleven files have about 5 MB in total). Returns a line for the log.
  """
  official, existing = SUBMISSION_FILES.values(), files.list_dir(folder)
  names = [name for name in official if name in existing]
  packed = io.BytesIO()
  with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
    for name in names:
      # Dated 1 January 1980.
      content = files.read_bytes(os.path.join(folder, name))
      archive.writestr(zipfile.ZipInfo(name), content)
  path = os.path.join(folder, "submission.zip")
  files.write_bytes(path, packed.getvalue())
  text = f"{path}: {len(names)} of {len(official)} files"
  missing = [name for name in official if name not in names]
  if missing:
    return f"{text}; the site also needs {', '.join(missing)}."
  return f"{text}, ready for gluebenchmark.com."
