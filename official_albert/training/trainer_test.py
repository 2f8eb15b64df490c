"""Whole runs of a small task: resumed, stopped early, and in phases."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert import machine, run_logs, runs
from official_albert.testing import toy_task
from official_albert.train_config import Phase
from official_albert.training import evaluation, objective, optimization
from official_albert.training import trainer as trainer_lib


def by_step(folder, kind):
  return {
    (r["step"], r.get("phase")): r["loss"]
    for r in run_logs.read_metrics(str(folder), kind)
  }


def report_of(folder):
  return json.loads((folder / run_logs.REPORT_FILE).read_text())


def test_runs_of_several_seeds_share_a_trainer(tmp_path):
  """Each equals a run of its own to the bit, also when it is resumed.

  Each is scored by its own task: the threshold of SQuAD, for instance, is in no
  record of the data.
  """
  traced, trainer, losses = [], [], []

  class Task(toy_task.PredictingToyTask):
    factor = 1

    def forward(self, model, batch, training_, dropout_seed):
      traced.append(training_)
      return super().forward(model, batch, training_, dropout_seed)

    def score(self, predictions):
      values = super().score(predictions)
      return {name: self.factor * x for name, x in values.items()}

  def make(factor=1, dropout_rate=0.3, **kwargs):
    task = Task(dropout_rate=dropout_rate, **kwargs)
    task.factor = factor
    return task

  for seed in (5, 6):
    alone, shared = (
      toy_task.config(tmp_path / name / str(seed), seed=seed, eval_steps=2)
      for name in ("alone", "shared")
    )
    whole = toy_task.run(make(seed), alone)[:2]
    traced.clear()
    if seed == 5:
      with pytest.raises(tf.errors.OutOfRangeError):
        toy_task.run(make(stop_after=3), shared, trainer)
    values, weights, log = toy_task.run(make(seed), shared, trainer)
    assert traced == ([False, True] if seed == 5 else [])
    assert "tracing and compiling the training step ..." not in log
    np.testing.assert_equal((values, weights), whole)
    np.testing.assert_equal(
      toy_task.saved(shared.model_dir), toy_task.saved(alone.model_dir)
    )
    losses.append(values["loss"])
  # A resumed run logs other steps.
  assert toy_task.logged(shared.model_dir) == toy_task.logged(alone.model_dir)
  assert losses[0] != losses[1]
  # It would train on one task, and evaluate on the other.
  for task, changes in (
    (make(), {"weight_decay": 0.5}),
    (make(seed=1), {}),
    (make(dropout_rate=0.4), {}),
  ):
    other = toy_task.config(tmp_path / "other", eval_steps=2, **changes)
    with pytest.raises(ValueError, match="may differ in seed and model_dir on"):
      toy_task.run(task, other, trainer)


def test_the_optimizer_follows_the_flags_after_a_resume(tmp_path):
  for steps, decay in ((3, 0.01), (4, 0.5)):
    trainer = []
    cfg = toy_task.config(tmp_path, num_train_steps=steps, weight_decay=decay)
    toy_task.run(toy_task.ToyTask(), cfg, trainer)
  assert float(trainer[0].optimizer.weight_decay) == 0.5


def test_a_divergence_names_the_steps_and_keeps_the_last_checkpoint(tmp_path):
  # Example 36 is first drawn in the fourth batch of 12.
  task = toy_task.ToyTask(poison_at=36)
  with pytest.raises(objective.Divergence, match="between steps 3 and 4"):
    toy_task.run(task, toy_task.config(tmp_path, steps_per_loop=1))
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")
  report = report_of(tmp_path)
  assert report["last_step"] == 3
  # The weights of step 0 are not kept, and NaN is no JSON.
  assert report["best_metric"] == "loss"
  assert report["best_step"] is report["best_value"] is None


def test_the_report_names_the_best_weights_that_are_kept(tmp_path):
  """With this rate, the weights only become worse."""
  cfg = toy_task.config(tmp_path, eval_steps=4, learning_rate=9.0)
  toy_task.run(toy_task.ToyTask(), cfg)
  losses = toy_task.logged(tmp_path, "loss", "eval")
  assert min(losses) == losses[0]
  # A resumed run also evaluates at its start, but keeps no weights of then.
  cfg = dataclasses.replace(cfg, num_train_steps=8)
  shutil.rmtree(tmp_path / "best")
  _, _, log = toy_task.run(toy_task.ToyTask(), cfg)
  report, best = (report_of(tmp_path), runs.read_best(str(tmp_path)))
  assert best["step"] == report["best_step"] == 8
  assert best["values"]["loss"] == report["best_value"] > losses[0]
  assert f"best held-out loss {report['best_value']:.4g} at step 8" in log


class _Signalled(toy_task.ToyTask):
  """Sends this process a signal in one of its forward passes, from 1 on."""

  def __init__(self, number, in_training, at):
    super().__init__()
    self._number, self._in_training, self._at = number, in_training, at
    self._calls = 0

  def forward(self, model, batch, training_, dropout_seed):
    if training_ is self._in_training:
      tf.py_function(self._send, [], [])
    return super().forward(model, batch, training_, dropout_seed)

  def _send(self):
    self._calls += 1
    if self._calls == self._at:
      os.kill(os.getpid(), self._number)
      time.sleep(0.5)  # For the thread that waits for signals.


@pytest.fixture
def interruptible():
  """Background processes ignore Ctrl-C from their start."""
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, handler)


# Eight steps, with an evaluation of four batches before, after the fifth and
# at the end; saved after three, six and eight.
_STOPPED = dict(num_train_steps=8, eval_steps=5, steps_per_loop=6)


@pytest.fixture(scope="module")
def unsignalled(tmp_path_factory):
  folder = tmp_path_factory.mktemp("unsignalled")
  cfg = toy_task.config(folder, **_STOPPED)
  return (folder, *toy_task.run(toy_task.ToyTask(), cfg))


@pytest.mark.parametrize(
  "number, in_training, at, saved",
  [
    pytest.param(signal.SIGTERM, True, 2, 2, id="SIGTERM in a step"),
    pytest.param(signal.SIGINT, True, 8, 8, id="in the last step"),
    pytest.param(signal.SIGTERM, False, 6, 5, id="SIGTERM in an evaluation"),
    pytest.param(signal.SIGINT, False, 12, 8, id="in the last batch of all"),
  ],
)
def test_a_signal_saves_the_step_and_the_run_resumes(
  tmp_path, interruptible, unsignalled, number, in_training, at, saved
):
  cfg = toy_task.config(tmp_path, **_STOPPED)
  with pytest.raises(SystemExit) as ended:
    toy_task.run(_Signalled(number, in_training, at), cfg)
  assert ended.value.code == 128 + number
  newest = tf.train.latest_checkpoint(str(tmp_path))
  assert newest.endswith(f"-{saved}")
  task = toy_task.ToyTask()
  values, weights, log = toy_task.run(task, cfg)
  assert f"model.ckpt-{saved}" in log
  assert task.starts == [12 * saved]
  np.testing.assert_equal([values, weights], list(unsignalled[1:3]))
  expected, got = (by_step(f, "eval") for f in (unsignalled[0], tmp_path))
  assert [step for step, _ in expected] == [0, 5, 8]
  assert expected.items() <= got.items()
  assert {step for step, _ in got} <= {0, 2, 5, 8}


def test_tensorboard_can_capture_profiles(tmp_path):
  (address,) = toy_task.free_addresses(1)
  port = int(address.rpartition(":")[2])
  toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path, profiler_port=port)
  )
  assert machine.listens(address)


def test_batches_that_devices_cannot_share_are_refused():
  class Strategy:
    num_replicas_in_sync = 3

  trainer_lib.check_batch_size("batch", 12, Strategy(), 2)
  with pytest.raises(ValueError, match="batch 12 cannot be cut into 15 equal"):
    trainer_lib.check_batch_size("batch", 12, Strategy(), 5)


# Phases: other data and batches, one schedule.

PHASES = (Phase(4), Phase(3, 10, 5))


def tasks(stop_after=None):
  """Returns the tasks; the data of the second ends after so many updates."""
  made = [toy_task.ToyTask(dropout_rate=0.3, seed=seed) for seed in (0, 1)]
  made[1].tokens_per_example, made[1].flops_per_example = 7, 240
  made[1].stop_after = stop_after
  return made


def phased(folder, **changes):
  values = dict(
    num_train_steps=7, phases=PHASES, save_checkpoints_steps=2, eval_steps=3
  )
  return toy_task.config(folder, **{**values, **changes})


@pytest.fixture(scope="module")
def whole_phased(tmp_path_factory):
  """An uninterrupted run: its folder, last evaluation, weights and log."""
  folder = tmp_path_factory.mktemp("whole")
  return (folder, *toy_task.run(tasks(), phased(folder)))


def test_a_killed_run_of_phases_resumes_to_the_bit(tmp_path, whole_phased):
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(tasks(2), phased(tmp_path))
  resumed = tasks()
  values, weights, log = toy_task.run(resumed, phased(tmp_path))
  assert "resumed from" in log
  assert [task.starts for task in resumed] == [[], [20]]
  folder, whole_values, whole_weights, _ = whole_phased
  assert values == whole_values
  np.testing.assert_equal(weights, whole_weights)
  # A start evaluates at its step, too.
  for kind in ("train", "eval"):
    expected, got = (by_step(f, kind) for f in (folder, tmp_path))
    assert kind == "train" or expected.keys() <= got.keys()
    assert all(got[key] == x for key, x in expected.items() if key in got)
  best = [runs.read_best(str(f)) for f in (folder, tmp_path)]
  assert best[0] == best[1]
  # Finished, it is not trained again.
  _, after, log = toy_task.run(tasks(), phased(tmp_path))
  np.testing.assert_equal(after, whole_weights)
  assert "the run is finished: step 7 was its last" in log


def test_each_phase_has_its_data_batch_and_throughput(whole_phased):
  folder, values, _, log = whole_phased
  train = run_logs.read_metrics(str(folder), "train")
  tokens = [r["tokens_per_second"] / r["sequences_per_second"] for r in train]
  assert [r["step"] for r in train] == [2, 3, 4, 6, 7]
  np.testing.assert_allclose(tokens, [3, 3, 3, 7, 7])
  held_out = by_step(folder, "eval")
  assert list(held_out) == [(0, 1), (3, 1), (4, 1), (4, 2), (6, 2), (7, 2)]
  # The same weights on other data.
  assert held_out[4, 1] != held_out[4, 2]
  assert values["loss"] == held_out[7, 2]
  assert "phase 1 of 2: to step 4\n" in log
  assert "phase 2 of 2: to step 7\n" in log
  summary = report_of(folder)
  assert summary["last_step"] == 7 and summary["best_step"] >= 4
  # The losses of another phase, perhaps of fewer layers, do not compete.
  best = runs.read_best(str(folder))
  of_last = {step: x for (step, phase), x in held_out.items() if phase == 2}
  assert best["phase"] == 2 and best["values"]["loss"] == min(of_last.values())
  # The schedule spans all phases; means of the steps since the last log.
  rate = optimization.optimizer_of(phased(folder, phases=())).learning_rate
  parts = ((0, 1), (2,), (3,), (4, 5), (6,))
  expected = [np.mean([rate(step) for step in part]) for part in parts]
  rates = [r["learning_rate"] for r in train]
  np.testing.assert_allclose(rates, expected, rtol=1e-6)


# Early stopping.

# What the evaluation of each step measures: the best at 6, a tie at 8.
SCRIPT = {0: 0.1, 2: 0.5, 4: 0.4, 6: 0.7, 8: 0.7, 10: 0.6, 12: 0.6}


def test_a_run_without_improvement_stops(tmp_path, monkeypatch):
  """Its evaluations measure a function of the step."""
  trainer = []

  def evaluate(*unused):
    accuracy = SCRIPT.get(trainer[0].step, math.nan)
    return {"loss": 1.0, "accuracy": accuracy}

  def run():
    trainer.clear()
    cfg = toy_task.config(
      tmp_path,
      num_train_steps=20,
      eval_steps=2,
      steps_per_loop=3,
      save_checkpoints_steps=5,
      best_metric="accuracy",
      best_is="highest",
      early_stopping_evaluations=3,
    )
    return toy_task.run(toy_task.ToyTask(), cfg, trainer)

  monkeypatch.setattr(evaluation, "Evaluation", lambda *unused: evaluate)
  values, weights, log = run()
  steps = toy_task.logged(tmp_path, "step")
  assert steps[-1] == toy_task.logged(tmp_path, "step", "eval")[-1] == 12
  assert values == {"loss": 1.0, "accuracy": 0.6}
  line = "stopped: the best accuracy is 0.7 of step 6, 3 evaluations ago\n"
  assert log.count(line) == 1
  # It ends as any run: with a checkpoint and a report.
  assert (tmp_path / "model.ckpt-12.index").exists()
  assert report_of(tmp_path)["last_step"] == 12
  best = runs.read_best(str(tmp_path))
  assert (best["step"], best["best_is"]) == (6, "highest")
  # Started again, it has nothing to do.
  again, same, log = run()
  assert toy_task.logged(tmp_path, "step") == steps and again == values
  assert log.count(line) == 1
  np.testing.assert_equal(same, weights)
