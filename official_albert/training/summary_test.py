"""Tests of the summary with logs written by hand, and of a killed run."""

from __future__ import annotations

import json
import math

import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import reporting


def at(kind, step, seconds, **values):
  return {"kind": kind, "step": step, "unix_time_seconds": seconds, **values}


def trained(step, seconds, speed, loss=1.0):
  speeds = {
    "sequences_per_second": speed / 8,
    "tokens_per_second": speed,
    "model_flops_per_second": speed * 5,
  }
  return at("train", step, seconds, loss=loss, **speeds)


# Killed after step 30, whose checkpoint was that of step 20; then preempted at
# step 40, and at its end at step 50.
RECORDS = [
  at("eval", 0, 99, loss=9.0),
  at("start", 0, 100),
  trained(10, 110, 5),  # Compiles.
  trained(20, 120, 70),
  at("eval", 20, 123, loss=3.0),
  trained(30, 131, 90),
  at("eval", 20, 1000, loss=3.5),
  at("start", 20, 1001),
  trained(30, 1011, 7),
  at("rollback", 35, 1016, to_step=31),
  trained(40, 1021, 80, loss=4.0),
  at("eval", 40, 1023, loss=2.0),
  at("eval", 40, 5000, loss=2.0),
  at("start", 40, 5001),
  trained(50, 5008, 6, loss=2.5),
  at("eval", 50, 5010, loss=math.nan),
]


def test_summary_of_a_run_with_accidents():
  assert reporting.summarize_run(RECORDS) == {
    "best_metric": "loss",
    "best_step": 40,
    "best_value": 2.0,
    "last_step": 50,
    "last_loss": 2.5,
    # Of 70, 90 and 80.
    "sequences_per_second": 10.0,
    "tokens_per_second": 80,
    "model_flops_per_second": 400,
    "restarts": 2,
    "rollbacks": 1,
    # 31 + 20 + 7; the hours between count for nothing.
    "training_seconds": 58,
    "steps_lost_to_restarts": 10,
    "steps_lost_to_rollbacks": 4,
  }


def test_one_loop_gives_the_only_speed_there_is():
  summary = reporting.summarize_run(RECORDS[:3])
  assert summary["tokens_per_second"] == 5
  assert summary["training_seconds"] == 10
  assert (summary["restarts"], summary["steps_lost_to_restarts"]) == (0, 0)


def test_the_newest_of_a_steps_evaluations_counts():
  assert reporting.summarize_run(RECORDS[:8])["best_value"] == 3.5


def test_the_last_phases_evaluations_count():
  records = [
    at("start", 0, 0),
    trained(1, 1, 1),
    at("eval", 1, 2, loss=0.5, phase=1),
    at("eval", 1, 3, loss=7.0, phase=2),
    at("eval", 2, 4, loss=6.0, phase=2),
  ]
  summary = reporting.summarize_run(records)
  assert (summary["best_step"], summary["best_value"]) == (2, 6.0)


def test_the_best_by_another_number():
  records = [
    at("start", 0, 0),
    trained(1, 1, 1),
    at("eval", 1, 2, loss=0.5, accuracy=0.7),
    at("eval", 2, 3, loss=0.9, accuracy=0.8),
    at("eval", 3, 4, loss=0.4),
  ]
  summary = reporting.summarize_run(records, "accuracy", "highest")
  assert (summary["best_step"], summary["best_value"]) == (2, 0.8)
  summary = reporting.summarize_run(records, "accuracy")
  assert (summary["best_step"], summary["best_value"]) == (1, 0.7)


def test_no_finite_evaluation_and_a_clock_set_back():
  records = [
    at("start", 0, 100),
    trained(10, 40, 5),
    at("eval", 10, 41, loss=math.inf),
  ]
  summary = reporting.summarize_run(records)
  assert summary["best_step"] == -1 and math.isnan(summary["best_value"])
  assert summary["training_seconds"] == 0


def test_nothing_trained_is_refused():
  with pytest.raises(ValueError, match="no training was logged"):
    reporting.summarize_run(RECORDS[:2])


def test_report_of_a_run_that_was_cut(tmp_path):
  cfg = toy_task.config(tmp_path, steps_per_loop=1)
  task = toy_task.ToyTask()
  of = task.train_dataset
  task.train_dataset = lambda *args: of(*args).take(5)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(task, cfg)
  _, _, log = toy_task.run(toy_task.ToyTask(), cfg)
  report = json.loads((tmp_path / reporting.REPORT_FILE).read_text())
  # Steps 4 and 5 were done twice: the checkpoint was that of step 3.
  assert report["steps_lost_to_restarts"] == 2
  assert (report["restarts"], report["last_step"]) == (1, 6)
  assert report["training_seconds"] > 0 and report["best_step"] in (0, 3, 6)
  assert report["tokens_per_second"] == pytest.approx(
    3 * report["sequences_per_second"]
  )
  last = log.splitlines()[-2:]
  assert last[0].startswith("best held-out loss ")
  assert last[0].endswith(" of training in all")
  assert last[1].startswith(
    "1 restarts (2 steps repeated), 0 rollbacks; more in"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
