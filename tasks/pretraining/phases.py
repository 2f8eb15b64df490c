"""The phases of a pretraining: a task for each, with its data and settings."""

from __future__ import annotations

import itertools
from typing import Any, Sequence

from official_albert import modeling
from official_albert.tasks.pretraining import task as task_lib


def make_tasks(
  config: modeling.AlbertConfig,
  input_dirs: Sequence[str],
  seed: int,
  eval_input_dirs: Sequence[str] = (),
  mask_shares: Sequence[float] = (0.0,),
  layers: Sequence[int] = (0,),
  shift_positions: bool = False,
  **options: Any,
) -> list[task_lib.PretrainingTask]:
  """Makes a task for each phase of a run and checks all of their data.

  The cost of attention grows with the square of the length, so BERT (arXiv
  1810.04805, appendix A.2) spends 90% of its steps on 128 tokens and the rest
  on 512. There is no folder for evaluation, one for all phases, or one for
  each. So it is with `mask_shares`, the `masked_lm_prob` of `PretrainingTask`,
  and with `layers`, how many are applied, in evaluations too; 0 applies all.
  `options` are further arguments of `PretrainingTask`.

  With `shift_positions`, a phase of shorter sequences trains all positions of
  the longest ones, because each batch begins at a random one (after arXiv
  2109.05644). Else, a later phase begins with random embeddings of the others,
  which weight decay has made small.
  """
  for name, values in {
    "eval_input_dir": eval_input_dirs or ("",),
    "masked_lm_prob": mask_shares,
    "phase_layers": layers,
  }.items():
    if len(values) not in (1, len(input_dirs)):
      raise ValueError(
        f"{name} has {len(values)} values for {len(input_dirs)} phases: give "
        "one for all, or one for each."
      )
  eval_dirs = itertools.cycle(eval_input_dirs or [""])
  tasks = [
    task_lib.PretrainingTask(
      config, folder, seed, eval_dir, masked_lm_prob=share, **options
    )
    for folder, eval_dir, share in zip(
      input_dirs, eval_dirs, itertools.cycle(mask_shares)
    )
  ]
  for task, depth in zip(tasks, itertools.cycle(layers)):
    task_lib.check_same_kind(tasks[0].manifest, task.manifest, task.input_dir)
    if depth:
      config.at_depth(depth)  # Raises if the model cannot have it.
      task.num_layers = depth
  if layers[-1] not in (0, config.num_hidden_layers):
    raise ValueError(
      f"the last of phase_layers is {layers[-1]}, but the trained model "
      f"applies all its {config.num_hidden_layers} layers: end with these, or "
      f"set num_hidden_layers to {layers[-1]}."
    )
  if shift_positions:
    longest = max(task.tokens_per_example for task in tasks)
    for task in tasks:
      task.position_shift = longest - task.tokens_per_example
  return tasks
