"""Texts of letters in a wild order, for tests of tokenizers."""

from __future__ import annotations

import random
from typing import Callable, Sequence


def make(
  letters: Sequence[str],
  count: int,
  seed: int,
  further: Callable[[random.Random], str],
) -> list[str]:
  """Texts of up to 24 letters, and now and then one from outside.

  Args:
    letters: those that are drawn.
    count: of the texts.
    seed: of all that is drawn.
    further: draws another letter for a text, or "" for none.
  """
  rng = random.Random(seed)
  texts = []
  for _ in range(count):
    drawn = rng.choices(letters, k=rng.randrange(25))
    drawn += filter(None, [further(rng)])
    rng.shuffle(drawn)
    texts.append("".join(drawn))
  return texts
