"""One update: numbers computed by hand, dropout masks, random depths."""

from __future__ import annotations

import collections
import copy
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling, run_logs
from official_albert.testing import toy_task
from official_albert.training import (
  evaluation,
  objective,
  optimization,
  train_step,
)


def make_step(task, model, **changes):
  cfg = toy_task.config("unused", **changes)
  optimizer = optimization.optimizer_of(cfg)
  step = train_step.make_train_step(task, model, optimizer, cfg)
  return tf.function(step, autograph=False)


class MaskTask(toy_task.ToyTask):
  """Its metrics are which of some numbers the dropout keeps."""

  masks = 24

  def forward(self, model, batch, training_, dropout_seed):
    totals, _ = super().forward(model, batch, training_, dropout_seed)
    kept = modeling.seeded_dropout(
      tf.ones([self.masks]), 0.5, training_, dropout_seed
    )
    # The update of the weights waits for what the gradient depends on. Without
    # it, a metric may be computed after the step's number has changed.
    totals["first"] *= tf.reduce_sum(kept)
    ones = tf.ones([])
    return totals, {
      f"kept_{i}": objective.Ratio(x / 2, ones)
      for i, x in enumerate(tf.unstack(kept))
    }


def kept_by(results):
  """Returns how many of the parts of an update kept each number."""
  return [float(results[f"kept_{i}"].total) for i in range(MaskTask.masks)]


class Replica:
  """The context of a replica that waits for no other one."""

  def __init__(self, number):
    self._context = tf.distribute.get_replica_context()
    self.replica_id_in_sync_group = number

  def __getattr__(self, name):
    return getattr(self._context, name)


def test_dropout_depends_on_seed_step_replica_and_micro_batch(monkeypatch):
  task = MaskTask()
  batch, model = next(iter(task.train_dataset(12, 0))), task.build_model()
  kept = []
  for replica, seed in ((0, 3), (1, 3), (0, 4), (0, 3)):
    step, context = make_step(task, model, seed=seed), Replica(replica)
    with monkeypatch.context() as patched:
      patched.setattr(tf.distribute, "get_replica_context", lambda x=context: x)
      kept += [kept_by(step(batch)) for _ in range(2)]
  assert {*kept[0]} == {0, 1} and kept[:2] == kept[-2:]
  assert all(a != b for a, b in itertools.combinations(kept[:-2], 2))
  # With one mask for all, each number would be kept 0 or 3 times.
  step = make_step(task, model, gradient_accumulation_steps=3)
  assert {1, 2} & {*kept_by(step(batch))}


def test_micro_batches_and_xla_change_only_rounding(tmp_path):
  class Task(toy_task.ToyTask):
    traced = 0

    def forward(self, model, batch, training_, dropout_seed):
      self.traced += training_
      return super().forward(model, batch, training_, dropout_seed)

  runs = {}
  for name, changes in {
    "one": {},
    "four": dict(gradient_accumulation_steps=4),
    "xla": dict(xla=True, gradient_accumulation_steps=3),
  }.items():
    task = Task()
    _, runs[name], _ = toy_task.run(
      task, toy_task.config(tmp_path / name, **changes)
    )
    assert task.traced == 1  # The graph has the model once.
  for name in ("four", "xla"):
    for a, b in zip(runs["one"], runs[name]):
      # Sums in another order; Adam's first steps amplify it.
      np.testing.assert_allclose(a, b, atol=1e-5)
    for value in ("loss", "share", "gradient_norm"):
      one, other = (toy_task.logged(tmp_path / n, value) for n in ("one", name))
      np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
  "settings, compiles",
  [
    ({}, (False, True)),
    ({"attention": "compiled"}, (True, True)),
    ({"compile_chains": False}, (False, False)),
  ],
)
def test_xla_compiles_what_the_settings_say(settings, compiles):
  found = {}

  class Task(toy_task.PredictingToyTask):
    def forward(self, model, batch, training, seed):
      totals, metrics = super().forward(model, batch, training, seed)
      self.check(training, totals["first"])
      return totals, metrics

    def predict(self, model, batch):
      self.check("predicts", batch["x"][0, 0])
      return super().predict(model, batch)

    def check(self, name, x):
      scores = tf.stack([x, 2 * x])
      modeling.cross_entropy(scores, tf.constant(0), compiled=True)
      graph = str(tf.compat.v1.get_default_graph().as_graph_def())
      attention = modeling.attention_is_one_program()
      found[name] = attention, "XlaMustCompile" in graph

  task, cfg = Task(), toy_task.config("", **settings)
  batch, model = next(iter(task.train_dataset(12, 0))), task.build_model()
  make_step(task, model, **settings).get_concrete_function(batch)
  # Its replicas have threads of their own.
  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  evaluate = evaluation.Evaluation(task, model, strategy, cfg)
  for function in (evaluate, evaluate.predict):
    function(task.eval_dataset(4))
  assert found == dict.fromkeys([True, False, "predicts"], compiles)


def test_a_loop_that_is_asked_to_stop_ends_after_one_update():
  def step(batch):
    return {"read": objective.Ratio(batch, tf.ones([]))}

  strategy = tf.distribute.OneDeviceStrategy("CPU:0")
  batches = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 4.0, 8.0])
  for stop, expected in ((False, 7.0), (True, 1.0)):
    flag = distribution.SharedFlag(strategy, tf.Variable(stop))
    loop = train_step.make_train_loop(step, strategy, flag)
    sums, done = loop(iter(batches), tf.constant(3))
    assert float(sums["read"].total) == expected
    assert int(done) == float(sums["read"].weight)


_FIRST_MOMENT = ".OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.mark.parametrize("clip_norm", [0.1, 100.0])
def test_one_step_by_hand(tmp_path, clip_norm):
  """The loss is a sum of quotients of sums, clipped after summation.

  A gradient that is shorter than the limit stays as it is, which only the
  moments show: the first step of Adam does not depend on its length.
  """
  task = toy_task.ToyTask()
  cfg = toy_task.config(
    tmp_path,
    num_train_steps=1,
    num_warmup_steps=0,
    clip_norm=clip_norm,
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
  assert 0.1 < norm < 100
  expected = []
  for g, v in zip(gradients, model.trainable_variables):
    g = g.numpy() * min(1, clip_norm / norm)
    u = 0.1 * g / (np.sqrt(0.001 * g * g) + 1e-6)
    expected.append(v.numpy() - 0.01 * u)
  _, weights, _ = toy_task.run(task, cfg)
  for a, b in zip(expected, weights):
    np.testing.assert_allclose(a, b, atol=1e-5)
  state = toy_task.saved(tmp_path)
  for g, (layer, part) in zip(
    gradients, itertools.product(("hidden", "out"), ("kernel", "bias"))
  ):
    moment = state[f"model/{layer}/{part}/{_FIRST_MOMENT}"]
    g = g * min(1, clip_norm / norm)
    np.testing.assert_allclose(moment, 0.1 * g, rtol=1e-4, atol=1e-7)
  (record,) = run_logs.read_metrics(str(tmp_path), "train")
  assert math.isclose(record["loss"], float(loss), rel_tol=1e-5)
  assert math.isclose(record["gradient_norm"], norm, rel_tol=1e-4)


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
