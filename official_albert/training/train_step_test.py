"""Tests of one update, with numbers computed by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import reporting, train_step


@pytest.mark.parametrize("rate, differ", [(0.3, True), (0.0, False)])
def test_dropout_depends_on_the_seed(tmp_path, rate, differ):
  """The same weights and batch, two seeds: only dropout can tell them apart."""
  task = toy_task.ToyTask(dropout_rate=rate)
  batch = next(iter(task.train_dataset(12, 0)))
  tf.keras.utils.set_random_seed(1)
  model = task.build_model()
  losses = []
  for seed in (3, 4):
    cfg = toy_task.config(tmp_path, seed=seed)
    step = train_step.make_train_step(task, model, cfg.make_optimizer(), cfg)
    # The first step's rate is 0, so the weights stay what they are.
    losses.append(float(tf.function(step)(batch)["first_loss"].total))
  assert (losses[0] != losses[1]) is differ


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_equal_one_batch(tmp_path, micro_batches):
  _, one, _ = toy_task.run(
    toy_task.ToyTask(), toy_task.config(tmp_path / "one")
  )
  _, many, _ = toy_task.run(
    toy_task.ToyTask(),
    toy_task.config(
      tmp_path / "many", gradient_accumulation_steps=micro_batches
    ),
  )
  for a, b in zip(one, many):
    # Another order of summation; Adam's first steps amplify it.
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_xla_changes_no_number_but_rounding(tmp_path, micro_batches):
  runs = []
  for xla in (False, True):
    cfg = toy_task.config(
      tmp_path / str(xla),
      gradient_accumulation_steps=micro_batches,
      xla=xla,
    )
    runs.append(toy_task.run(toy_task.ToyTask(), cfg)[1])
  for a, b in zip(*runs):
    # Sums in another order; Adam's first steps amplify it.
    np.testing.assert_allclose(a, b, atol=1e-5)
  one, other = (
    reporting.read_metrics(str(tmp_path / str(xla)), "train")
    for xla in (False, True)
  )
  for a, b in zip(one, other):
    for name in ("loss", "share", "gradient_norm"):
      np.testing.assert_allclose(a[name], b[name], rtol=1e-5)


def test_xla_compiles_forward_and_backward(tmp_path):
  """And nothing else: the update and the reduction stay outside."""
  task = toy_task.ToyTask()
  batch = next(iter(task.train_dataset(12, 0)))
  compiled = {}
  for xla in (False, True):
    cfg = toy_task.config(tmp_path, xla=xla)
    step = train_step.make_train_step(
      task, task.build_model(), cfg.make_optimizer(), cfg
    )
    graph = tf.function(step).get_concrete_function(batch).graph
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    calls = [
      op
      for op in graph.get_operations()
      if op.type.endswith("PartitionedCall") and op.get_attr("_XlaMustCompile")
    ]
    compiled[xla] = (len(products), len(calls))
    assert any(op.type == "AssignVariableOp" for op in graph.get_operations())
  assert compiled[False][0] > 0 and compiled[False][1] == 0
  assert compiled[True] == (0, 1)


def test_one_step_by_hand(tmp_path):
  """The loss is a sum of quotients of sums, clipped after summation."""
  task = toy_task.ToyTask()
  cfg = toy_task.config(
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
  _, weights, _ = toy_task.run(task, cfg)
  for a, b in zip(expected, weights):
    np.testing.assert_allclose(a, b, atol=1e-5)
  record = reporting.read_metrics(str(tmp_path), "train")[0]
  assert math.isclose(record["loss"], float(loss), rel_tol=1e-5)
  assert math.isclose(record["gradient_norm"], norm, rel_tol=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_step_is_one_program_for_an_accelerator(tmp_path, rate):
  """XLA refuses a graph with anything that only a host can do.

  TPUs compile the whole step in this way; strings, prints and Python calls
  have no place in it, nor have shapes that depend on the data.
  """
  task = toy_task.ToyTask(dropout_rate=rate)
  cfg = toy_task.config(tmp_path, gradient_accumulation_steps=3)
  batch = next(iter(task.train_dataset(12, 0)))
  results = []
  for compiled in (False, True):
    tf.keras.utils.set_random_seed(1)
    step = train_step.make_train_step(
      task, task.build_model(), cfg.make_optimizer(), cfg
    )
    step = tf.function(step, jit_compile=compiled)
    results.append([step(batch)["first_loss"].total for _ in range(3)])
  assert np.isfinite(results).all()
  if not rate:  # XLA draws other random numbers of the same kind.
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


_ON_ONE_CORE = """
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import tensorflow as tf
from official_albert.training import train_step
from official_albert.distribution.multi_worker import SharedFlag
from official_albert.training.objective import Ratio

weight = tf.Variable(0.0)

def step(x):
  x += weight
  for _ in range(12):  # Chains of their own, as a model's parts are.
    y = tf.random.stateless_normal([300, 300], [1, 2]) + x
    for _ in range(4):
      y = tf.nn.relu(tf.matmul(y, y) / 300.0)
    x = x + tf.reduce_mean(y)
  weight.assign_add(0.1 * x)
  return {"loss": Ratio(x, tf.ones([]))}

strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
stop = SharedFlag(strategy, tf.Variable(False))
loop = train_step.make_train_loop(step, strategy, stop)
batches = iter(tf.data.Dataset.from_tensors(0.5).repeat().prefetch(4))
loop(batches, tf.constant(2))
begun = time.perf_counter()
_, done, waited = loop(batches, tf.constant(20))
print(float(waited) / (time.perf_counter() - begun))
"""


def test_one_core_does_not_take_the_step_for_waiting():
  done = subprocess.run(
    [sys.executable, "-c", _ON_ONE_CORE], capture_output=True, text=True
  )
  assert not done.returncode, done.stderr
  assert float(done.stdout) < 0.2


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
