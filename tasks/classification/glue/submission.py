"""GLUE's metrics and scores, and the files for gluebenchmark.com.

The score of a task is the mean of its metrics. For MNLI, it is the mean of
matched and mismatched accuracy. GLUE's score is the mean of the nine tasks, as
on the site for the test sets. The diagnostics (AX) do not count.

The ALBERT paper does not report this average. It has no dev result for WNLI,
and its column Avg is the mean of SQuAD 1.1, SQuAD 2.0 (each the mean of F1 and
EM), MNLI, SST-2 and RACE.

A submission is a zip of eleven files. Each has `index<TAB>prediction` for every
row of the test file: labels as in the training file, or numbers from 0 to 5 for
STS-B. Tasks may be written one after the other, because `write_zip` packs
whatever the folder contains.
"""

from __future__ import annotations

import io
import os
import pathlib
import zipfile
from typing import Mapping, NamedTuple, Sequence, Union

import numpy as np

from official_albert import files
from tasks import common
from tasks.classification.glue.benchmark import GLUE_TASKS, GlueTask

# By task and split.
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


def evaluate_glue(
  task: GlueTask, predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
  """Returns the metrics of one split, in the official order, as fractions.

  Predictions and labels are <int>[N] indices of `task.labels`; for STS-B, they
  are <float>[N].
  """
  return {
    name: getattr(common, name)(predictions, labels) for name in task.metrics
  }


def task_score(
  task: GlueTask, results: Mapping[str, Mapping[str, float]]
) -> float:
  """Returns the mean metric of a task over all its `dev_splits`."""
  values = [
    [results[split][name] for name in task.metrics] for split in task.dev_splits
  ]
  return float(np.mean(values))


def glue_average(scores: Mapping[str, float]) -> float:
  """Returns the mean of the `task_score` of all nine tasks, given by name."""
  return float(np.mean([scores[name] for name in GLUE_TASKS]))


class Submission(NamedTuple):
  """A zip file, the official files in it, and the missing ones."""

  path: str
  files: tuple[str, ...]
  missing: tuple[str, ...]

  def describe(self) -> str:
    """Returns one line for the terminal."""
    text = f"{self.path}: {len(self.files)} of {len(SUBMISSION_FILES)} files"
    if not self.missing:
      return f"{text}, ready for gluebenchmark.com."
    return f"{text}; the site also needs {', '.join(self.missing)}."


def write_predictions(
  folder: str,
  task: GlueTask,
  split: str,
  guids: Sequence[str],
  predictions: Sequence[Union[str, float]],
) -> str:
  """Writes the official file of one of `task.test_splits`; returns its path.

  Args:
    folder: the folder of the submission; created if missing.
    task: the task.
    split: the name of the split.
    guids: the N ids of the test file.
    predictions: N labels of `task.labels`. For STS-B, N numbers, which are
      clipped to [0, 5] and written with three decimals, as in the training
      file.

  Raises:
    ValueError: a prediction is not a label.
  """
  name = SUBMISSION_FILES[task.name, split]
  if task.labels is None:
    # Adding 0 turns -0.0 into 0.0.
    predictions = [
      f"{x:.3f}" for x in np.clip(np.float64(predictions), 0.0, 5.0) + 0.0
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
  os.makedirs(folder, exist_ok=True)
  files.write_text(path, "".join(lines))
  return path


def write_zip(folder: str) -> Submission:
  """Packs the official files of `folder` into its `submission.zip`.

  The bytes depend only on the files: times are fixed, and nothing is compressed
  (the eleven files have about 5 MB in total).

  Raises:
    ValueError: there are no official files.
  """
  official = tuple(SUBMISSION_FILES.values())
  names = [n for n in official if os.path.isfile(os.path.join(folder, n))]
  if not names:
    raise ValueError(
      f"{folder} has none of GLUE's files ({', '.join(official)}): predict "
      "first."
    )
  path = os.path.join(folder, "submission.zip")
  packed = io.BytesIO()
  with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
    for name in names:
      entry = zipfile.ZipInfo(name)  # Dated 1 January 1980.
      entry.create_system = 3  # Unix, also on Windows.
      entry.external_attr = 0o100644 << 16
      archive.writestr(entry, pathlib.Path(folder, name).read_bytes())
  files.write_bytes(path, packed.getvalue())
  missing = [name for name in official if name not in names]
  return Submission(path, tuple(names), tuple(missing))
