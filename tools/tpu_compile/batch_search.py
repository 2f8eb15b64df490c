"""The largest batch that fits: few tries, since each takes a minute.

Memory grows about linearly with the batch, and a compiler that refuses a batch
says how much it would have needed. So each try is made where the line through
what is known meets the limit, and bisection takes over where that does not
lead on: near the limit the compiler computes things twice to save memory, so
that the line bends.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Sequence

# Larger batches are multiples of it; the TPU's lanes are filled by eights.
STEP = 8
_SMALL = (4, 2, 1)
LARGEST = 4096
# Tries by the line; then bisection.
_GUESSES = 4


class Try(NamedTuple):
  """What a compiler said of a batch.

  Attributes:
    batch: examples of one replica.
    fits: whether there is memory for it.
    used_bytes: what it needs, also if that is too much.
    available_bytes: what there is.
    fixed_bytes: of it what does not depend on the batch; 0 if unknown.
  """

  batch: int
  fits: bool
  used_bytes: int
  available_bytes: int
  fixed_bytes: int = 0


def largest(
  attempt: Callable[[int], Try], start: int = 32, limit: int = LARGEST
) -> list[Try]:
  """Tries batches until the largest that fits is known.

  Args:
    attempt: asks the compiler.
    start: the first batch; rounded to a multiple of `STEP`.
    limit: the largest batch to try, a multiple of `STEP`.

  Returns:
    All tries in order. The largest that fits is the largest one with `fits`:
    the next multiple of `STEP`, 8 for batches under 8, does not fit or is
    beyond the limit. If none fits, 1 does not.
  """
  tries: list[Try] = []

  def next_batch() -> Optional[int]:
    fitting = [t.batch for t in tries if t.fits]
    failing = [t.batch for t in tries if not t.fits]
    low, high = max(fitting, default=0), min(failing, default=limit + STEP)
    if high <= STEP:
      smaller = [b for b in _SMALL if low < b < high]
      return smaller[0] if smaller else None
    if low + STEP >= high:
      # Nothing under 8 is worth a try if 8 fits.
      return None if low else STEP
    guess = _guess(tries) if len(tries) <= _GUESSES else None
    if guess is None:
      guess = 2 * low if not failing else (low + high) // 2
    return min(max(_rounded(guess), low + STEP), high - STEP)

  batch: Optional[int] = min(max(_rounded(start), STEP), limit)
  while batch is not None:
    tries.append(attempt(batch))
    batch = next_batch()
  return tries


def best(tries: Sequence[Try]) -> Optional[Try]:
  """The largest that fits, or None."""
  fitting = [t for t in tries if t.fits]
  return max(fitting, key=lambda t: t.batch) if fitting else None


def _rounded(batch: float) -> int:
  return int(batch) // STEP * STEP


def _guess(tries: Sequence[Try]) -> Optional[int]:
  """Where the line through two tries meets the limit, rounded down."""
  last = tries[-1]
  available = last.available_bytes
  if len(tries) == 1:
    slope = (last.used_bytes - last.fixed_bytes) / last.batch
    at, used = last.batch, last.used_bytes
  else:
    near = sorted(tries, key=lambda t: abs(t.used_bytes - available))[:2]
    a, b = sorted(near)
    slope = (b.used_bytes - a.used_bytes) / (b.batch - a.batch)
    at, used = a.batch, a.used_bytes
  if slope <= 0:
    return None
  return int(at + (available - used) / slope)
