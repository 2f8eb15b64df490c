"""Tests of the drawn schedule: its numbers, and that it is drawn once."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import DECAYS, optimization, schedule_curve


def make(rate=0.00176, steps=125000, warmup=3125, **settings):
  return optimization.WarmupPolynomialDecay(rate, steps, warmup, **settings)


def read(folder):
  """Step to rate, of all event files together."""
  curve = []
  for path in sorted(folder.glob("schedule/events*")):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        assert value.tag == "learning_rate"
        curve.append((event.step, float(tf.make_ndarray(value.tensor))))
  assert len({step for step, _ in curve}) == len(curve)
  return dict(curve)


def files(folder):
  return {p.name: p.stat().st_mtime_ns for p in (folder / "schedule").iterdir()}


@pytest.mark.parametrize("decay", DECAYS)
def test_curve_is_the_schedule(tmp_path, decay):
  begun = time.process_time()
  assert schedule_curve.write(str(tmp_path), make(decay=decay))
  # Milliseconds; a second leaves room for a machine that is busy.
  assert time.process_time() - begun < 1
  curve = read(tmp_path)
  assert 150 < len(curve) <= schedule_curve.MAX_POINTS
  assert curve[0] == 0 and curve[125000] == 0
  np.testing.assert_allclose(curve[3124], 0.00176 * 3124 / 3125, rtol=1e-6)
  # The drop at the end of the warm-up is the original's, and is drawn.
  peak = 0.00176 * (0.975 if decay == "original" else 1)
  np.testing.assert_allclose(curve[3125], peak, rtol=1e-6)


@pytest.mark.parametrize("steps, warmup", [(1, 0), (1, 1), (7, 3), (201, 201)])
def test_short_runs_have_every_step_once(tmp_path, steps, warmup):
  schedule_curve.write(str(tmp_path), make(steps=steps, warmup=warmup))
  curve = read(tmp_path)
  assert len(curve) <= schedule_curve.MAX_POINTS
  assert (min(curve), max(curve)) == (0, steps)
  if steps < 100:
    assert list(curve) == list(range(steps + 1))


def test_written_once_per_setting_and_replaced_by_another(tmp_path):
  assert schedule_curve.write(str(tmp_path), make())
  before = files(tmp_path)
  assert not schedule_curve.write(str(tmp_path), make())
  assert files(tmp_path) == before
  assert schedule_curve.write(str(tmp_path), make(rate=0.001))
  assert max(read(tmp_path).values()) <= 0.001
  assert len(files(tmp_path)) == 2


def test_a_curve_that_a_kill_cut_short_is_written_again(tmp_path):
  (tmp_path / "schedule").mkdir()
  (tmp_path / "schedule" / "events.out.tfevents.1.host").write_bytes(b"\x00")
  assert schedule_curve.write(str(tmp_path), make())
  assert len(read(tmp_path)) > 150


def test_a_run_draws_it_and_a_resume_does_not(tmp_path):
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  before = files(tmp_path)
  curve = read(tmp_path)
  assert list(curve) == list(range(7))
  np.testing.assert_allclose(curve[2], 0.01 * (1 - 2 / 6), rtol=1e-6)
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  assert files(tmp_path) == before
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, num_train_steps=8))
  assert list(read(tmp_path)) == list(range(9))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
