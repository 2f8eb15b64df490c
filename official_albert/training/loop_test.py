"""The loop as a whole, with a small task."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_job, toy_task
from official_albert.training import loop as training
from official_albert.training import objective, reporting


@pytest.mark.parametrize(
  "devices", [2, pytest.param(4, marks=pytest.mark.heavy)]
)
def test_several_devices_equal_one(tmp_path, devices):
  """Losses are of the whole batch, whatever the number of replicas."""
  toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path / "one", eval_batch_size=4)
  )
  many = tmp_path / "many"
  toy_job.run(
    1,
    many,
    {"eval_batch_size": 4},
    distribution="mirrored",
    num_devices=devices,
  )
  for kind, count in (("train", 4), ("eval", 2)):
    for name in ("first_loss", "second_loss", "share"):
      expected = toy_task.logged(tmp_path / "one", name, kind)
      assert len(expected) == count
      got = toy_task.logged(many, name, kind)
      np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.heavy
def test_a_run_continues_with_other_devices_and_micro_batches(tmp_path):
  """One device, two, then four with two micro-batches: the same data."""
  config = dict(
    train_batch_size=16,
    eval_batch_size=4,
    num_train_steps=9,
    save_checkpoints_steps=3,
    steps_per_loop=1,
  )
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path / "one", **config))
  for devices, parts in ((1, 1), (2, 1), (4, 2)):
    toy_job.run(
      1,
      tmp_path / "many",
      {**config, "gradient_accumulation_steps": parts},
      distribution="mirrored",
      num_devices=devices,
      task={"stop_after": 3},
    )
  one, many = (
    toy_task.logged(tmp_path / "one"),
    toy_task.logged(tmp_path / "many"),
  )
  assert len(one) == 9
  # Another batch, or another order of examples, differs in the first digits.
  assert min(abs(a - b) for a, b in zip(one, one[1:])) > 1e-3
  np.testing.assert_allclose(many, one, rtol=1e-5)


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(tmp_path):
  _, whole, _ = toy_task.run(
    toy_task.ToyTask(dropout_rate=0.3), toy_task.config(tmp_path / "a")
  )
  cfg = toy_task.config(tmp_path / "b")
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(toy_task.ToyTask(dropout_rate=0.3, stop_after=3), cfg)
  task = toy_task.ToyTask(dropout_rate=0.3)
  _, resumed, log = toy_task.run(task, cfg)
  assert "resumed from" in log and "model.ckpt-3" in log
  assert task.starts == [36]
  np.testing.assert_equal(resumed, whole)
  # Finished, it is not trained again; nor with fewer steps than are done.
  _, after, _ = toy_task.run(toy_task.ToyTask(), cfg)
  np.testing.assert_equal(after, whole)
  with pytest.raises(ValueError, match="is at step 6 already, beyond"):
    toy_task.run(
      toy_task.ToyTask(), toy_task.config(tmp_path / "b", num_train_steps=5)
    )


def test_the_optimizer_follows_the_flags_after_a_resume(tmp_path):
  weights = []
  for name, decay in (("a", 0.5), ("b", 0.01)):
    first = toy_task.config(tmp_path / name, num_train_steps=3)
    toy_task.run(toy_task.ToyTask(), first)
    changed = dataclasses.replace(first, num_train_steps=6, weight_decay=decay)
    weights.append(toy_task.run(toy_task.ToyTask(), changed)[1])
  assert np.any(weights[0][0] != weights[1][0])


def test_stops_for_logs_checkpoints_and_evaluations(tmp_path):
  _, _, log = toy_task.run(
    toy_task.ToyTask(),
    toy_task.config(
      tmp_path, num_train_steps=7, steps_per_loop=4, eval_steps=5
    ),
  )
  assert toy_task.logged(tmp_path, "step") == [3, 4, 5, 6, 7]
  assert toy_task.logged(tmp_path, "step", "eval") == [0, 5, 7]
  assert "sequences/s" in log and "tokens/s" in log and "left" in log


def test_a_divergence_names_the_steps_and_keeps_the_last_checkpoint(tmp_path):
  # Example 36 is first drawn in the fourth batch of 12.
  task = toy_task.ToyTask(poison_at=36)
  with pytest.raises(objective.Divergence, match="between steps 3 and 4"):
    toy_task.run(task, toy_task.config(tmp_path, steps_per_loop=1))
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")
  report = json.loads((tmp_path / reporting.REPORT_FILE).read_text())
  assert (report["last_step"], report["rollbacks"]) == (3, 0)
  assert report["best_metric"] == "loss" and report["best_step"] == 0


def test_a_rolled_back_run_skips_batches_and_finishes(tmp_path):
  """Example 20 is in steps 2, 5 and 8 of the data."""
  task = toy_task.ToyTask(poison_at=20)
  cfg = toy_task.config(
    tmp_path, on_divergence="rollback", save_checkpoints_steps=1
  )
  values, weights, log = toy_task.run(task, cfg)
  assert all(np.isfinite(w).all() for w in weights)
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


def held_out(folder):
  steps, losses = (toy_task.logged(folder, n, "eval") for n in ("step", "loss"))
  return dict(zip(steps, losses))


@pytest.mark.parametrize(
  "number, in_training, at, saved",
  [
    pytest.param(signal.SIGTERM, True, 2, 2, id="SIGTERM in a step"),
    pytest.param(signal.SIGINT, True, 2, 2, id="in a step"),
    pytest.param(signal.SIGINT, True, 8, 8, id="in the last step"),
    pytest.param(signal.SIGINT, False, 2, 0, id="in the first evaluation"),
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
  name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
  where = f": step {saved} is saved" if saved else " before the first step"
  assert str(ended.value) == f"stopped by {name}{where}"
  newest = tf.train.latest_checkpoint(str(tmp_path))
  assert (newest or "none-0").endswith(f"-{saved}")
  task = toy_task.ToyTask()
  values, weights, log = toy_task.run(task, cfg)
  assert f"model.ckpt-{saved}" in log or not saved
  assert task.starts == ([12 * saved] if saved < 8 else [96])
  np.testing.assert_equal([values, weights], list(unsignalled[1:3]))
  expected, got = held_out(unsignalled[0]), held_out(tmp_path)
  assert list(expected) == [0, 5, 8] and set(got) <= {0, 2, 5, 8}
  assert expected.items() <= got.items()


def test_batches_that_devices_cannot_share_are_refused(tmp_path):
  cfg = toy_task.config(tmp_path, gradient_accumulation_steps=2)
  training.check_batch_sizes(cfg, 2)
  with pytest.raises(ValueError, match="train_batch_size 12 cannot be cut"):
    training.check_batch_sizes(cfg, 5)
  with pytest.raises(ValueError, match="eval_batch_size 10 cannot be cut"):
    training.check_batch_sizes(cfg, 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
