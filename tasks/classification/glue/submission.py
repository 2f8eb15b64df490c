"""GLUE's metrics and scores, and the files that gluebenchmark.com takes.

A task's score is the mean of its metrics, MNLI's the mean of matched and
mismatched accuracy, and GLUE's the mean of the nine scores, as the site
computes them for the test sets. The diagnostics (AX) do not count.

The ALBERT paper gives no such average over the dev sets, where WNLI has no
number. Its Avg columns are the mean of five others: F1 and EM of SQuAD 1.1, the
same of SQuAD 2.0, MNLI, SST-2 and RACE. (For albert_base v2
((90.2 + 83.2) / 2 + (82.1 + 79.3) / 2 + 84.6 + 92.9 + 66.8) / 5 = 82.3.) Its
dev results of GLUE are medians over five runs.

The site takes eleven files in one zip.

Each is `index<TAB>prediction`, a row for each row of the test file: labels as
they are written in the task's training file (words for MNLI, AX, QNLI and RTE,
0 and 1 elsewhere), numbers from 0 to 5 for STS-B. The site takes a zip with all
eleven only; tasks may come one after the other, for `write_zip` packs what the
folder holds by then.
"""

from __future__ import annotations

import io
import math
import os
import pathlib
import zipfile
from typing import Mapping, NamedTuple, Sequence, Union

import numpy as np

from official_albert import files
from tasks import common
from tasks.classification.glue import benchmark


def evaluate_glue(
  task: benchmark.GlueTask, predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
  """The metrics of one split, in the official order, as fractions.

  Args:
    task: which metrics.
    predictions: <int>[N] positions in `task.labels`, <float>[N] of STS-B.
    labels: the same of the file.

  Raises:
    ValueError: the arrays don't fit each other, or hold no classes of `task`.
  """
  if not task.is_regression:
    top = max(np.max(predictions, initial=0), np.max(labels, initial=0))
    if top >= len(task.labels):
      raise ValueError(
        f"{task.name} has {len(task.labels)} classes, got class {top}."
      )
  return {
    name: getattr(common, name)(predictions, labels) for name in task.metrics
  }


def task_score(
  task: benchmark.GlueTask, results: Mapping[str, Mapping[str, float]]
) -> float:
  """One number for a task: over splits, the mean of the mean of its metrics.

  Args:
    task: whose.
    results: from split to what `evaluate` says, for each split of
      `task.dev_splits`.

  Raises:
    ValueError: a split or a metric is missing, or not a dev split.
  """
  if set(results) != set(task.dev_splits):
    raise ValueError(
      f"the score of {task.name} is made of {', '.join(task.dev_splits)}; got "
      f"{', '.join(results) or 'nothing'}."
    )
  scores = []
  for split, values in results.items():
    missing = [name for name in task.metrics if name not in values]
    if missing:
      raise ValueError(f"{task.name}, {split}: no {' and no '.join(missing)}.")
    scores.append(np.mean([values[name] for name in task.metrics]))
  return float(np.mean(scores))


def glue_average(scores: Mapping[str, float]) -> float:
  """The mean of the scores of all nine tasks, from names to `task_score`.

  Raises:
    ValueError: a task is missing, for a mean of fewer is no GLUE average.
  """
  missing = [name for name in benchmark.GLUE_TASKS if name not in scores]
  if missing:
    raise ValueError(
      f"GLUE's average is over nine tasks; no score of {', '.join(missing)}."
    )
  return float(np.mean([scores[name] for name in benchmark.GLUE_TASKS]))


# From task and split to the official name.
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
ZIP_NAME = "submission.zip"
_HEADER = "index\tprediction\n"


class Submission(NamedTuple):
  """What is in the zip, and which official files are not, by name."""

  path: str
  files: tuple[str, ...]
  missing: tuple[str, ...]

  def describe(self) -> str:
    """One line for a person."""
    text = f"{self.path}: {len(self.files)} of {len(SUBMISSION_FILES)} files"
    if not self.missing:
      return f"{text}, ready for gluebenchmark.com."
    return f"{text}; the site wants {', '.join(self.missing)} too."


def write_predictions(
  folder: str,
  task: benchmark.GlueTask,
  split: str,
  guids: Sequence[str],
  predictions: Sequence[Union[str, float]],
) -> str:
  """Writes the official file of one split; one that is there is replaced.

  Args:
    folder: of the submission; made if it isn't there.
    task: which task.
    split: one of `task.test_splits`.
    guids: the test file's own numbers of its rows, N.
    predictions: N of `task.labels`; for STS-B N numbers, which are clipped to
      [0, 5] and written with three decimals, as the training file has them.

  Returns:
    The path of the file.

  Raises:
    OSError: it can't be written.
    ValueError: there is no such file, the lengths differ, a number occurs twice
      or a prediction is no label, or not finite. Nothing is written then.
  """
  if (task.name, split) not in SUBMISSION_FILES:
    raise ValueError(
      f"GLUE takes no predictions of {task.name}, {split}; it takes those of "
      f"{', '.join(task.test_splits)}."
    )
  name = SUBMISSION_FILES[task.name, split]
  if len(guids) != len(predictions) or not len(guids):
    raise ValueError(
      f"{name} needs one prediction for each row, at least one; got "
      f"{len(predictions)} for {len(guids)} rows."
    )
  rows = [_HEADER]
  seen: set[str] = set()
  for guid, prediction in zip(guids, predictions):
    if guid in seen:
      raise ValueError(f"{name}: row {guid} is predicted twice.")
    seen.add(guid)
    rows.append(f"{guid}\t{_cell(task, name, guid, prediction)}\n")
  path = os.path.join(folder, name)
  os.makedirs(folder, exist_ok=True)
  files.write_text(path, "".join(rows))
  return path


def write_zip(folder: str) -> Submission:
  """Packs the official files in `folder` into its `submission.zip`.

  The same files give the same bytes: times are fixed, nothing is compressed
  (all eleven are about 5 MB).

  Raises:
    OSError: it can't be written.
    ValueError: there is none of the official files.
  """
  official = tuple(SUBMISSION_FILES.values())
  names = [n for n in official if os.path.isfile(os.path.join(folder, n))]
  if not names:
    raise ValueError(
      f"{folder} holds none of GLUE's files ({', '.join(official)}): "
      "predict first."
    )
  path = os.path.join(folder, ZIP_NAME)
  packed = io.BytesIO()
  with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
    for name in names:
      entry = zipfile.ZipInfo(name)  # Of 1 January 1980.
      entry.create_system = 3  # Unix, also where Windows packs it.
      entry.external_attr = 0o100644 << 16
      archive.writestr(entry, pathlib.Path(folder, name).read_bytes())
  files.write_bytes(path, packed.getvalue())
  missing = [name for name in official if name not in names]
  return Submission(path, tuple(names), tuple(missing))


def _cell(
  task: benchmark.GlueTask,
  name: str,
  guid: str,
  prediction: Union[str, float],
) -> str:
  if task.labels is not None:
    if prediction not in task.labels:
      raise ValueError(
        f"{name}, row {guid}: {prediction!r} is no label of {task.name}; those "
        f"are {', '.join(task.labels)}."
      )
    return str(prediction)
  value = float(prediction)
  if not math.isfinite(value):
    raise ValueError(f"{name}, row {guid}: the prediction is {value}.")
  # Adding 0 turns -0.0 into 0.0.
  return f"{min(max(value, 0.0), 5.0) + 0.0:.3f}"
