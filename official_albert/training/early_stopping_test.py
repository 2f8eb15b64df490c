"""Runs that end when held-out data says so, killed or not."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from official_albert.testing import toy_task
from official_albert.training import (
  checkpoint_manager,
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


def run(folder, **changes):
  values = dict(
    num_train_steps=20,
    eval_steps=2,
    steps_per_loop=3,
    save_checkpoints_steps=5,
    best_metric="accuracy",
    best_is="highest",
    early_stopping_evaluations=3,
  )
  cfg = toy_task.config(folder, **{**values, **changes})
  return toy_task.run(toy_task.ToyTask(), cfg)


def steps(folder, kind="train"):
  return toy_task.logged(folder, "step", kind)


def best(folder):
  return checkpoint_manager.read_best(str(folder))


@pytest.fixture
def whole(tmp_path):
  return (tmp_path / "whole", *run(tmp_path / "whole"))


def test_a_run_without_improvement_stops(whole):
  folder, values, weights, log = whole
  assert steps(folder)[-1] == 12 and steps(folder, "eval")[-1] == 12
  assert values == {"loss": 1.0, "accuracy": 0.6}
  line = "no better accuracy than 0.7 of step 6 in 3 evaluations: stopped\n"
  assert log.count(line) == 1
  # It ends as any run: with a checkpoint and a report.
  assert (folder / "model.ckpt-12.index").exists()
  assert reporting.summarize(str(folder))["last_step"] == 12
  assert (best(folder)["step"], best(folder)["best_is"]) == (6, "highest")
  # Started again, it has nothing to do.
  before = steps(folder)
  again, same, log = run(folder)
  assert steps(folder) == before and again == values
  assert log.count(line) == 1
  np.testing.assert_equal(same, weights)
  # With more patience it continues, to the better one.
  run(folder, early_stopping_evaluations=4)
  assert steps(folder)[-1] == 20 and best(folder)["step"] == 14


@pytest.mark.parametrize("patience, last", [(1, 4), (2, 10), (0, 20)])
def test_patience(tmp_path, patience, last):
  run(tmp_path, early_stopping_evaluations=patience)
  assert steps(tmp_path)[-1] == last


def test_ties_do_not_improve_the_lowest(tmp_path):
  _, _, log = run(tmp_path, best_metric="loss", best_is="lowest")
  assert "no better loss than 1 of step 2 in 3 evaluations: stopped" in log
  assert steps(tmp_path)[-1] == 8


@pytest.mark.parametrize("killed_at", [2, 6, 8, 12])
def test_a_killed_run_stops_where_the_whole_one_did(
  tmp_path, whole, scripted, killed_at
):
  folder = tmp_path / "killed"
  scripted.append(killed_at)
  with pytest.raises(_Killed):
    run(folder)
  _, weights, log = run(folder)
  assert steps(folder)[-1] == 12
  assert log.count("3 evaluations: stopped") == 1
  np.testing.assert_equal(weights, whole[2])
  assert best(folder) == best(whole[0])


def test_a_best_checkpoint_ahead_of_the_run_does_not_stop_it(tmp_path, whole):
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
  np.testing.assert_equal(weights, whole[2])


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
