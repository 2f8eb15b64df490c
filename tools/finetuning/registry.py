"""What the names of fine-tuning tasks stand for, in one table.

Everything that depends on a task's name reads `TASKS`: the flags of its data,
its job, its model, the rows to predict and the export. The modules of a task
are loaded when one of them is made.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from official_albert import modeling
from tasks import common, pretraining, race, squad
from tasks.classification import glue
from tools import finetuning

if TYPE_CHECKING:
  import tensorflow as tf

  from official_albert import serving
  from official_albert.tokenization import in_graph


@dataclasses.dataclass(frozen=True)
class TaskKind:
  """What the name of a task stands for.

  Attributes:
    head: of its model, a key of `checkpoints.HEADS`.
    roles: the cells of a row to predict.
    make_job: the task on the data that its options name.
    data_flags: flags that name its data or apply to few tasks.
  """

  head: str
  roles: tuple[str, ...]
  make_job: Callable[[str, finetuning.jobs.Options], finetuning.jobs.Job]
  data_flags: tuple[str, ...] = ("data_dir",)

  @property
  def is_text(self) -> bool:
    """Whether it gives texts a class or a number."""
    return self.head in ("classification", "regression")


def _glue_job(name: str, options: finetuning.jobs.Options):
  return finetuning.text_jobs.GlueJob(name, options)


def _own_job(name: str, options: finetuning.jobs.Options):
  return finetuning.text_jobs.OwnJob(name, options)


def _squad_job(name: str, options: finetuning.jobs.Options):
  return finetuning.squad_job.SquadJob(name, options)


def _race_job(name: str, options: finetuning.jobs.Options):
  return finetuning.race_job.RaceJob(name, options)


_TEXT, _PAIR = ("text",), ("text_a", "text_b")
_QUESTION = ("question", "context")
_EXAM = ("passage", "question", "options")
_FILES = ("train_file", "dev_file", "test_file")
_OWN = (*_FILES, "text_column", "label_column", "id_column")
_OWN_PAIR = (*_OWN, "text_b_column")
_SQUAD_2 = ("data_dir", *_FILES, "null_score_diff_threshold")

TASKS: Mapping[str, TaskKind] = {
  **{
    name: TaskKind(
      "regression" if task.is_regression else "classification",
      _TEXT if name in ("cola", "sst2") else _PAIR,
      _glue_job,
    )
    for name, task in glue.GLUE_TASKS.items()
  },
  "squad_v1": TaskKind("squad1", _QUESTION, _squad_job, _SQUAD_2[:-1]),
  "squad_v2": TaskKind("squad2", _QUESTION, _squad_job, _SQUAD_2),
  "race": TaskKind("multiple_choice", _EXAM, _race_job),
  "race_v2": TaskKind("multiple_choice", _EXAM, _race_job),
  "text_classification": TaskKind("classification", _TEXT, _own_job, _OWN),
  "text_regression": TaskKind("regression", _TEXT, _own_job, _OWN),
  "text_pair_classification": TaskKind(
    "classification", _PAIR, _own_job, _OWN_PAIR
  ),
  "text_pair_regression": TaskKind("regression", _PAIR, _own_job, _OWN_PAIR),
}
# All that give texts a class or a number.
TEXT_TASKS = tuple(name for name, kind in TASKS.items() if kind.is_text)


def find(name: str, folder: str) -> TaskKind:
  """The task that a run or an export names.

  Args:
    name: of the task.
    folder: of the run or export, for the message.

  Raises:
    ValueError: this version has no such task.
  """
  if name not in TASKS:
    raise ValueError(
      f"{folder} is of the task {name!r}, which this version does not know: "
      "use the version that trained it."
    )
  return TASKS[name]


def make_model(
  head: str,
  config: modeling.AlbertConfig,
  classes: int = 1,
  settings: Optional[Mapping[str, Any]] = None,
) -> tf.keras.Model:
  """A model with fresh weights.

  Args:
    head: a key of `checkpoints.HEADS`.
    config: of the encoder.
    classes: of a classification.
    settings: of a run's record; SQuAD 2.0 has settings of its model there.

  Returns:
    The model of this package that has the head.
  """
  if head in ("pretraining", "masked_lm"):
    return pretraining.AlbertForPretraining(config, name="model")
  if head in ("classification", "regression"):
    return modeling.AlbertForSequenceClassification(
      config, classes, name="model"
    )
  if head == "multiple_choice":
    return race.AlbertForMultipleChoice(config, name="model")
  if head == "squad1":
    return squad.AlbertForSpans(config, name="model")
  if head == "squad2":
    recipe, settings = squad.RECIPES["squad_v2"], settings or {}
    return squad.AlbertForSpansOrNone(
      config,
      settings.get("start_n_top", recipe.start_n_top),
      settings.get("end_n_top", recipe.end_n_top),
      name="model",
    )
  return modeling.AlbertModel(config)


def make_served(
  run: finetuning.trained_run.TrainedRun,
  model: tf.keras.Model,
  text_layer: Optional[in_graph.TextLayer],
  max_seq_length: int,
) -> serving.ServedModule:
  """The module that serves a fine-tuned model.

  Args:
    run: whose model it is.
    model: with its weights.
    text_layer: of the run's tokenizer; None to serve ids only.
    max_seq_length: S of the texts.

  Raises:
    ValueError: see `serving.ServedModule`.
  """
  kind = find(run.task, run.model_dir)
  if kind.is_text:
    return common.ServedTextTask(
      model, text_layer, max_seq_length, run.labels, kind.roles == _PAIR
    )
  if kind.head == "multiple_choice":
    recipe = race.RECIPES["race"]
    return race.ServedMultipleChoice(
      model,
      text_layer,
      max_seq_length,
      run.settings.get("max_qa_length", recipe.max_qa_length),
    )
  return squad.served_squad(
    model,
    text_layer,
    max_seq_length,
    run.settings,
    run.null_score_diff_threshold,
  )
