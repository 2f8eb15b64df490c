"""Tests of runs that end when held-out data says so, killed or not."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from official_albert.testing import toy_task
from official_albert.training import (
  best_checkpoint,
  evaluation,
  reporting,
  train_config,
)

# What the evaluation of each step measures: the best at 6, a tie at 8.
SCRIPT = {0: 0.1, 2: 0.5, 4: 0.4, 6: 0.7, 8: 0.7, 10: 0.6, 12: 0.6, 14: 0.9}


class _Killed(BaseException):
  pass


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
  """Evaluations that measure a function of the step, and may kill the run."""
  made, kill_at = [], []
  make = train_config.TrainConfig.make_optimizer

  def make_optimizer(config):
    made.append(make(config))
    return made[-1]

  def make_evaluation(task, model, strategy):
    def evaluate(dataset, before_batch):
      step = int(made[-1].iterations)
      if kill_at and step == kill_at[0]:
        kill_at.pop()
        raise _Killed
      return {"loss": 1.0, "accuracy": SCRIPT.get(step, math.nan)}

    return evaluate

  monkeypatch.setattr(
    train_config.TrainConfig, "make_optimizer", make_optimizer
  )
  monkeypatch.setattr(evaluation, "make_evaluation", make_evaluation)
  return kill_at


def config(folder, **changes):
  values = dict(
    num_train_steps=20,
    eval_steps=2,
    steps_per_loop=3,
    save_checkpoints_steps=5,
    best_metric="accuracy",
    best_is="highest",
    early_stopping_evaluations=3,
  )
  return toy_task.config(folder, **{**values, **changes})


def run(folder, **changes):
  return toy_task.run(toy_task.ToyTask(), config(folder, **changes))


def steps(folder, kind="train"):
  return [r["step"] for r in reporting.read_metrics(str(folder), kind)]


@pytest.fixture
def whole(tmp_path):
  return (tmp_path / "whole", *run(tmp_path / "whole"))


def test_it_stops_after_so_many_without_a_better_one(whole):
  folder, values, _, log = whole
  assert steps(folder)[-1] == 12 and steps(folder, "eval")[-1] == 12
  assert values == {"loss": 1.0, "accuracy": 0.6}
  line = "no better accuracy than 0.7 of step 6 in 3 evaluations: stopped\n"
  assert log.count(line) == 1
  # The end is that of any run: a checkpoint, and the report.
  assert (folder / "model.ckpt-12.index").exists()
  assert "trained 12 steps in" in log
  assert reporting.summarize(str(folder))["last_step"] == 12
  record = best_checkpoint.read_best(str(folder))
  assert (record["step"], record["best_is"]) == (6, "highest")


@pytest.mark.parametrize("patience, last", [(1, 4), (2, 10), (4, 20), (0, 20)])
def test_how_many_are_allowed(tmp_path, patience, last):
  """Four reach the 0.9 of step 14, and the run's end comes before the next."""
  run(tmp_path, early_stopping_evaluations=patience)
  assert steps(tmp_path)[-1] == last


@pytest.mark.parametrize("killed_at", [2, 6, 8, 10, 12])
def test_a_killed_run_stops_where_the_whole_one_did(
  tmp_path, whole, scripted, killed_at
):
  """Before an evaluation, of which at least one checkpoint is older."""
  folder = tmp_path / "killed"
  scripted.append(killed_at)
  with pytest.raises(_Killed):
    run(folder)
  _, weights, log = run(folder)
  assert steps(folder)[-1] == 12
  assert log.count("3 evaluations: stopped") == 1
  for a, b in zip(whole[2], weights):
    np.testing.assert_array_equal(a, b)
  mine, others = (best_checkpoint.read_best(str(f)) for f in (folder, whole[0]))
  assert mine == others


def test_a_best_that_lies_ahead_counts_nothing(tmp_path, whole):
  """All checkpoints but the first are lost, the best one is not."""
  folder = tmp_path / "back"
  shutil.copytree(whole[0], folder)
  for step in (10, 12):
    for path in folder.glob(f"model.ckpt-{step}.*"):
      path.unlink()
  (folder / "checkpoint").unlink()
  _, weights, log = run(folder)
  assert "model.ckpt-5" in log and log.count("stopped\n") == 1
  assert steps(folder)[-1] == 12
  for a, b in zip(whole[2], weights):
    np.testing.assert_array_equal(a, b)


def test_started_again_it_knows_that_it_is_over(whole):
  folder, values, weights, _ = whole
  before = steps(folder)
  again, same, log = run(folder)
  assert steps(folder) == before and again == values
  assert log.count("than 0.7 of step 6 in 3 evaluations: stopped") == 1
  for a, b in zip(weights, same):
    np.testing.assert_array_equal(a, b)
  # More patience takes it on from there, to the better one.
  run(folder, early_stopping_evaluations=4)
  assert steps(folder)[-1] == 20
  assert best_checkpoint.read_best(str(folder))["step"] == 14


def test_the_lowest_of_a_number_and_its_first_of_equals(tmp_path):
  _, _, log = run(tmp_path, best_metric="loss", best_is="lowest")
  assert "no better loss than 1 of step 2 in 3 evaluations: stopped" in log
  assert steps(tmp_path)[-1] == 8


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
