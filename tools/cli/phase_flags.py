"""What the flags of a run in phases mean: `--phase_steps=112500,12500`.

Flags that can have a value for each phase are lists in one string; a single
value is that of all phases.
"""

from __future__ import annotations

import os
from typing import Optional

from official_albert.training import Phase


def folders(flag: str, value: str, phases: int) -> list[str]:
  """The folders of all phases.

  Args:
    flag: its name, for messages.
    value: the flag's; with a single phase, a folder whose name may have
      commas.
    phases: how many there are.

  Raises:
    ValueError: there are more or fewer folders than phases.
  """
  if phases == 1:
    if "," in value and not os.path.exists(value):
      raise ValueError(
        f"--{flag} {value!r} is not there; several folders are for several "
        "phases, which --phase_steps names."
      )
    return [value]
  parts = value.split(",")
  if len(parts) != phases or not all(parts):
    raise ValueError(
      f"--{flag} names {len(parts)} folders ({value!r}), but the run has "
      f"{phases} phases: give one for each, with commas between them."
    )
  return parts


def numbers(flag: str, value: str) -> list[int]:
  """For example "112500,12500" as integers.

  Raises:
    ValueError: a part is none.
  """
  try:
    return [int(part) for part in value.split(",")]
  except ValueError:
    raise ValueError(
      f"--{flag} has to be whole numbers with commas between them, but is "
      f"{value!r}."
    ) from None


def make_phases(
  phase_steps: str, batch_sizes: str, accumulation_steps: str
) -> tuple[Phase, ...]:
  """The phases that the flags of these names ask for; () if it is one.

  Raises:
    ValueError: a number is none, or the flags have different numbers of them.
  """
  steps = numbers("phase_steps", phase_steps) if phase_steps else [1]
  values: dict[str, list[Optional[int]]] = {}
  for flag, value in (
    ("train_batch_size", batch_sizes),
    ("gradient_accumulation_steps", accumulation_steps),
  ):
    parts = numbers(flag, value)
    if len(parts) not in (1, len(steps)):
      raise ValueError(
        f"--{flag} has {len(parts)} values, but there "
        f"{'is 1 phase' if len(steps) == 1 else f'are {len(steps)} phases'}: "
        "give one for all, or one for each of --phase_steps."
      )
    values[flag] = parts if len(parts) > 1 else [None] * len(steps)
  if not phase_steps:
    return ()
  return tuple(map(Phase, steps, *values.values()))


def total_steps(
  phases: tuple[Phase, ...], num_train_steps: int, given: bool
) -> int:
  """The updates in all.

  Args:
    phases: see `make_phases`.
    num_train_steps: the flag.
    given: whether the user gave it; its default contradicts nobody.

  Raises:
    ValueError: the phases have another number together.
  """
  total = sum(phase.steps for phase in phases) or num_train_steps
  if given and total != num_train_steps:
    raise ValueError(
      f"--phase_steps are {total:,} steps together, but --num_train_steps is "
      f"{num_train_steps:,}: leave --num_train_steps out."
    )
  return total
