"""Tests of the plan: its numbers are the run's."""

from __future__ import annotations

import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import run_plan
from official_albert.training.train_config import Phase


def describe(**changes):
  return run_plan.describe(
    [toy_task.ToyTask()] * max(1, len(changes.get("phases", ()))),
    toy_task.config("unused", **changes),
    1234567,
    tf.distribute.OneDeviceStrategy("/cpu:0"),
  )


def test_a_plan_says_the_work_in_all():
  assert describe() == [
    "toy: 1,234,567 parameters, float32, 1 x CPU",
    # 6 * 12 sequences of 3 tokens and 60 operations.
    "6 steps of 12 sequences: 216 tokens, 4.32e+03 operations",
    "lamb, learning rate 0 to 0.01 in 2 steps, then to 0 (original)",
  ]


def test_micro_batches_change_what_is_done_at_a_time_only():
  lines = describe(
    gradient_accumulation_steps=3,
    train_batch_size=1200,
    num_train_steps=5000,
    optimizer="adamw",
    learning_rate_decay="continuous",
  )
  assert lines[1] == (
    "5,000 steps of 1,200 sequences, 400 at a time on a device: 1.8e+07 "
    "tokens, 3.6e+08 operations"
  )
  assert lines[2].startswith("adamw, ") and lines[2].endswith("(continuous)")


def test_phases_add_up():
  lines = describe(
    phases=(Phase(4), Phase(2, train_batch_size=6)), num_train_steps=6
  )
  # 4 * 12 + 2 * 6 sequences of 3 tokens and 60 operations.
  assert lines[1] == (
    "4 steps of 12 sequences, then 2 steps of 6 sequences: 180 tokens, "
    "3.6e+03 operations"
  )


def test_a_run_prints_its_plan(tmp_path):
  task, config = toy_task.ToyTask(), toy_task.config(tmp_path)
  _, weights, log = toy_task.run(task, config)
  count = sum(w.size for w in weights)
  assert log.startswith(f"toy: {count} parameters, float32, 1 x ")
  assert log.splitlines()[1] == describe()[1]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
