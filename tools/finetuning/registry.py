"""The table of fine-tuning tasks, and the models of their heads.

Everything that depends on a task's name reads `TASKS`: the flags of its data,
its job, its model, the rows to predict and the export.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from official_albert import checkpoints, modeling, serving
from official_albert.tasks import pretraining, race, squad
from official_albert.tasks.classification import glue
from official_albert.tools.finetuning import jobs

if TYPE_CHECKING:
  import tensorflow as tf

  from official_albert.tokenization import in_graph
  from official_albert.tools.finetuning import trained_run


@dataclasses.dataclass(frozen=True)
class TaskKind:
  """A task: its head in `checkpoints.HEADS`, the columns (`roles`) of its rows.

  `data_flags` are the flags for its data, and others that only some tasks have.
  """

  head: str
  roles: tuple[str, ...]
  make_job: Callable[[str, jobs.Options], jobs.Job]
  data_flags: tuple[str, ...] = ("data_dir",)

  @property
  def is_text(self) -> bool:
    """Whether the task predicts a class or a number for texts."""
    return self.head in ("classification", "regression")


_TEXT, _PAIR = ("text",), ("text_a", "text_b")
_QUESTION = ("question", "context")
_EXAM = ("passage", "question", "options")
_FILES = ("train_file", "dev_file", "test_file")
_OWN = (*_FILES, "dev_share", "text_column", "label_column", "id_column")
_OWN_PAIR = (*_OWN, "text_b_column")
_SQUAD = ("data_dir", *_FILES, "skip_invalid_questions", "score_characters")
_SQUAD_2 = (*_SQUAD, "null_score_diff_threshold")

TASKS: Mapping[str, TaskKind] = {
  **{
    name: TaskKind(
      "regression" if task.labels is None else "classification",
      _TEXT if len(task.texts) == 1 else _PAIR,
      jobs.GlueJob,
    )
    for name, task in glue.GLUE_TASKS.items()
  },
  "squad_v1": TaskKind("squad1", _QUESTION, jobs.SquadJob, _SQUAD),
  "squad_v2": TaskKind("squad2", _QUESTION, jobs.SquadJob, _SQUAD_2),
  "race": TaskKind("multiple_choice", _EXAM, jobs.RaceJob),
  "race_v2": TaskKind("multiple_choice", _EXAM, jobs.RaceJob),
  **{
    f"text_{pair}{head}": TaskKind(head, roles, jobs.OwnJob, flags)
    for pair, roles, flags in (("", _TEXT, _OWN), ("pair_", _PAIR, _OWN_PAIR))
    for head in ("classification", "regression")
  },
}
# The tasks that predict a class or a number for texts.
TEXT_TASKS = tuple(name for name, kind in TASKS.items() if kind.is_text)


def find(name: str, folder: str) -> TaskKind:
  """Returns the task of a run or an export in `folder`."""
  if name not in TASKS:
    raise ValueError(
      f"{folder} is of the task {name!r:.40}, which this version does not "
      "know: use the version that trained it."
    )
  return TASKS[name]


def name_task(checkpoint: checkpoints.PortableCheckpoint, task: str) -> None:
  """Sets the task and the labels of a classifier from another format.

  `task` is one of `TEXT_TASKS`. Another head, task or labels are a ValueError.
  """
  source, head = checkpoint.source, TASKS[task].head
  if checkpoint.head_problem:
    raise ValueError(
      f"{checkpoint.head_problem}: leave --task out, and use the encoder."
    )
  if checkpoint.head != head:
    raise ValueError(
      f"{source} has the head {checkpoint.head}, but --task={task} needs "
      f"{head}: give another task, or leave --task out."
    )
  if checkpoint.task not in ("", task):
    raise ValueError(
      f"{source} is of --task={checkpoint.task}, not of {task}: leave --task "
      "out."
    )
  checkpoint.task = task
  if head == "regression":
    checkpoint.labels = ()
    return
  numbers = range(checkpoint.classes)
  if task not in glue.GLUE_TASKS:
    unnamed = tuple(f"LABEL_{i}" for i in numbers)
    checkpoint.labels = checkpoint.labels or unnamed
    return
  expected = glue.GLUE_TASKS[task].labels
  # Unnamed classes are unambiguous only where the task's labels are numbers.
  if (checkpoint.labels or tuple(map(str, numbers))) != expected:
    raise ValueError(
      f"{source} has the classes {', '.join(checkpoint.labels) or 'LABEL_0...'}"
      f", but --task={task} has {', '.join(expected)}, in this order: give "
      "--task=text_classification or --task=text_pair_classification, which "
      "keep the model's own."
    )
  checkpoint.labels = expected


def make_model(
  head: str,
  config: modeling.AlbertConfig,
  classes: int = 1,
  settings: Optional[Mapping[str, Any]] = None,
  dtype: Any = None,
) -> tf.keras.Model:
  """Returns a model with random weights; `head` is one of `checkpoints.HEADS`.

  `settings` are those of a run's record, with start_n_top and end_n_top for
  SQuAD 2.0. `dtype` is that of Keras: None is the global policy.
  """
  options = {"name": "model", "dtype": dtype}
  if head in ("pretraining", "masked_lm"):
    return pretraining.AlbertForPretraining(config, **options)
  if head in ("classification", "regression"):
    return modeling.AlbertForSequenceClassification(config, classes, **options)
  if head == "multiple_choice":
    return race.AlbertForMultipleChoice(config, **options)
  if head == "squad1":
    return squad.AlbertForSpans(config, **options)
  if head == "squad2":
    recipe, settings = squad.RECIPES["squad_v2"], settings or {}
    return squad.AlbertForSpansOrNone(
      config,
      settings.get("start_n_top", recipe.start_n_top),
      settings.get("end_n_top", recipe.end_n_top),
      **options,
    )
  return modeling.AlbertModel(config, dtype=dtype)


def make_served(
  run: trained_run.TrainedRun,
  model: tf.keras.Model,
  text_layer: Optional[in_graph.TextLayer],
  max_seq_length: int,
) -> serving.ServedModule:
  """Returns the module that serves a model of a run.

  Without `text_layer`, it serves only ids; `max_seq_length` is that of texts.
  """
  kind = find(run.task, run.model_dir)
  arguments = model, text_layer, max_seq_length
  if kind.is_text:
    return serving.ServedTextTask(*arguments, run.labels, kind.roles == _PAIR)
  if kind.head == "multiple_choice":
    default = race.RECIPES["race"].max_qa_length
    return race.ServedMultipleChoice(
      *arguments, run.settings.get("max_qa_length", default)
    )
  return squad.served_squad(
    *arguments, run.settings, run.null_score_diff_threshold
  )
