"""Parses depths and depth schedules such as `3:0.5,6:0.25,12:0.25`.

A model whose layers share all weights can apply them any number of times, and
training at depth 3 is a start for depth 6: arXiv 1909.11942, table 11, trains
deeper models this way. The time of a step is proportional to its depth.
"""

from __future__ import annotations

import fractions
from typing import NamedTuple

# Tolerance for the sum of shares such as 0.333.
_TOLERANCE = fractions.Fraction(1, 200)
_EXAMPLE = "3:0.5,6:0.25,12:0.25"


class Stretch(NamedTuple):
  """Consecutive steps at one depth.

  Attributes:
    num_layers: how many times the shared layers are applied.
    steps: number of updates.
  """

  num_layers: int
  steps: int


def parse_depth_schedule(
  schedule: str, num_train_steps: int
) -> tuple[Stretch, ...]:
  """Splits a run at the borders of a depth schedule.

  Args:
    schedule: DEPTH:SHARE, separated by commas; a share of all steps is a
      decimal number or a fraction such as 1/3.
    num_train_steps: the steps of the run.

  Returns:
    The parts. Borders are rounded to steps (half to even).

  Raises:
    ValueError: the schedule cannot be parsed, its shares do not add up to 1, or
      one is less than a step.
  """
  depths, shares = [], []
  for part in schedule.split(","):
    depth, share = _parse_part(schedule, part)
    depths.append(depth)
    shares.append(share)
  if abs(sum(shares) - 1) > _TOLERANCE:
    raise ValueError(
      f"the shares of the depth schedule {schedule!r} add up to "
      f"{float(sum(shares)):g}, but have to add up to 1."
    )
  stretches, begin, covered = [], 0, fractions.Fraction(0)
  for index, (depth, share) in enumerate(zip(depths, shares)):
    covered += share
    is_last = index == len(depths) - 1
    end = num_train_steps if is_last else round(covered * num_train_steps)
    if end <= begin:
      raise ValueError(
        f"the depth schedule {schedule!r} gives depth {depth} less than one of "
        f"{num_train_steps:,} steps: give it a larger share, or leave it out."
      )
    stretches.append(Stretch(depth, end - begin))
    begin = end
  return tuple(stretches)


def _parse_part(schedule: str, part: str) -> tuple[int, fractions.Fraction]:
  try:
    depth_text, share_text = part.split(":")
    depth, share = int(depth_text), fractions.Fraction(share_text)
  except (ValueError, ZeroDivisionError):
    raise ValueError(
      f"the depth schedule {schedule!r} has to be DEPTH:SHARE, separated by "
      f"commas, such as {_EXAMPLE}, but has the part {part!r}."
    ) from None
  if depth < 1 or share <= 0:
    raise ValueError(
      f"the depth schedule {schedule!r} has the part {part!r}: a depth is at "
      "least 1, and a share more than 0."
    )
  return depth, share


def parse_depths(depths: str) -> tuple[int, ...]:
  """Parses depths to draw from, such as "3,6,12".

  A depth that is listed twice is drawn twice as often.

  Raises:
    ValueError: one is not a positive integer.
  """
  try:
    numbers = tuple(int(part) for part in depths.split(","))
  except ValueError:
    numbers = (0,)
  if min(numbers) < 1:
    raise ValueError(
      f"random depths have to be whole numbers from 1 on, separated by commas, "
      f"such as 3,6,12, but are {depths!r}."
    )
  return numbers
