"""The search with compilers made up of a formula."""

from __future__ import annotations

import pytest

from tools.tpu_compile import batch_search as tpu_batch_search

_GIB = 2**30


def compiler(fixed: float, per_example: float, available: float, bend=1.0):
  """Answers with fixed + per_example * batch GiB; `bend` as a power."""
  asked = []

  def attempt(batch):
    assert batch not in asked
    asked.append(batch)
    used = round((fixed + per_example * batch**bend) * _GIB)
    total = round(available * _GIB)
    return tpu_batch_search.Try(
      batch, used <= total, used, total, round(fixed * _GIB)
    )

  return attempt


def true_largest(attempt) -> int:
  sizes = [4096] + list(range(8, 4096, 8)) + [1, 2, 4]
  return max((b for b in sizes if attempt(b).fits), default=0)


@pytest.mark.parametrize("start", [3, 8, 32, 1000])
@pytest.mark.parametrize("available", [0.3, 0.53, 0.9, 1.55, 7.48, 95.7])
@pytest.mark.parametrize("bend", [1.0, 0.9, 1.2])
def test_finds_the_largest(start, available, bend):
  formula = 0.4, 0.11, available, bend
  tries = tpu_batch_search.largest(compiler(*formula), start)
  best = tpu_batch_search.best(tries)
  assert (best.batch if best else 0) == true_largest(compiler(*formula))
  # Bisection alone from 32 to 4096 and down to steps of 8 takes 13.
  assert len(tries) <= 14


def test_memory_on_a_line_takes_three_tries():
  tries = tpu_batch_search.largest(compiler(0.25, 0.19, 15.48), 32)
  assert [t.batch for t in tries] == [32, 80, 88]
  assert [t.fits for t in tries] == [True, True, False]


def test_below_eight_it_halves():
  tries = tpu_batch_search.largest(compiler(1.0, 3.0, 9.0), 32)
  assert [t.batch for t in tries] == [32, 8, 4, 2]
  assert tpu_batch_search.best(tries).batch == 2


def test_nothing_fits():
  tries = tpu_batch_search.largest(compiler(8.0, 1.0, 7.48), 16)
  assert [t.batch for t in tries] == [16, 8, 4, 2, 1]
  assert tpu_batch_search.best(tries) is None


def test_it_ends_at_the_limit():
  tries = tpu_batch_search.largest(compiler(0.0, 1e-6, 95.0), 32, limit=256)
  assert tries[-1].batch == 256 and tries[-1].fits


def test_a_compiler_that_saves_memory_near_the_limit():
  """The line says 48, and 120 fit still, as if by recomputation."""

  def attempt(batch):
    used = min(0.4 + 0.3 * batch, 15.0) if batch <= 120 else 30.0
    return tpu_batch_search.Try(
      batch, used < 15.48, int(used * _GIB), int(15.48 * _GIB)
    )

  tries = tpu_batch_search.largest(attempt, 32)
  assert tpu_batch_search.best(tries).batch == 120
  assert len(tries) <= 12


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
