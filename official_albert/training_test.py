"""Tests of the loop with a small task of its own.

A linear model with two objectives whose weights differ from example to
example, so that a mean of means cannot pass for a quotient of sums.
"""

from __future__ import annotations

import dataclasses
import io
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

from official_albert import distribution, reporting, training
from official_albert.layers import dropout

FEATURES, EXAMPLES = 5, 37


class ToyTask:
  """Two weighted squared errors with dropout on the input."""

  name = "toy"
  tokens_per_example = 3
  flops_per_example = 60

  def __init__(self, poison_at=None, dropout_rate=0.0):
    rng = np.random.default_rng(0)
    self.x = rng.normal(size=[EXAMPLES, FEATURES]).astype(np.float32)
    self.y = rng.normal(size=[EXAMPLES, 2]).astype(np.float32)
    self.w = rng.integers(0, 3, [EXAMPLES, 2]).astype(np.float32) + 0.5
    self.eval_x = self.x.copy()
    if poison_at is not None:
      self.x[poison_at] = np.inf
    self.dropout_rate = dropout_rate
    self.starts = []

  def build_model(self):
    model = tf.keras.Sequential(
      [
        tf.keras.layers.Dense(4, activation="tanh", name="hidden"),
        tf.keras.layers.Dense(2, name="out"),
      ]
    )
    model.build([None, FEATURES])
    return model

  def train_dataset(self, batch_size, start_example):
    self.starts.append(start_example)
    data = tf.data.Dataset.from_tensor_slices(
      {"x": self.x, "y": self.y, "w": self.w}
    )
    data = data.repeat().skip(start_example)
    return data.batch(batch_size, drop_remainder=True)

  def eval_dataset(self, batch_size):
    data = tf.data.Dataset.from_tensor_slices(
      {"x": self.eval_x, "y": self.y, "w": self.w}
    )
    # Of one length, as the reader makes them: the rest has no weight.
    rest = -EXAMPLES % batch_size
    nothing = tf.data.Dataset.from_tensors(
      {
        "x": tf.zeros([FEATURES]),
        "y": tf.zeros([2]),
        "w": tf.zeros([2]),
      }
    )
    data = data.concatenate(nothing.repeat(rest))
    return data.batch(batch_size, drop_remainder=True)

  def loss_weights(self, batch):
    weights = tf.reduce_sum(batch["w"], 0)
    return {"first": weights[0], "second": weights[1]}

  def forward(self, model, batch, training_, dropout_seed):
    x = dropout.seeded_dropout(
      batch["x"], self.dropout_rate, training_, dropout_seed
    )
    errors = tf.reduce_sum(batch["w"] * (model(x) - batch["y"]) ** 2, 0)
    ones = tf.cast(batch["w"][:, 0] > 0, tf.float32)
    big = tf.cast(batch["x"][:, 0] > 0, tf.float32)
    metric = training.Ratio(tf.reduce_sum(big), tf.reduce_sum(ones))
    return {"first": errors[0], "second": errors[1]}, {"share": metric}

  def describe(self):
    return {}


def config(model_dir, **changes):
  values = dict(
    model_dir=str(model_dir),
    num_train_steps=6,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
    eval_batch_size=10,
    steps_per_loop=2,
    eval_steps=0,
    save_checkpoints_steps=3,
  )
  return training.TrainConfig(**{**values, **changes})


def run(task, cfg):
  """Trains; returns the last evaluation, the weights and the log."""
  stream = io.StringIO()
  built = []
  build = task.build_model
  task.build_model = lambda: built.append(build()) or built[-1]
  strategy = distribution.make_strategy("one_device")
  with reporting.Reporter(cfg.model_dir, stream) as report:
    values = training.train(task, cfg, strategy, report)
  return values, built[-1].get_weights(), stream.getvalue()


_ON_LOGICAL_DEVICES = """
import sys
from official_albert import distribution
strategy = distribution.make_strategy("mirrored", int(sys.argv[1]))
assert strategy.num_replicas_in_sync == int(sys.argv[1])
from official_albert import reporting, training, training_test as t
config = t.config(sys.argv[2], eval_batch_size=4)
with reporting.Reporter(sys.argv[2]) as report:
  training.train(t.ToyTask(), config, strategy, report)
"""


@pytest.mark.parametrize("devices", [2, 4])
def test_logical_devices_equal_one(tmp_path, devices):
  """Losses of the whole batch, whatever the number of replicas."""
  run(ToyTask(), config(tmp_path / "one", eval_batch_size=4))
  folder = str(tmp_path / "many")
  # TensorFlow must not have started when the CPU is cut into devices.
  subprocess.run(
    [sys.executable, "-c", _ON_LOGICAL_DEVICES, str(devices), folder],
    cwd=pathlib.Path(__file__).resolve().parents[1],
    check=True,
  )
  for kind in ("train", "eval"):
    one = reporting.read_metrics(str(tmp_path / "one"), kind)
    many = reporting.read_metrics(folder, kind)
    assert len(one) == len(many) > 0
    for a, b in zip(one, many):
      for name in ("first_loss", "second_loss", "share"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5)


def test_three_and_three_steps_are_six_to_the_bit(tmp_path):
  _, whole, _ = run(ToyTask(dropout_rate=0.3), config(tmp_path / "a"))
  first = config(tmp_path / "b")
  # The schedule must not depend on when the run is cut, so cut it by failing.
  task = ToyTask(dropout_rate=0.3)
  task.train_dataset_of = task.train_dataset
  task.train_dataset = lambda *args: task.train_dataset_of(*args).take(3)
  with pytest.raises(tf.errors.OutOfRangeError):
    run(task, first)
  task = ToyTask(dropout_rate=0.3)
  _, resumed, log = run(task, first)
  assert "resumed from" in log and "model.ckpt-3" in log
  assert task.starts == [36]
  for a, b in zip(whole, resumed):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rate, differ", [(0.3, True), (0.0, False)])
def test_dropout_depends_on_the_seed(tmp_path, rate, differ):
  """The same weights and batch, two seeds: only dropout can tell them apart."""
  task = ToyTask(dropout_rate=rate)
  batch = next(iter(task.train_dataset(12, 0)))
  tf.keras.utils.set_random_seed(1)
  model = task.build_model()
  losses = []
  for seed in (3, 4):
    cfg = config(tmp_path, seed=seed)
    step = training.make_train_step(task, model, cfg.make_optimizer(), cfg)
    # The first step's rate is 0, so the weights stay what they are.
    losses.append(float(tf.function(step)(batch)["first_loss"].total))
  assert (losses[0] != losses[1]) is differ


def test_settings_of_the_optimizer_follow_the_flags_after_a_resume(tmp_path):
  first = config(tmp_path / "a", num_train_steps=3)
  run(ToyTask(), first)
  changed = dataclasses.replace(first, num_train_steps=6, weight_decay=0.5)
  _, decayed, _ = run(ToyTask(), changed)
  run(ToyTask(), config(tmp_path / "b", num_train_steps=3))
  same = config(tmp_path / "b", num_train_steps=6)
  _, kept, _ = run(ToyTask(), same)
  assert np.any(decayed[0] != kept[0])


def test_fewer_steps_than_are_done_is_refused(tmp_path):
  run(ToyTask(), config(tmp_path))
  with pytest.raises(ValueError, match="is at step 6 already, beyond"):
    run(ToyTask(), config(tmp_path, num_train_steps=5))


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_equal_one_batch(tmp_path, micro_batches):
  _, one, _ = run(ToyTask(), config(tmp_path / "one"))
  _, many, _ = run(
    ToyTask(),
    config(tmp_path / "many", gradient_accumulation_steps=micro_batches),
  )
  for a, b in zip(one, many):
    # Another order of summation; Adam's first steps amplify it.
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_one_step_by_hand(tmp_path):
  """The loss is a sum of quotients of sums, clipped after summation."""
  task = ToyTask()
  cfg = config(
    tmp_path,
    num_train_steps=1,
    num_warmup_steps=0,
    clip_norm=0.1,
    optimizer="adamw",
    weight_decay=0.0,
  )
  tf.keras.utils.set_random_seed(cfg.seed)
  model = task.build_model()
  x, y, w = task.x[:12], task.y[:12], task.w[:12]
  with tf.GradientTape() as tape:
    errors = tf.reduce_sum(w * (model(x) - y) ** 2, 0) / w.sum(0)
    loss = tf.reduce_sum(errors)
  gradients = tape.gradient(loss, model.trainable_variables)
  norm = float(tf.linalg.global_norm(gradients))
  assert norm > 0.1
  expected = []
  for g, v in zip(gradients, model.trainable_variables):
    g = g.numpy() * 0.1 / norm
    u = 0.1 * g / (np.sqrt(0.001 * g * g) + 1e-6)
    expected.append(v.numpy() - 0.01 * u)
  _, weights, _ = run(task, cfg)
  for a, b in zip(expected, weights):
    np.testing.assert_allclose(a, b, atol=1e-5)
  record = reporting.read_metrics(str(tmp_path), "train")[0]
  assert math.isclose(record["loss"], float(loss), rel_tol=1e-5)
  assert math.isclose(record["gradient_norm"], norm, rel_tol=1e-4)


def test_evaluation_counts_every_example_once(tmp_path):
  cfg = config(tmp_path, num_train_steps=1, num_warmup_steps=0)
  task = ToyTask()
  values, weights, _ = run(task, cfg)
  h = np.tanh(task.x @ weights[0] + weights[1])
  errors = task.w * (h @ weights[2] + weights[3] - task.y) ** 2
  expected = errors.sum(0) / task.w.sum(0)
  assert math.isclose(values["first_loss"], expected[0], rel_tol=1e-5)
  assert math.isclose(values["second_loss"], expected[1], rel_tol=1e-5)
  assert math.isclose(values["loss"], expected.sum(), rel_tol=1e-5)
  assert math.isclose(values["share"], (task.x[:, 0] > 0).mean(), rel_tol=1e-6)


def test_divergence_names_the_steps_and_keeps_the_good_checkpoint(tmp_path):
  # Example 36 is first drawn in the fourth batch of 12.
  task = ToyTask(poison_at=36)
  task.eval_dataset = lambda size: ToyTask().train_dataset(size, 0).take(1)
  with pytest.raises(training.Divergence, match="between steps 3 and 4"):
    run(task, config(tmp_path, steps_per_loop=1))
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")


def test_rollback_leaves_the_bad_batches_out(tmp_path):
  task = ToyTask(poison_at=20)  # Example 20 of 37, of 57 and of 94.
  cfg = config(tmp_path, on_divergence="rollback", save_checkpoints_steps=1)
  values, weights_, log = run(task, cfg)
  assert all(np.isfinite(w).all() for w in weights_)
  assert math.isfinite(values["loss"])
  assert task.starts == [0, 24, 60, 96]
  assert log.count("warning: the loss or the gradient norm") == 3
  summary = reporting.summarize(str(tmp_path))
  assert (summary["rollbacks"], summary["restarts"]) == (3, 0)
  assert summary["last_step"] == 6


def test_rollbacks_come_to_an_end(tmp_path):
  task = ToyTask()
  task.x[:] = np.inf
  cfg = config(tmp_path, on_divergence="rollback")
  with pytest.raises(training.Divergence, match="rollback .3 tried"):
    run(task, cfg)


def test_sigterm_saves_the_step_and_the_run_goes_on(tmp_path):
  _, whole, _ = run(ToyTask(), config(tmp_path / "a"))
  task = ToyTask()
  forward, calls = task.forward, []

  def forward_and_kill(*arguments):
    def kill():
      calls.append(None)
      if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)  # The watch gets its turn.

    if arguments[2]:
      tf.py_function(kill, [], [])
    return forward(*arguments)

  task.forward = forward_and_kill
  cfg = config(tmp_path / "b", steps_per_loop=6)
  with pytest.raises(SystemExit) as ended:
    run(task, cfg)
  assert ended.value.code == 143
  assert (tmp_path / "b" / "model.ckpt-2.index").exists()
  task = ToyTask()
  _, resumed, log = run(task, cfg)
  assert "model.ckpt-2" in log and task.starts == [24]
  for a, b in zip(whole, resumed):
    np.testing.assert_array_equal(a, b)


def test_stops_for_logs_checkpoints_and_evaluations(tmp_path):
  _, _, log = run(
    ToyTask(),
    config(tmp_path, num_train_steps=7, steps_per_loop=4, eval_steps=5),
  )
  steps = [r["step"] for r in reporting.read_metrics(str(tmp_path), "train")]
  assert steps == [3, 4, 5, 6, 7]
  steps = [r["step"] for r in reporting.read_metrics(str(tmp_path), "eval")]
  assert steps == [0, 5, 7]
  assert "sequences/s" in log and "tokens/s" in log and "left" in log


def test_a_finished_run_is_not_trained_again(tmp_path):
  _, before, _ = run(ToyTask(), config(tmp_path))
  _, after, _ = run(ToyTask(), config(tmp_path))
  for a, b in zip(before, after):
    np.testing.assert_array_equal(a, b)


def test_batches_that_devices_cannot_share_are_refused(tmp_path):
  cfg = config(tmp_path, gradient_accumulation_steps=2)
  training.check_batch_sizes(cfg, 2)
  with pytest.raises(ValueError, match="train_batch_size 12 cannot be cut"):
    training.check_batch_sizes(cfg, 5)
  with pytest.raises(ValueError, match="eval_batch_size 10 cannot be cut"):
    training.check_batch_sizes(cfg, 3)


def test_an_empty_evaluation_is_an_error(tmp_path):
  task = ToyTask()
  task.eval_dataset = lambda size: ToyTask().train_dataset(size, 0).take(0)
  with pytest.raises(ValueError, match="no held-out example"):
    run(task, config(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
