"""The nine tasks of GLUE (arXiv 1804.07461): columns, labels, metrics, recipes.

The recipes are those of arXiv 1909.11942, Table 14. run_glue.sh of
google-research/albert has the same rates, batches, steps and warm-ups for eight
tasks (not WNLI). It cannot set the encoder's dropout for QQP, RTE and WNLI,
because the model's JSON file sets that.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

from tasks.common import Recipe


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
  def main_metric(self) -> str:
    return self.metrics[0]

  @property
  def splits(self) -> tuple[str, ...]:
    return ("train", *self.dev_splits, *self.test_splits)

  @property
  def is_regression(self) -> bool:
    return self.labels is None


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")

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
      ("accuracy", "f1"),
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
      ("accuracy", "f1"),
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


def get_glue_task(name: str) -> GlueTask:
  """Returns the task `name`."""
  return GLUE_TASKS[name]


# Rate, batch, steps, warm-up, dropout of the encoder.
GLUE_RECIPES: Mapping[str, Recipe] = {
  "cola": Recipe(1e-5, 16, 5336, 320, 0.0),
  "sst2": Recipe(1e-5, 32, 20935, 1256, 0.0),
  "mrpc": Recipe(2e-5, 32, 800, 200, 0.0),
  "stsb": Recipe(2e-5, 16, 3598, 214, 0.0),
  "qqp": Recipe(5e-5, 128, 14000, 1000, 0.1),
  "mnli": Recipe(3e-5, 128, 10000, 1000, 0.0),
  "qnli": Recipe(1e-5, 32, 33112, 1986, 0.0),
  "rte": Recipe(3e-5, 32, 800, 200, 0.1),
  "wnli": Recipe(2e-5, 16, 2000, 250, 0.1),
}
