"""Random texts of given letters, for tests of tokenizers."""

from __future__ import annotations

import random
from typing import Callable, Sequence


def make(
  letters: Sequence[str],
  count: int,
  seed: int,
  further: Callable[[random.Random], str],
) -> list[str]:
  """Returns `count` texts of up to 24 letters.

  Args:
    letters: those that are drawn.
    count: number of texts.
    seed: of all that is drawn.
    further: draws another letter for a text, or "" for none.
  """
  rng = random.Random(seed)
  texts = []
  for _ in range(count):
    drawn = [*rng.choices(letters, k=rng.randrange(25)), further(rng)]
    drawn = [letter for letter in drawn if letter]
    rng.shuffle(drawn)
    texts.append("".join(drawn))
  return texts
