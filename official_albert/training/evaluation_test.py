"""Evaluations by the training process or by a separate process.

The process is tested with a trainer that works while it sleeps; two real
processes are in tools/run_pretraining_test.py.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, run_logs, runs
from official_albert.testing import toy_job, toy_task
from official_albert.train_config import Phase
from official_albert.training import (
  continuous_evaluation,
  evaluation,
  objective,
  reporting,
)

_CONFIG = dict(num_train_steps=2, num_warmup_steps=0, eval_batch_size=8)


def evaluation_of(task, model=None):
  return evaluation.make_evaluation(
    task, model or task.build_model(), distribution.make_strategy("one_device")
  )


def test_every_example_counts_once(tmp_path):
  task = toy_task.ToyTask()
  cfg = toy_task.config(tmp_path, num_train_steps=1, num_warmup_steps=0)
  values, weights, _ = toy_task.run(task, cfg)
  h = np.tanh(task.x @ weights[0] + weights[1])
  errors = task.w * (h @ weights[2] + weights[3] - task.y) ** 2
  first, second = errors.sum(0) / task.w.sum(0)
  expected = {
    "loss": first + second,
    "first_loss": first,
    "second_loss": second,
    "share": (task.x[:, 0] > 0).mean(),
  }
  assert values == pytest.approx(expected, rel=1e-5)


def test_means_of_no_examples_are_not_zero(tmp_path):
  """A loss of 0.0 would be the best of all."""

  class Task(toy_task.ToyTask):
    def eval_dataset(self, batch_size):
      data = super().eval_dataset(batch_size)
      return data.map(lambda row: {**row, "w": row["w"] * [1.0, 0.0]})

    def forward(self, model, batch, training_, dropout_seed):
      totals, _ = super().forward(model, batch, training_, dropout_seed)
      zero = tf.zeros([])
      return totals, {"share": objective.Ratio(zero, zero)}

  task = Task()
  values = evaluation_of(task)(task.eval_dataset(10))
  assert values["first_loss"] > 0
  assert values["second_loss"] is values["loss"] is values["share"] is None
  cfg = toy_task.config(tmp_path, eval_steps=2)
  _, _, log = toy_task.run(Task(), cfg)
  assert "second undefined (0 examples)" in log
  assert runs.read_best(str(tmp_path)) is None
  report = json.loads((tmp_path / "report.json").read_text())
  assert report["best_step"] is None
  cfg = toy_task.config(tmp_path / "b", eval_steps=2, best_metric="first_loss")
  toy_task.run(Task(), cfg)
  best = runs.read_best(str(tmp_path / "b"))
  assert set(best["values"]) == {"first_loss"}


def test_an_empty_evaluation_is_an_error(tmp_path):
  task = toy_task.ToyTask()
  empty = task.eval_dataset(10).take(0)
  task.eval_dataset = lambda size: empty
  with pytest.raises(ValueError, match="no held-out example"):
    toy_task.run(task, toy_task.config(tmp_path))


@pytest.mark.parametrize(
  "name", ["mirrored", pytest.param("multi_worker", marks=pytest.mark.heavy)]
)
def test_several_devices_equal_one(tmp_path, name):
  """Losses and predictions are of the whole batch and the whole data.

  A median of one replica's rows, or of rows in another order, differs.
  """
  task = toy_task.PredictingToyTask()
  cfg = toy_task.config(tmp_path / "one", **_CONFIG)
  _, weights, _ = toy_task.run(task, cfg)
  hidden = np.tanh(task.x @ weights[0] + weights[1])
  errors = np.abs(hidden @ weights[2] + weights[3] - task.y)
  toy_job.run(
    2 if name == "multi_worker" else 1,
    tmp_path / "many",
    _CONFIG,
    predicts=True,
    distribution=name,
    num_devices=2,
  )
  folders = [str(tmp_path / run) for run in ("one", "many")]
  one, many = (run_logs.read_metrics(f, "train")[-1] for f in folders)
  for value in ("first_loss", "second_loss", "share"):
    assert one[value] == pytest.approx(many[value], rel=1e-5)
  one, many = (run_logs.read_metrics(f, "eval") for f in folders)
  assert [r["step"] for r in many] == [r["step"] for r in one] == [0, 2]
  assert math.isclose(one[1]["median_error"], np.median(errors), rel_tol=1e-5)
  for a, b in zip(one, many):
    for value in ("median_error", "loss", "share"):
      assert a[value] == pytest.approx(b[value], rel=1e-5)
  assert one[0]["median_error"] != pytest.approx(one[1]["median_error"], 1e-3)


@pytest.mark.parametrize(
  "ids, message",
  [
    ([[0, 1], [2, 1]], "example_id 2 was not predicted, or the one before"),
    ([[3, 0], [1]], "example_id 2 was not predicted"),
    ([[1, 2]], "example_id 0 was not predicted"),
    ([[]], "there is no example to predict"),
  ],
)
def test_missing_or_repeated_predictions_are_refused(ids, message):
  with pytest.raises(ValueError, match=message):
    evaluation.collect([{"example_id": np.array(i)} for i in ids])


# The evaluating process.

PHASES = (Phase(4), Phase(3, 10, 5))


def record(folder, **changes):
  """Writes what a training program writes before it trains."""
  values = dict(
    num_train_steps=7,
    phases=PHASES,
    save_checkpoints_steps=2,
    keep_checkpoint_max=9,
  )
  cfg = toy_task.config(folder, **{**values, **changes})
  tiny = AlbertConfig.from_preset("albert_tiny")
  runs.write_run(str(folder), tiny, dataclasses.asdict(cfg), {})
  return cfg


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A run that was evaluated by its trainer, with checkpoints 2, 4, 6, 7."""
  folder = tmp_path_factory.mktemp("trained")
  tasks = [toy_task.ToyTask(seed=seed) for seed in (0, 1)]
  toy_task.run(tasks, record(folder, eval_steps=2))
  return folder


@pytest.fixture
def trainer(trained, tmp_path, monkeypatch):
  """A run whose trainer does the next of `.todo` whenever the other sleeps."""

  class Trainer:
    folder, todo, seconds = tmp_path, [], 0.0

    def save(self, *steps):
      for step in steps:
        for path in trained.glob(f"model.ckpt-{step}.*"):
          shutil.copy(path, tmp_path)

    def saves(self, *steps):
      self.todo = [lambda step=step: self.save(step) for step in steps]

    def sleep(self, seconds):
      self.seconds += seconds
      if self.todo:
        self.todo.pop(0)()

  trainer = Trainer()
  record(tmp_path, eval_steps=0)
  clock = continuous_evaluation.time
  monkeypatch.setattr(clock, "sleep", trainer.sleep)
  monkeypatch.setattr(clock, "monotonic", lambda: trainer.seconds)
  return trainer


def make_evaluator(phases=2):
  return continuous_evaluation.Evaluator(
    [toy_task.ToyTask(seed=seed) for seed in range(phases)],
    distribution.make_strategy("one_device"),
    10,
  )


def follow(folder, timeout=40.0, evaluator=None):
  """Evaluates continuously; returns the log and the loss by step and phase."""
  stream = io.StringIO()
  own = folder / continuous_evaluation.EVALUATION_FOLDER
  with reporting.Reporter(str(own), stream) as report:
    try:
      continuous_evaluation.evaluate_continuously(
        evaluator or make_evaluator(), str(folder), report, timeout
      )
    except SystemExit as ended:
      stream.write(f"exit code {ended.code}\n")
  return stream.getvalue(), losses(own)


def losses(folder):
  return {
    (r["step"], r.get("phase", 1)): r["loss"]
    for r in run_logs.read_metrics(str(folder), "eval")
    if r["step"]
  }


def test_it_measures_what_the_trainer_would(trainer, trained):
  trainer.saves(2, 4, 6, 7)
  log, measured = follow(trainer.folder)
  assert measured == losses(trained) and len(measured) == 5
  assert log.endswith("step 7 was the run's last.\n")
  names = os.listdir(trainer.folder / "evaluator")
  assert sorted(names) == ["eval", "metrics.jsonl"]
  assert not (trainer.folder / "metrics.jsonl").exists()
  assert runs.read_best(str(trainer.folder)) == runs.read_best(str(trained))
  assert runs.read_best(str(trained))["phase"] == 2
  # Started again, it has nothing to do.
  log, again = follow(trainer.folder)
  assert log == "step 7 was the run's last.\n" and again == measured


def test_it_ends_when_the_run_stops_early(tmp_path):
  """The run may log its last evaluation after its last checkpoint."""
  cfg = record(
    tmp_path,
    num_train_steps=9,
    phases=(),
    eval_steps=2,
    save_checkpoints_steps=2,
    learning_rate=9.0,
    early_stopping_evaluations=2,
  )
  toy_task.run(toy_task.ToyTask(), cfg)
  last = runs.newest_step(str(tmp_path))
  assert last < 9
  evaluator = make_evaluator(1)
  log, _ = follow(tmp_path, evaluator=evaluator, timeout=0.0)
  assert log.endswith(f"step {last} was the run's last.\n")
  path = tmp_path / "metrics.jsonl"
  lines = path.read_text().splitlines(keepends=True)
  path.write_text(
    "".join(x for x in lines if f'"eval", "step": {last}' not in x)
  )
  log, _ = follow(tmp_path, evaluator=evaluator, timeout=0.0)
  assert log == "exit code 124\n"
  path.unlink()
  log, _ = follow(tmp_path, evaluator=evaluator, timeout=0.0)
  assert log.endswith(f"step {last} was the run's last.\n")


def test_a_depth_schedule_is_evaluated_at_full_depth(trainer):
  """There is one held-out set, and any checkpoint may be the best."""
  phases = (Phase(4, num_layers=2), Phase(3, num_layers=5, same_data=True))
  record(trainer.folder, eval_steps=0, phases=phases)
  recorded = continuous_evaluation.read_train_config(str(trainer.folder))
  assert recorded.phases == () and recorded.num_train_steps == 7
  trainer.saves(2, 4, 7)
  _, measured = follow(trainer.folder, evaluator=make_evaluator(1))
  assert list(measured) == [(2, 1), (4, 1), (7, 1)]
  best = runs.read_best(str(trainer.folder))
  assert best["values"]["loss"] == min(measured.values())


def test_a_trainer_that_evaluates_keeps_the_best_itself(trainer):
  record(trainer.folder, eval_steps=3)
  trainer.saves(7)
  follow(trainer.folder)
  assert runs.read_best(str(trainer.folder)) is None


def test_it_ends_when_no_checkpoint_comes(trainer, capsys):
  trainer.todo = [lambda: None, lambda: trainer.save(2)]
  log, measured = follow(trainer.folder, timeout=100.0)
  assert set(measured) == {(2, 1)}
  out = capsys.readouterr().out
  assert "no new checkpoint" in out and "for 1m40s: ended by --timeout" in out
  assert log.endswith(f"exit code {continuous_evaluation.TIMEOUT_EXIT_CODE}\n")
  # The time starts anew with each checkpoint: two sleeps before it.
  assert trainer.seconds == 100 + 2 * 5
  # A later start continues from there.
  trainer.saves(7)
  _, measured = follow(trainer.folder)
  assert set(measured) == {(2, 1), (7, 2)}


@pytest.mark.parametrize(
  # The weights are at the beginning of the data; the rest is not read.
  "part, share",
  [("index", 0.5), ("data-00000-of-00001", 0.02)],
)
def test_a_half_written_checkpoint_is_tried_again(
  trainer, trained, part, share
):
  def begin():
    trainer.save(6)
    path = trainer.folder / f"model.ckpt-6.{part}"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])

  # Completed in place, as by a copy over a network.
  trainer.todo = [begin, lambda: None, lambda: trainer.save(6, 7)]
  log, measured = follow(trainer.folder)
  assert log.count("model.ckpt-6 cannot be read") == 1
  assert measured[6, 2] == losses(trained)[6, 2]
  assert (7, 2) in measured


def test_a_step_that_is_saved_again_is_evaluated_again(trainer, trained):
  """After a rollback it has other weights."""

  def replace():
    for path in trained.glob("model.ckpt-4.*"):
      copy = trainer.folder / path.name.replace("-4.", "-2.")
      shutil.copy(path, copy)
      os.utime(copy, (1e9, 1e9))  # TensorFlow knows whole seconds.

  trainer.todo = [lambda: trainer.save(2), replace, lambda: trainer.save(7)]
  _, measured = follow(trainer.folder)
  assert measured[2, 1] == losses(trained)[4, 1]
