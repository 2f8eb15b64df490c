"""What `3:0.5,6:0.25,12:0.25` means: how deep a model is in which steps.

A model whose layers share everything can apply them any number of times, and
what it learns at depth 3 is a start for depth 6: arXiv 1909.11942, table 11,
trains its deeper models so. A shallow step costs less, in proportion.
"""

from __future__ import annotations

import fractions
from typing import NamedTuple

# How far shares such as 0.333 may be from 1 together.
_TOLERANCE = fractions.Fraction(1, 200)
_EXAMPLE = "3:0.5,6:0.25,12:0.25"


class Stretch(NamedTuple):
  """Steps that follow each other at one depth.

  Attributes:
    num_layers: how many times the shared layers are applied.
    steps: updates.
  """

  num_layers: int
  steps: int


def parse_depth_schedule(
  schedule: str, num_train_steps: int
) -> tuple[Stretch, ...]:
  """Cuts a run into stretches.

  Args:
    schedule: DEPTH:SHARE with commas between them; a share is a decimal number
      or a fraction such as 1/3, of all steps.
    num_train_steps: the steps in all.

  Returns:
    The stretches. A border is at the nearest step (of two, the even one).

  Raises:
    ValueError: it is no schedule, the shares are not 1 together, or one of
      them is less than a step.
  """
  depths, shares = [], []
  for part in schedule.split(","):
    depth, share = _parse_part(schedule, part)
    depths.append(depth)
    shares.append(share)
  if abs(sum(shares) - 1) > _TOLERANCE:
    raise ValueError(
      f"the shares of the depth schedule {schedule!r} are "
      f"{float(sum(shares)):g} together: they have to be 1."
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
      f"the depth schedule {schedule!r} has to be DEPTH:SHARE with commas "
      f"between them, such as {_EXAMPLE}, but has the part {part!r}."
    ) from None
  if depth < 1 or share <= 0:
    raise ValueError(
      f"the depth schedule {schedule!r} has the part {part!r}: a depth is at "
      "least 1, and a share more than 0."
    )
  return depth, share


def parse_depths(depths: str) -> tuple[int, ...]:
  """Depths to draw from, such as "3,6,12".

  A depth that stands there twice is drawn twice as often.

  Raises:
    ValueError: they are no whole numbers from 1 on.
  """
  try:
    numbers = tuple(int(part) for part in depths.split(","))
  except ValueError:
    numbers = (0,)
  if min(numbers) < 1:
    raise ValueError(
      f"random depths have to be whole numbers from 1 on with commas between "
      f"them, such as 3,6,12, but are {depths!r}."
    )
  return numbers
