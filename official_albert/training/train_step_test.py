"""One update: numbers computed by hand, random depths, shortened batches."""

from __future__ import annotations

import collections
import copy
import io
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling, run_logs
from official_albert.testing import toy_models, toy_task
from official_albert.training import (
  loop,
  objective,
  optimization,
  reporting,
  train_step,
)

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_dropout_depends_on_the_seed(tmp_path):
  """The weights and the batch are the same for all seeds."""
  losses = []
  task = toy_task.ToyTask(dropout_rate=0.3)
  batch, model = next(iter(task.train_dataset(12, 0))), task.build_model()
  for seed in (3, 3, 4):
    cfg = toy_task.config(tmp_path, seed=seed)
    step = train_step.make_train_step(
      task, model, optimization.optimizer_of(cfg), cfg
    )
    # The first step's rate is 0, so the weights stay what they are.
    losses.append(float(tf.function(step)(batch)["first_loss"].total))
  assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
  "changes",
  [
    dict(gradient_accumulation_steps=4),
    dict(xla=True, gradient_accumulation_steps=3),
  ],
)
def test_micro_batches_and_xla_change_only_rounding(tmp_path, changes):
  runs = [
    toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path / name, **kwargs))
    for name, kwargs in (("one", {}), ("other", changes))
  ]
  for a, b in zip(runs[0][1], runs[1][1]):
    # Sums in another order; Adam's first steps amplify it.
    np.testing.assert_allclose(a, b, atol=1e-5)
  for name in ("loss", "share", "gradient_norm"):
    one, other = (toy_task.logged(tmp_path / n, name) for n in ("one", "other"))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_many_metrics_and_micro_batches_need_one_model(tmp_path):
  """The graph has the model once, and 40 metrics are not too many."""

  class Task(toy_task.ToyTask):
    traced = 0
    count = 40

    def forward(self, model, batch, training_, dropout_seed):
      self.traced += training_
      totals, metrics = super().forward(model, batch, training_, dropout_seed)
      ratio = objective.Ratio(tf.ones([]) * 3.0, tf.ones([]))
      return totals, {
        **metrics,
        **{f"metric_{n}": ratio for n in range(self.count)},
      }

  task = Task()
  cfg = toy_task.config(tmp_path, gradient_accumulation_steps=4)
  toy_task.run(task, cfg)
  assert task.traced == 1
  assert set(toy_task.logged(tmp_path, "metric_39")) == {3.0}
  task.count = 600
  with pytest.raises(ValueError, match="losses and metrics, .* at most 512"):
    toy_task.run(task, toy_task.config(tmp_path / "more"))


def test_xla_compiles_only_forward_and_backward(tmp_path):
  task, cfg = toy_task.ToyTask(), toy_task.config(tmp_path, xla=True)
  step = train_step.make_train_step(
    task, task.build_model(), optimization.optimizer_of(cfg), cfg
  )
  batch = next(iter(task.train_dataset(12, 0)))
  graph = tf.function(step).get_concrete_function(batch).graph
  types = {op.type: op for op in graph.get_operations()}
  assert "MatMul" not in types and "AssignVariableOp" in types
  assert any(
    op.get_attr("_XlaMustCompile")
    for name, op in types.items()
    if name.endswith("PartitionedCall")
  )


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
  (record,) = run_logs.read_metrics(str(tmp_path), "train")
  assert math.isclose(record["loss"], float(loss), rel_tol=1e-5)
  assert math.isclose(record["gradient_norm"], norm, rel_tol=1e-4)


DEPTHS = (2, 3, 7)


class DeepToyTask(toy_task.ToyTask):
  """Its metric `depth` is the depth at which it was trained."""

  depth = 5

  def at_depth(self, num_layers):
    task = copy.copy(self)
    task.depth, task.flops_per_example = num_layers, 100 * num_layers
    return task

  def forward(self, model, batch, training_, dropout_seed):
    batch = {**batch, "x": batch["x"] * self.depth}
    totals, _ = super().forward(model, batch, training_, dropout_seed)
    one = tf.ones([])
    return totals, {"depth": objective.Ratio(self.depth * one, one)}


def test_each_depth_is_drawn_equally_often(tmp_path):
  cfg = toy_task.config(tmp_path, random_depths=DEPTHS)
  draw = tf.function(lambda n: train_step.draw_depth(cfg, n, cfg.seed))
  drawn = [int(draw(tf.constant(n, tf.int64))) for n in range(600)]
  counts = collections.Counter(drawn)
  # 200 each, within four standard deviations.
  assert all(abs(counts[index] - 200) < 46 for index in range(3))
  assert len(counts) == 3 and drawn[:300] != drawn[300:]


def test_random_depths_depend_on_the_step_only(tmp_path):
  """Also in micro-batches and after a kill."""
  settings = dict(random_depths=DEPTHS, steps_per_loop=1)
  cfg = toy_task.config(tmp_path / "whole", **settings)
  _, weights, log = toy_task.run(DeepToyTask(), cfg)
  drawn = toy_task.logged(tmp_path / "whole", "depth")
  assert drawn == [
    DEPTHS[int(train_step.draw_depth(cfg, np.int64(n), cfg.seed))]
    for n in range(6)
  ]
  assert len(set(drawn)) > 1
  # Evaluations are at full depth; operations are those of the mean depth, 4.
  assert toy_task.logged(tmp_path / "whole", "depth", "eval") == [5, 5]
  assert "216 tokens, 2.88e+04 operations" in log
  record = run_logs.read_metrics(str(tmp_path / "whole"), "train")[-1]
  flops = record["model_flops_per_second"] / record["sequences_per_second"]
  assert flops == pytest.approx(400)
  settings["gradient_accumulation_steps"] = 3
  cfg = toy_task.config(tmp_path / "parts", **settings)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(DeepToyTask(stop_after=4), cfg)
  _, resumed, _ = toy_task.run(DeepToyTask(), cfg)
  assert toy_task.logged(tmp_path / "parts", "depth") == drawn
  for a, b in zip(weights, resumed):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # Other sums.


_ON_ONE_CORE = """
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import tensorflow as tf
from official_albert import distribution
from official_albert.training import train_step
from official_albert.training.objective import Ratio

weight = tf.Variable(0.0)

def step(x):
  x += weight
  for _ in range(12):  # Independent chains, as a model's parts are.
    y = tf.random.stateless_normal([300, 300], [1, 2]) + x
    for _ in range(4):
      y = tf.nn.relu(tf.matmul(y, y) / 300.0)
    x = x + tf.reduce_mean(y)
  weight.assign_add(0.1 * x)
  return {"loss": Ratio(x, tf.ones([]))}

strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
stop = distribution.SharedFlag(strategy, tf.Variable(False))
loop = train_step.make_train_loop(step, strategy, stop)
batches = iter(tf.data.Dataset.from_tensors(0.5).repeat().prefetch(4))
loop(batches, tf.constant(2))
begun = time.perf_counter()
_, done, waited = loop(batches, tf.constant(20))
print(float(waited) / (time.perf_counter() - begun))
"""


def test_computing_on_one_core_is_not_waiting():
  done = subprocess.run(
    [sys.executable, "-c", _ON_ONE_CORE], capture_output=True, text=True
  )
  assert not done.returncode, done.stderr
  assert float(done.stdout) < 0.2


@pytest.mark.parametrize("device, clocks", [("cpu", 2), ("gpu", 0)])
def test_only_cpus_read_a_clock(device, clocks):
  """GPUs refuse it, because their operations are deterministic."""
  strategy = tf.distribute.OneDeviceStrategy(f"/{device}:0")
  stop = distribution.SharedFlag(strategy, tf.Variable(False))
  loop = train_step.make_train_loop(
    lambda x: {"loss": objective.Ratio(x, tf.ones([]))}, strategy, stop
  )
  batches = iter(tf.data.Dataset.from_tensors(0.5))
  graph = loop.get_concrete_function(batches, tf.constant(2)).graph
  functions = graph.as_graph_def().library.function
  nodes = [node.op for function in functions for node in function.node_def]
  assert nodes.count("Timestamp") == clocks


def _ratio(total, weight):
  return objective.Ratio(tf.constant(float(total)), tf.constant(float(weight)))


def test_quotients_of_sums_are_not_means_of_means():
  first = {"a_loss": _ratio(6, 2), "b_loss": _ratio(1, 4), "x": _ratio(3, 1)}
  second = {"a_loss": _ratio(1, 5), "b_loss": _ratio(5, 4), "x": _ratio(0, 2)}
  values = objective.quotients(tf.nest.map_structure(tf.add, first, second))
  assert values == pytest.approx(
    {"loss": 1.75, "a_loss": 1.0, "b_loss": 0.75, "x": 1.0}
  )
  assert objective.quotients({"a": _ratio(0, 0)}) == {"loss": 0, "a": None}
  values = objective.quotients({"a_loss": _ratio(math.nan, 3)})
  assert math.isnan(values["loss"])


# Batches that are cut to their longest example train as padded ones do.

CONFIG = toy_models.config(
  19,
  11,
  num_hidden_layers=1,
  initializer_range=0.02,
  hidden_dropout_prob=0.0,
  attention_probs_dropout_prob=0.0,
)
EXAMPLES, LONGEST = 24, 11
# Of examples 0 to 3, 4 to 7 and so on: batches of 4 differ from each other.
LENGTHS = np.repeat([5, 11, 7, 5, 7, 11], 4) - np.tile([0, 1, 2, 3], 6)


class LengthTask:
  """Three classes of random sequences; `cut` drops the common padding."""

  name = "lengths"
  tokens_per_example, flops_per_example = LONGEST, 100

  def __init__(self, cut, recompute=False):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 19, [EXAMPLES, LONGEST])
    mask = (np.arange(LONGEST) < LENGTHS[:, None]).astype(np.int32)
    self.data = {
      "input_ids": (ids * mask).astype(np.int32),
      "input_mask": mask,
      "label_ids": rng.integers(0, 3, [EXAMPLES]).astype(np.int32),
    }
    self.cut, self.recompute = cut, recompute
    self.traced = []

  def build_model(self):
    return modeling.AlbertForSequenceClassification(
      CONFIG, 3, 0.0, self.recompute
    )

  def _batches(self, data, batch_size):
    def cut(batch):
      length = tf.reduce_max(tf.reduce_sum(batch["input_mask"], 1))
      return {
        name: x[:, :length] if x.shape.rank == 2 else x
        for name, x in batch.items()
      }

    data = data.batch(batch_size, drop_remainder=True)
    return data.map(cut) if self.cut else data

  def train_dataset(self, batch_size, start_example, context=None):
    data = tf.data.Dataset.from_tensor_slices(self.data).repeat()
    return self._batches(data.skip(start_example), batch_size)

  def eval_dataset(self, batch_size):
    data = tf.data.Dataset.from_tensor_slices(self.data)
    return self._batches(data, batch_size)

  def begin(self, model):
    pass

  def loss_weights(self, batch):
    return {"class": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)}

  def forward(self, model, batch, training_, dropout_seed):
    self.traced.append(batch["input_ids"].shape[1])
    outputs = model(batch, training=training_, dropout_seed=dropout_seed)
    losses = modeling.cross_entropy(
      outputs["logits"], batch["label_ids"], training_
    )
    return {"class": tf.reduce_sum(losses)}, {}

  def describe(self):
    return {}


def losses(folder):
  return (
    toy_task.logged(folder),
    toy_task.logged(folder, "gradient_norm"),
    toy_task.logged(folder, "loss", "eval"),
  )


def run(folder, task, devices=0, **changes):
  values = dict(train_batch_size=8, eval_batch_size=4, steps_per_loop=1)
  cfg = toy_task.config(folder, **{**values, **changes})
  strategy = distribution.make_strategy(
    "mirrored" if devices else "one_device", devices
  )
  with reporting.Reporter(str(folder), io.StringIO()) as report:
    loop.train([task], cfg, strategy, report)
  return losses(folder)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
  return run(tmp_path_factory.mktemp("padded"), LengthTask(False))


def assert_same(got, expected):
  assert [len(values) for values in got] == [6, 6, 2]
  for a, b in zip(got, expected):
    # Adam's first steps amplify the rounding of other orders of summation.
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
  "settings, changes",
  [
    ({}, {}),
    pytest.param(
      dict(recompute=True),
      dict(xla=True, gradient_accumulation_steps=2),
      marks=pytest.mark.heavy,
    ),
  ],
)
def test_cut_batches_give_the_losses_of_padded_ones(
  tmp_path, padded, settings, changes
):
  task = LengthTask(True, **settings)
  assert_same(run(tmp_path, task, **changes), padded)
  # The graph is made once, for all lengths.
  assert set(task.traced) == {None}


def job(folder):
  """Runs in a new process, with a batch of another length on each device."""
  run(folder, LengthTask(True), 2)


@pytest.mark.heavy
def test_devices_with_batches_of_different_lengths(tmp_path):
  program = (
    "from official_albert.training import train_step_test as t; "
    f"t.job({str(tmp_path / 'two')!r})"
  )
  subprocess.run([sys.executable, "-c", program], cwd=_ROOT, check=True)
  for cut in (False, True):  # Cut, with activations recomputed.
    one = run(tmp_path / str(cut), LengthTask(cut, cut))
    assert_same(losses(tmp_path / "two"), one)
