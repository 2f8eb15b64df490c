"""The table of fine-tuning tasks. Does not load TensorFlow, for `--help`.

Everything that depends on a task's name reads `TASKS`: the flags of its data,
its class, the rows to predict and the export. `register` adds a user's task.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pkgutil
import sys
from typing import TYPE_CHECKING, Any, Union

from official_albert import files
from official_albert.settings import PAIR, TEXT
from official_albert.tasks.classification import glue

if TYPE_CHECKING:
  from official_albert import checkpoints
  from official_albert.tasks import common


@dataclasses.dataclass(frozen=True)
class TaskKind:
  """A task: its class, its head, the columns of its rows, its flags.

  Attributes:
    task: the subclass of `tasks.common.finetuning_task.FinetuningTask`. Ours
      are named, as "squad.task:SquadTask", because they load TensorFlow.
    head: its head in `checkpoints.HEADS`, by which it is predicted and served.
    roles: the columns of its rows.
    data_flags: the flags for its data, and others that only some tasks have.
  """

  task: Union[str, type]
  head: str
  roles: tuple[str, ...]
  data_flags: tuple[str, ...] = ("data_dir",)

  @property
  def is_text(self) -> bool:
    """Whether the task predicts classes or a number for texts."""
    return self.head in TEXT_HEADS


# The cells that a row may have; signatures use the same names.
OPTIONS = "options"
ROLES = ("text", "text_a", "text_b", "question", "context", "passage", OPTIONS)
NUM_OPTIONS = 4
_QUESTION = ("question", "context")
_EXAM = ("passage", "question", OPTIONS)
_FILES = ("train_file", "dev_file", "test_file")
_OWN = (
  *(*_FILES, "dev_share", "text_column", "label_column", "id_column"),
  "skip_invalid",
)
_OWN_PAIR = (*_OWN, "text_b_column")
_OWN_HEADS = {
  "classification": ("class_weights",),
  "multi_label": ("class_weights", "label_separator"),
}
# Of the tasks that predict classes or a number for texts.
TEXT_HEADS = ("classification", "regression", "multi_label")
TAGS_HEAD = "token_classification"
_SQUAD = ("data_dir", *_FILES, "skip_invalid")
_SQUAD_2 = (*_SQUAD, "null_score_diff_threshold")

TASKS: dict[str, TaskKind] = {
  **{
    name: TaskKind(
      "classification.task:GlueTask",
      "regression" if task.labels is None else "classification",
      TEXT if len(task.texts) == 1 else PAIR,
    )
    for name, task in glue.GLUE_TASKS.items()
  },
  "squad_v1": TaskKind("squad.task:SquadTask", "squad1", _QUESTION, _SQUAD),
  "squad_v2": TaskKind("squad.task:SquadTask", "squad2", _QUESTION, _SQUAD_2),
  "token_classification": TaskKind(
    "tagging.task:TaggingTask", TAGS_HEAD, TEXT, _OWN
  ),
  "text_embedding": TaskKind(
    "embedding.task:EmbeddingTask",
    "embedding",
    TEXT,
    (*_OWN_PAIR, "text_c_column"),
  ),
  "race": TaskKind("race.task:RaceTask", "multiple_choice", _EXAM),
  "race_v2": TaskKind("race.task:RaceTask", "multiple_choice", _EXAM),
  **{
    f"text_{pair}{head}": TaskKind(
      "classification.task:OwnTask"
      if head != "multi_label"
      else "classification.multi_label:MultiLabelTask",
      head,
      roles,
      (*flags, *_OWN_HEADS.get(head, ())),
    )
    for pair, roles, flags in (("", TEXT, _OWN), ("pair_", PAIR, _OWN_PAIR))
    for head in TEXT_HEADS
  },
}
TEXT_TASKS = tuple(name for name, kind in TASKS.items() if kind.is_text)


def task_of(head: str) -> str:
  """Returns a task with a head whose rows have one form, or "" for texts."""
  names = (name for name, kind in TASKS.items() if kind.head == head)
  return next((name for name in names if not TASKS[name].is_text), "")


def register(
  name: str,
  task: type,
  head: str = "classification",
  roles: tuple[str, ...] = TEXT,
  data_flags: tuple[str, ...] = ("data_dir",),
) -> None:
  """Gives a user's task a name; the arguments are those of `TaskKind`.

  A module that calls it may be given as --task_module, or be imported.
  """
  if name in TASKS and isinstance(TASKS[name].task, str):
    raise ValueError(f"the task {name} exists: give yours another name.")
  known = {*ROLES, *(kind.head for kind in TASKS.values())}
  if unknown := {head, *roles} - known:
    raise ValueError(
      f"the task {name} has the head or role {', '.join(unknown)}, which must "
      f"be of {', '.join(sorted(known))}."
    )
  TASKS[name] = TaskKind(task, head, roles, data_flags)


def load_module(path: str) -> None:
  """Runs a user's file of Python, which calls `register`; "" does nothing."""
  if not path:
    return
  name = os.path.splitext(os.path.basename(path))[0]
  spec: Any = importlib.util.spec_from_file_location(name, path)
  if spec is None or not files.is_file(path):
    raise FileNotFoundError(f"--task_module {path} is no file of Python (.py).")
  module = importlib.util.module_from_spec(spec)
  sys.modules.setdefault(name, module)
  before = {**TASKS}
  try:
    spec.loader.exec_module(module)
  except (ImportError, SyntaxError) as error:
    raise ValueError(f"--task_module {path} is not run: {error}.") from error
  if before == TASKS:
    raise ValueError(
      f"--task_module {path} has no task: it must call tasks.registry.register."
    )


def get(name: str, folder: str = "") -> TaskKind:
  """Returns the task of a name; ValueError if there is none.

  With `folder`, it is the task of the run or the export there.
  """
  if name not in TASKS:
    of = f" of {folder}" if folder else ""
    raise ValueError(
      f"there is no task {name!r:.40}{of}: is --task_module missing?"
    )
  return TASKS[name]


def make_task(name: str, options: common.TaskOptions) -> Any:
  """Returns the task of a name with its data. Loads TensorFlow."""
  task: Any = get(name).task
  if isinstance(task, str):
    task = pkgutil.resolve_name(f"official_albert.tasks.{task}")
  return task(name, options)


def name_task(checkpoint: checkpoints.PortableCheckpoint, task: str) -> None:
  """Sets the task and the labels of a classifier from another format.

  `task` is one of `TEXT_TASKS`. Another head, task or labels are a ValueError.
  """
  head, problem = TASKS[task].head, checkpoint.head_problem
  labels: tuple[str, ...] = checkpoint.labels
  classes = labels or tuple(f"LABEL_{i}" for i in range(checkpoint.classes))
  numbers = tuple(map(str, range(checkpoint.classes)))
  expected = glue.GLUE_TASKS[task].labels if task in glue.GLUE_TASKS else None
  if not problem and checkpoint.task not in ("", task):
    problem = f"it is of --task={checkpoint.task}"
  elif not problem and checkpoint.head != head:
    problem = f"it has the head {checkpoint.head}, but the task needs {head}"
  # Unnamed classes are unambiguous only where the task's are numbers.
  elif not problem and expected and (labels or numbers) != expected:
    problem = (
      f"it has the classes {', '.join(classes)}, but the task has "
      f"{', '.join(expected)}, in this order; text_classification and "
      "text_pair_classification keep the model's own"
    )
  if problem:
    raise ValueError(
      f"{checkpoint.source} is not of --task={task}, because {problem}: leave "
      "--task out, or give another."
    )
  checkpoint.task = task
  checkpoint.labels = () if head == "regression" else expected or classes
