"""Tests of the loop as a whole, with a small task."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_job, toy_task
from official_albert.training import loop as training
from official_albert.training import objective, reporting

_ROOT = pathlib.Path(__file__).resolve().parents[2]

_ON_LOGICAL_DEVICES = """
import sys
from official_albert.distribution import strategies as distribution
strategy = distribution.make_strategy("mirrored", int(sys.argv[1]))
assert strategy.num_replicas_in_sync == int(sys.argv[1])
from official_albert.training import reporting, loop as training
from official_albert.testing import toy_task
config = toy_task.config(sys.argv[2], eval_batch_size=4)
with reporting.Reporter(sys.argv[2]) as report:
  training.train([toy_task.ToyTask()], config, strategy, report)
"""


@pytest.mark.parametrize(
  "devices", [2, pytest.param(4, marks=pytest.mark.heavy)]
)
def test_logical_devices_equal_one(tmp_path, devices):
  """Losses of the whole batch, whatever the number of replicas."""
  toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path / "one", eval_batch_size=4)
  )
  folder = str(tmp_path / "many")
  # TensorFlow must not have started when the CPU is cut into devices.
  subprocess.run(
    [sys.executable, "-c", _ON_LOGICAL_DEVICES, str(devices), folder],
    cwd=_ROOT,
    check=True,
  )
  for kind in ("train", "eval"):
    one = reporting.read_metrics(str(tmp_path / "one"), kind)
    many = reporting.read_metrics(folder, kind)
    assert len(one) == len(many) > 0
    for a, b in zip(one, many):
      for name in ("first_loss", "second_loss", "share"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5)


@pytest.mark.heavy
def test_a_run_goes_on_with_other_numbers_of_devices_and_parts(tmp_path):
  """One device, two, then four with two micro-batches: the same data."""
  config = dict(
    train_batch_size=16,
    eval_batch_size=4,
    num_train_steps=9,
    save_checkpoints_steps=3,
    steps_per_loop=1,
  )
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path / "one", **config))
  folder = tmp_path / "many"
  for devices, parts in ((1, 1), (2, 1), (4, 2)):
    command = toy_job.command(
      folder,
      {**config, "gradient_accumulation_steps": parts},
      distribution="mirrored",
      num_devices=devices,
      stop_after=3,
    )
    with toy_job.started(1, command, cwd=_ROOT) as (process,):
      assert toy_job.ended(process) == (0, "")
  one, many = (
    [r["loss"] for r in reporting.read_metrics(str(tmp_path / name), "train")]
    for name in ("one", "many")
  )
  assert len(one) == 9
  # Another batch, or another order of examples, differs in the first digits.
  assert min(abs(a - b) for a, b in zip(one, one[1:])) > 1e-3
  np.testing.assert_allclose(many, one, rtol=1e-5)


def test_three_and_three_steps_are_six_to_the_bit(tmp_path):
  _, whole, _ = toy_task.run(
    toy_task.ToyTask(dropout_rate=0.3), toy_task.config(tmp_path / "a")
  )
  first = toy_task.config(tmp_path / "b")
  # The schedule must not depend on when the run is cut, so cut it by failing.
  task = toy_task.ToyTask(dropout_rate=0.3)
  task.train_dataset_of = task.train_dataset
  task.train_dataset = lambda *args: task.train_dataset_of(*args).take(3)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(task, first)
  task = toy_task.ToyTask(dropout_rate=0.3)
  _, resumed, log = toy_task.run(task, first)
  assert "resumed from" in log and "model.ckpt-3" in log
  assert task.starts == [36]
  for a, b in zip(whole, resumed):
    np.testing.assert_array_equal(a, b)


def test_settings_of_the_optimizer_follow_the_flags_after_a_resume(tmp_path):
  first = toy_task.config(tmp_path / "a", num_train_steps=3)
  toy_task.run(toy_task.ToyTask(), first)
  changed = dataclasses.replace(first, num_train_steps=6, weight_decay=0.5)
  _, decayed, _ = toy_task.run(toy_task.ToyTask(), changed)
  toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path / "b", num_train_steps=3)
  )
  same = toy_task.config(tmp_path / "b", num_train_steps=6)
  _, kept, _ = toy_task.run(toy_task.ToyTask(), same)
  assert np.any(decayed[0] != kept[0])


def test_fewer_steps_than_are_done_is_refused(tmp_path):
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  with pytest.raises(ValueError, match="is at step 6 already, beyond"):
    toy_task.run(
      toy_task.ToyTask(), toy_task.config(tmp_path, num_train_steps=5)
    )


def test_divergence_names_the_steps_and_keeps_the_good_checkpoint(tmp_path):
  # Example 36 is first drawn in the fourth batch of 12.
  task = toy_task.ToyTask(poison_at=36)
  task.eval_dataset = lambda size: (
    toy_task.ToyTask().train_dataset(size, 0).take(1)
  )
  with pytest.raises(objective.Divergence, match="between steps 3 and 4"):
    toy_task.run(task, toy_task.config(tmp_path, steps_per_loop=1))
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")


def test_rollback_leaves_the_bad_batches_out(tmp_path):
  task = toy_task.ToyTask(poison_at=20)  # Example 20 of 37, of 57 and of 94.
  cfg = toy_task.config(
    tmp_path, on_divergence="rollback", save_checkpoints_steps=1
  )
  values, weights_, log = toy_task.run(task, cfg)
  assert all(np.isfinite(w).all() for w in weights_)
  assert math.isfinite(values["loss"])
  assert task.starts == [0, 24, 60, 96]
  assert log.count("warning: the loss or the gradient norm") == 3
  summary = reporting.summarize(str(tmp_path))
  assert (summary["rollbacks"], summary["restarts"]) == (3, 0)
  # A checkpoint after each step: only the steps that diverged.
  assert 3 <= summary["steps_lost_to_rollbacks"] <= 9
  assert summary["last_step"] == 6


def test_rollbacks_come_to_an_end(tmp_path):
  task = toy_task.ToyTask()
  task.x[:] = np.inf
  cfg = toy_task.config(tmp_path, on_divergence="rollback")
  with pytest.raises(objective.Divergence, match="rollback .3 tried"):
    toy_task.run(task, cfg)


def test_a_diverged_run_leaves_a_report(tmp_path):
  task = toy_task.ToyTask(poison_at=20)  # In the second step.
  cfg = toy_task.config(tmp_path, steps_per_loop=1)
  with pytest.raises(objective.Divergence):
    toy_task.run(task, cfg)
  report = json.loads((tmp_path / reporting.REPORT_FILE).read_text())
  assert (report["last_step"], report["rollbacks"]) == (1, 0)
  assert report["best_metric"] == "loss" and report["best_step"] == 0


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
      time.sleep(0.5)  # The watch gets its turn.


@pytest.fixture
def interruptible():
  """Tests that are run in the background ignore Ctrl-C from their start."""
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, handler)


# Eight steps, with an evaluation of four batches before, after the fifth and
# at the end; saved after three, six and eight.
_STOPPED = dict(num_train_steps=8, eval_steps=5, steps_per_loop=6)


@pytest.mark.parametrize(
  "number, in_training, at, saved",
  [
    pytest.param(signal.SIGTERM, True, 2, 2, id="SIGTERM in a step"),
    pytest.param(signal.SIGINT, True, 2, 2, id="in a step"),
    pytest.param(signal.SIGINT, True, 8, 8, id="in the last step"),
    pytest.param(signal.SIGINT, False, 2, 0, id="in the first evaluation"),
    pytest.param(signal.SIGTERM, False, 6, 5, id="SIGTERM in an evaluation"),
    pytest.param(signal.SIGINT, False, 6, 5, id="in an evaluation"),
    pytest.param(signal.SIGINT, False, 12, 8, id="in the last batch of all"),
  ],
)
def test_a_signal_saves_the_step_and_the_run_goes_on(
  tmp_path, interruptible, number, in_training, at, saved
):
  values, whole, _ = toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path / "a", **_STOPPED)
  )
  cfg = toy_task.config(tmp_path / "b", **_STOPPED)
  with pytest.raises(SystemExit) as ended:
    toy_task.run(_Signalled(number, in_training, at), cfg)
  assert ended.value.code == 128 + number
  name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
  where = f": step {saved} is saved" if saved else " before the first step"
  assert str(ended.value) == f"stopped by {name}{where}"
  newest = tf.train.latest_checkpoint(str(tmp_path / "b"))
  assert (newest or "none-0").endswith(f"-{saved}")
  task = toy_task.ToyTask()
  resumed_values, resumed, log = toy_task.run(task, cfg)
  assert f"model.ckpt-{saved}" in log or not saved
  assert task.starts == ([12 * saved] if saved < 8 else [96])
  for a, b in zip(whole, resumed):
    np.testing.assert_array_equal(a, b)
  assert resumed_values == values
  losses = [
    [(r["step"], r["loss"]) for r in reporting.read_metrics(folder, "eval")]
    for folder in (str(tmp_path / "a"), str(tmp_path / "b"))
  ]
  assert [step for step, _ in losses[0]] == [0, 5, 8]
  assert [pair for pair in losses[1] if pair[0] != 2] == losses[0]


def test_stops_for_logs_checkpoints_and_evaluations(tmp_path):
  _, _, log = toy_task.run(
    toy_task.ToyTask(),
    toy_task.config(
      tmp_path, num_train_steps=7, steps_per_loop=4, eval_steps=5
    ),
  )
  steps = [r["step"] for r in reporting.read_metrics(str(tmp_path), "train")]
  assert steps == [3, 4, 5, 6, 7]
  steps = [r["step"] for r in reporting.read_metrics(str(tmp_path), "eval")]
  assert steps == [0, 5, 7]
  assert "sequences/s" in log and "tokens/s" in log and "left" in log


def test_a_finished_run_is_not_trained_again(tmp_path):
  _, before, _ = toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  _, after, _ = toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  for a, b in zip(before, after):
    np.testing.assert_array_equal(a, b)


def test_batches_that_devices_cannot_share_are_refused(tmp_path):
  cfg = toy_task.config(tmp_path, gradient_accumulation_steps=2)
  training.check_batch_sizes(cfg, 2)
  with pytest.raises(ValueError, match="train_batch_size 12 cannot be cut"):
    training.check_batch_sizes(cfg, 5)
  with pytest.raises(ValueError, match="eval_batch_size 10 cannot be cut"):
    training.check_batch_sizes(cfg, 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
