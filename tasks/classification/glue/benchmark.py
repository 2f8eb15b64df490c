"""The nine tasks of GLUE (arXiv 1804.07461): labels, metrics, splits, recipes.

The recipes are those of arXiv 1909.11942, Table 14. run_glue.sh of
google-research/albert has the same rates, batches, steps and warm-ups for eight
tasks (not WNLI). It cannot set the encoder's dropout of QQP, RTE and WNLI: that
is in the model's JSON file.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

from tasks.common import Recipe


@dataclasses.dataclass(frozen=True)
class GlueTask:
  """What distinguishes a task, besides its files.

  Attributes:
    name: as in `--task`.
    folder: of its files, as in the official archives.
    labels: in the order of the head's outputs; None for a regression.
    metrics: functions of `tasks.common`, in the official order.
    main_metric: chooses the best checkpoint; higher is better.
    dev_splits: with labels; MNLI has two.
    test_splits: without labels; MNLI's model also predicts the diagnostics,
      "ax".
  """

  name: str
  folder: str
  labels: Optional[tuple[str, ...]]
  metrics: tuple[str, ...] = ("accuracy",)
  main_metric: str = "accuracy"
  dev_splits: tuple[str, ...] = ("dev",)
  test_splits: tuple[str, ...] = ("test",)

  @property
  def splits(self) -> tuple[str, ...]:
    return ("train", *self.dev_splits, *self.test_splits)

  @property
  def is_regression(self) -> bool:
    return self.labels is None


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")

# Orders of labels and main metrics are those of google-research/albert
# classifier_utils.py and run_classifier.py.
GLUE_TASKS: Mapping[str, GlueTask] = {
  "cola": GlueTask("cola", "CoLA", _BINARY, ("matthews",), "matthews"),
  "sst2": GlueTask("sst2", "SST-2", _BINARY),
  "mrpc": GlueTask("mrpc", "MRPC", _BINARY, ("accuracy", "f1")),
  "stsb": GlueTask("stsb", "STS-B", None, ("pearson", "spearman"), "pearson"),
  "qqp": GlueTask("qqp", "QQP", _BINARY, ("accuracy", "f1")),
  "mnli": GlueTask(
    "mnli",
    "MNLI",
    ("contradiction", "entailment", "neutral"),
    dev_splits=("dev_matched", "dev_mismatched"),
    test_splits=("test_matched", "test_mismatched", "ax"),
  ),
  "qnli": GlueTask("qnli", "QNLI", _ENTAILMENT),
  "rte": GlueTask("rte", "RTE", _ENTAILMENT),
  "wnli": GlueTask("wnli", "WNLI", _BINARY),
}


def get_glue_task(name: str) -> GlueTask:
  """Returns the task `name`.

  Raises:
    ValueError: there is no such task.
  """
  if name not in GLUE_TASKS:
    raise ValueError(
      f"unknown GLUE task {name!r}; choose one of {', '.join(GLUE_TASKS)}."
    )
  return GLUE_TASKS[name]


# Rate, batch, steps, warm-up, the encoder's dropout.
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
