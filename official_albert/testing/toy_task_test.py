from __future__ import annotations

import numpy as np
import pytest

from official_albert.testing import toy_task


def test_stream_starts_where_it_is_told_and_never_ends():
  task = toy_task.ToyTask()
  batches = iter(task.train_dataset(5, 35))
  rows = np.concatenate([next(batches)["x"] for _ in range(3)])
  np.testing.assert_array_equal(rows[:2], task.x[35:])
  np.testing.assert_array_equal(rows[2:], task.x[:13])


def test_rows_that_fill_up_the_last_batch_weigh_nothing():
  batches = list(toy_task.ToyTask().eval_dataset(10))
  assert [len(batch["x"]) for batch in batches] == [10] * 4
  assert np.all(batches[-1]["w"][7:] == 0)
  assert np.all(batches[-1]["w"][:7] > 0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
