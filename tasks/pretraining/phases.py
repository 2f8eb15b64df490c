"""Pretraining in phases: short sequences for most of the steps, then long ones.

Attention costs the square of the length, and most of what a model learns needs
no long context; so BERT (arXiv 1810.04805, appendix A.2) spends 90% of its
steps on 128 tokens and the rest on 512, for the positions beyond 128. The
model is the same; each phase has a folder of records, hence a task, of its own.

A depth schedule has one folder: its phases apply the model's layers fewer times
at first (arXiv 1909.11942, table 11, trains deep models from shallow ones).
"""

from __future__ import annotations

from typing import Sequence

import tfrecords
from official_albert import modeling
from tasks.pretraining import task as task_lib


def make_tasks(
  config: modeling.AlbertConfig,
  input_dirs: Sequence[str],
  seed: int,
  eval_input_dirs: Sequence[str] = (),
  recompute_activations: bool = False,
) -> list[task_lib.PretrainingTask]:
  """One task for each phase of a run; all of their data is looked at.

  Args:
    config: the model's configuration.
    input_dirs: the phases' folders.
    seed: see `task.PretrainingTask`.
    eval_input_dirs: none, one for all phases, or one for each.
    recompute_activations: see `SharedTransformerEncoder`.

  Raises:
    FileNotFoundError: a folder or one of its shards is missing.
    ValueError: a folder does not fit the model, or was made otherwise than
      the first: with another tokenizer or objective.
  """
  if len(eval_input_dirs) not in (0, 1, len(input_dirs)):
    raise ValueError(
      f"there are {len(eval_input_dirs)} folders to evaluate on, but "
      f"{len(input_dirs)} phases: give one for all, or one for each."
    )
  eval_dirs = list(eval_input_dirs) or [""]
  if len(eval_dirs) == 1:
    eval_dirs *= len(input_dirs)
  tasks = [
    task_lib.PretrainingTask(
      config, folder, seed, eval_dir, recompute_activations
    )
    for folder, eval_dir in zip(input_dirs, eval_dirs)
  ]
  first = tasks[0].manifest
  for task, folder in zip(tasks, input_dirs):
    task_lib.check_same_kind(first, input_dirs[0], task.manifest, folder)
    for split in task.manifest.splits.values():
      tfrecords.check_shards(folder, split.shards)
  return tasks


def at_depths(
  task: task_lib.PretrainingTask, depths: Sequence[int]
) -> list[task_lib.PretrainingTask]:
  """One task for each stretch of a depth schedule, all on the same data.

  Raises:
    ValueError: the model has no other depth than its own, or the last depth
      is not that.
  """
  own = task.config.num_hidden_layers
  if depths[-1] != own:
    raise ValueError(
      f"a depth schedule has to end at the model's num_hidden_layers {own}, "
      f"but it ends at {depths[-1]}: give {own} as its last depth."
    )
  return [task.at_depth(depth) for depth in depths]
