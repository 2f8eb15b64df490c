"""Saves, restores and warm-starts runs.

A checkpoint holds the weights, the optimizer and the number of examples seen.
That is enough for an exact resume, because everything else is a function of the
settings. With several workers, the chief writes and chooses the checkpoints.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import NamedTuple, Optional, Union

import tensorflow as tf

from official_albert import checkpoints, distribution
from official_albert.training import run_record

_NAME = "model.ckpt"
_DAMAGED = "damaged-"
# As best_checkpoint.BEST_FOLDER; the run is in its parent.
_BEST = "best"
_SHOWN_LABELS = 8


class Head(NamedTuple):
  """The meaning of the outputs of a model's head.

  Attributes:
    kind: "classification", "regression" or "multiple_choice".
    labels: names of the classes in the order of the outputs; () if there are
      none, or if they are not known.
  """

  kind: str
  labels: tuple[str, ...] = ()

  def __str__(self) -> str:
    if self.kind == "regression":
      return "a number"
    if self.kind == "multiple_choice":
      return "the options of a question"
    if not self.labels:
      return "classes without names"
    more = len(self.labels) - _SHOWN_LABELS
    return f"the classes {', '.join(self.labels[:_SHOWN_LABELS])}" + (
      f" and {more} more" if more > 0 else ""
    )


class CheckpointManager:
  """The checkpoints of one run."""

  def __init__(self, model_dir: str, max_to_keep: int, **trackables):
    """Creates the folder if need be.

    Args:
      model_dir: folder of the checkpoints.
      max_to_keep: how many of the newest checkpoints to keep.
      **trackables: the content of a checkpoint, by name.

    Raises:
      OSError: the folder cannot be created or written.
    """
    tf.io.gfile.makedirs(model_dir)
    if "://" not in model_dir and not os.access(model_dir, os.W_OK):
      raise PermissionError(
        f"model_dir {model_dir} is not writable: choose another folder."
      )
    self._checkpoint = tf.train.Checkpoint(**trackables)
    self._max_to_keep = max_to_keep
    self._directory = model_dir
    self._open()

  def _open(self) -> None:
    self._manager = tf.train.CheckpointManager(
      self._checkpoint,
      self._directory,
      self._max_to_keep,
      checkpoint_name=_NAME,
    )

  @property
  def latest(self) -> Optional[str]:
    """Prefix of the newest checkpoint, or None."""
    return self._manager.latest_checkpoint

  def initialize(
    self,
    model: tf.keras.Model,
    init_checkpoint: str,
    head: Optional[Head] = None,
  ) -> str:
    """Restores the latest checkpoint, or starts from `init_checkpoint` if any.

    Damaged checkpoints are renamed, and the one before them is restored.

    Args:
      model: the model.
      init_checkpoint: see `warm_start`; "" for random weights.
      head: see `warm_start`.

    Returns:
      A sentence for the log.

    Raises:
      ValueError: the checkpoint is of another model, or all are damaged.
      FileNotFoundError: `init_checkpoint` does not exist.
    """
    self._remove_leftovers()
    self._find_again()
    if self._manager.checkpoints:
      return self.restore_latest()
    if init_checkpoint:
      path = checkpoints.find_prefix(init_checkpoint)
      report = warm_start(model, path, head)
      return f"warm start from {path}: {report}"
    return "weights initialized from scratch"

  def restore_latest(self) -> str:
    """Restores the newest checkpoint that is not damaged; see `initialize`."""
    damaged = []
    for path in reversed(self._manager.checkpoints):
      try:
        self._checkpoint.restore(path).assert_consumed()
      except (AssertionError, ValueError) as error:
        raise ValueError(
          f"{path} does not fit this model: its folder belongs to a run of "
          "another configuration, or one with float16's loss scale and one "
          "without; choose another model_dir or remove it."
        ) from error
      except (tf.errors.OpError, IndexError):
        damaged.append(path)
        continue
      if damaged:
        self._set_aside(damaged)
        names = ", ".join(map(os.path.basename, damaged))
        return (
          f"resumed from {path}, because {names} cannot be read (renamed to "
          f"{_DAMAGED}...)"
        )
      return f"resumed from {path}"
    raise ValueError(
      f"no checkpoint in {self._directory} can be read, all {len(damaged)} "
      "are damaged: restore one from a backup, or choose another model_dir to "
      "start again."
    )

  def save(self, step: int) -> str:
    """Writes a checkpoint and returns its prefix.

    Raises:
      OSError: it cannot be written, for example because the disk is full; older
        checkpoints are kept.
    """
    try:
      return self._manager.save(checkpoint_number=step)
    except (OSError, tf.errors.OpError) as error:
      self._remove_leftovers()
      before = self._manager.latest_checkpoint or "none"
      reason = getattr(error, "message", None) or str(error)
      raise OSError(
        f"the checkpoint of step {step:,} could not be written to "
        f"{self._directory} ({reason.splitlines()[0]}): make room there and "
        f"give the same command again; the latest whole checkpoint is {before}."
      ) from error

  def _find_again(self) -> None:
    """Lists the checkpoints by their files if their index is lost."""
    if self._manager.checkpoints:
      return
    self._keep(list_checkpoints(self._directory))

  def _set_aside(self, paths: list[str]) -> None:
    for path in paths:
      for name in tf.io.gfile.glob(f"{path}.*"):
        folder, base = os.path.split(name)
        tf.io.gfile.rename(
          name, os.path.join(folder, _DAMAGED + base), overwrite=True
        )
    self._keep([p for p in self._manager.checkpoints if p not in paths])

  def _keep(self, paths: list[str]) -> None:
    """Writes `paths`, oldest first, to the index of the checkpoints."""
    if paths:
      tf.compat.v1.train.update_checkpoint_state(
        self._directory,
        paths[-1],
        all_model_checkpoint_paths=paths,
        # CheckpointManager ignores paths without a time.
        all_model_checkpoint_timestamps=[
          tf.io.gfile.stat(f"{path}.index").mtime_nsec / 1e9 for path in paths
        ],
      )
      self._open()

  def _remove_leftovers(self) -> None:
    """Removes the temporary files of a save that was killed."""
    folder = self._manager.directory
    for name in tf.io.gfile.listdir(folder):
      if "_temp" in name and name.startswith(_NAME):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def list_checkpoints(model_dir: str) -> list[str]:
  """Returns the prefixes of the checkpoints in a folder, sorted by step.

  Looks at the files, because their index may be lost or outdated.
  """
  names = tf.io.gfile.glob(os.path.join(model_dir, f"{_NAME}-*.index"))
  return sorted((name[: -len(".index")] for name in names), key=step_of)


def step_of(path: str) -> int:
  """Returns the step at the end of a checkpoint's name.

  Raises:
    ValueError: the name does not end with a number.
  """
  return int(path.rsplit("-", 1)[-1])


def newest_step(model_dir: str) -> int:
  """Returns the step of the newest checkpoint; 0 if there is none."""
  paths = list_checkpoints(model_dir)
  return step_of(paths[-1]) if paths else 0


def path_of(model_dir: str, step: int) -> str:
  """Returns the prefix of the checkpoint of `step`."""
  return os.path.join(model_dir, f"{_NAME}-{step}")


def warm_start(
  model: tf.keras.Model, path: str, head: Optional[Head] = None
) -> checkpoints.LoadReport:
  """Reads the weights of a model from a checkpoint, without optimizer state.

  Args:
    model: the model; variables that the checkpoint lacks keep their values and
      are listed in the report.
    path: a checkpoint (ours or of the original TF1 code), see
      `checkpoint_files.find_prefix`.
    head: the meaning of the model's outputs, which is compared with the
      run.json beside the checkpoint: the rows of the same classes are put in
      this order, and a head of another meaning is not read. None reads the head
      unchanged.

  Returns:
    A report of the names on both sides and of the head.

  Raises:
    FileNotFoundError: the checkpoint does not exist.
    ValueError: a shape differs, or no name matches.
  """
  path = checkpoints.find_prefix(path)
  reader = tf.train.load_checkpoint(path)
  shapes = reader.get_variable_to_shape_map()
  if checkpoints.OBJECT_GRAPH not in shapes:
    report = checkpoints.load_tf1_checkpoint(model, path)
    if head is None or "output_weights" not in report.matched:
      return report
    # This format does not name classes.
    _, note = _match_heads(None, head)
    return dataclasses.replace(report, notes=(note,))
  variables = checkpoints.by_path(model)
  stored = {checkpoints.path_of(key): key for key in shapes}
  stored.pop(None, None)
  both = sorted(set(variables) & set(stored))

  def is_head(name: str) -> bool:
    return hasattr(model, "albert") and not name.startswith("albert/")

  matched, other_shape = checkpoints.split_by_shape(
    both,
    {name: shapes[stored[name]] for name in both},
    variables,
    is_head,
    path,
  )
  if not matched:
    raise ValueError(f"{path} holds no variable of this model.")
  rows, notes, left_out = None, (), []
  stored_head = _recorded_head(path) if head else None
  kept = [name for name in matched if is_head(name)]
  if head is not None and (kept or (other_shape and stored_head)):
    rows, note = _match_heads(stored_head, head)
    notes = (note,)
    if rows is None:
      left_out, matched = kept, [name for name in matched if not is_head(name)]
  for name in matched:
    value = reader.get_tensor(stored[name])
    if rows is not None and is_head(name):
      value = value[rows]
    variables[name].assign(value)
  ignored = set(shapes) - set(stored.values()) - {checkpoints.OBJECT_GRAPH}
  return checkpoints.LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted(set(variables) - set(matched))),
    unexpected=tuple(sorted(set(stored) - set(variables))),
    ignored=tuple(sorted(ignored)),
    other_shape=tuple(other_shape),
    left_out=tuple(left_out),
    notes=notes,
  )


def _recorded_head(prefix: str) -> Optional[Head]:
  """Returns the head according to run.json; None if it is not recorded."""
  folder = os.path.dirname(prefix)
  folders = [folder]
  if os.path.basename(folder) == _BEST:
    folders.append(os.path.dirname(folder))
  for folder in folders:
    if os.path.exists(os.path.join(folder, run_record.RECORD_FILE)):
      break
  else:
    return None
  data = run_record.read_run(folder)["data"]
  settings = data.get("settings") or {}
  labels = tuple(settings.get("labels") or ())
  kind = data.get("head", "")
  if not kind and "task" in data:
    kind = "classification" if labels else "regression"
    if data["task"] == "race":
      kind = "multiple_choice"
  return Head(kind, labels) if kind else None


def _match_heads(
  stored: Optional[Head], head: Head
) -> tuple[Optional[list[int]], str]:
  """Matches the rows of a stored head with those of the model's head.

  Args:
    stored: the meaning of the checkpoint's outputs; None if it is not known.
    head: the meaning of the model's outputs.

  Returns:
    The indices of the stored rows in the order of `head`, None if the heads do
    not match; and a sentence for the log.
  """
  unchanged = list(range(max(len(head.labels), 1)))
  kept = f"the head is kept, for {head}"
  if stored is None or (stored.kind == head.kind and not stored.labels):
    if head.kind == "classification":
      kept = (
        "warning: the checkpoint does not name the classes of its head, which "
        f"is kept: they are taken to be {', '.join(head.labels)}, in this order"
      )
    return unchanged, kept
  if stored.kind != head.kind or set(stored.labels) != set(head.labels):
    note = (
      f"a new head is trained, for {head}: the checkpoint's is for {stored}"
    )
    if stored.kind == head.kind and len(stored.labels) == len(head.labels):
      note += "; to keep it, give the data the same names"
    return None, note
  if stored.labels == head.labels:
    return unchanged, kept
  return [stored.labels.index(label) for label in head.labels], (
    f"{kept}, whose rows are put in this order; the checkpoint's is for "
    f"{stored}"
  )


_NONE = -1


class ChiefManager(CheckpointManager):
  """The manager of the chief, which tells the other workers the step.

  Several workers share one folder. Only the chief looks at it, as a file there
  may be damaged, half written or just renamed. The others receive the step and
  read that checkpoint, so that all continue from the same one.
  """

  def __init__(self, strategy, model_dir, max_to_keep, **trackables):
    super().__init__(model_dir, max_to_keep, **trackables)
    self._strategy = strategy

  def initialize(
    self,
    model: tf.keras.Model,
    init_checkpoint: str,
    head: Optional[Head] = None,
  ) -> str:
    report = super().initialize(model, init_checkpoint, head)
    if not self.latest:  # Otherwise restore_latest has sent the step.
      distribution.from_chief(self._strategy, _NONE)
    return report

  def restore_latest(self) -> str:
    report = super().restore_latest()
    distribution.from_chief(self._strategy, step_of(self.latest))
    return report

  def save(self, step: int) -> str:
    path = super().save(step)
    distribution.barrier(self._strategy)
    return path


class FollowingManager:
  """The manager of other workers, which restore what the chief restores.

  Attributes:
    latest: prefix of the newest checkpoint, or None.
  """

  latest: Optional[str] = None

  def __init__(self, strategy, model_dir, **trackables):
    self._checkpoint = tf.train.Checkpoint(**trackables)
    self._strategy = strategy
    self._directory = model_dir

  def initialize(
    self,
    model: tf.keras.Model,
    init_checkpoint: str,
    head: Optional[Head] = None,
  ) -> str:
    report = self.restore_latest()
    if not self.latest and init_checkpoint:
      warm_start(model, init_checkpoint, head)
    return report

  def restore_latest(self) -> str:
    step = distribution.from_chief(self._strategy, _NONE)
    if step == _NONE:
      return "no checkpoint yet"
    path = path_of(self._directory, step)
    try:
      self._checkpoint.restore(path).assert_consumed()
    except (tf.errors.OpError, IndexError) as error:
      raise OSError(
        f"this worker cannot read {path}, from which the chief resumes "
        f"({error}): model_dir has to be a folder that all workers share."
      ) from error
    self.latest = path
    return f"resumed from {path}"

  def save(self, step: int) -> str:
    distribution.barrier(self._strategy)
    self.latest = path_of(self._directory, step)
    return self.latest


def make_manager(
  strategy: tf.distribute.Strategy,
  model_dir: str,
  max_to_keep: int,
  **trackables,
) -> Union[CheckpointManager, FollowingManager]:
  """Returns the manager for this process; see `CheckpointManager`."""
  if distribution.num_workers(strategy) == 1:
    return CheckpointManager(model_dir, max_to_keep, **trackables)
  if distribution.is_chief(strategy):
    return ChiefManager(strategy, model_dir, max_to_keep, **trackables)
  return FollowingManager(strategy, model_dir, **trackables)
