"""One update: numbers computed by hand, random depths, shortened batches."""

from __future__ import annotations

import collections
import copy
import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling, run_logs
from official_albert.testing import toy_models, toy_task
from official_albert.training import objective, optimization, train_step


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


@tf.function
def _loss_and_gradients(model, ids, mask, labels):
  with tf.GradientTape() as tape:
    outputs = model({"input_ids": ids, "input_mask": mask}, training=True)
    loss = tf.reduce_sum(
      modeling.cross_entropy(outputs["logits"], labels, True)
    )
  return [loss, *tape.gradient(loss, model.trainable_variables)]


def test_batches_cut_to_their_longest_example_train_as_padded_ones():
  """As those of length buckets, which the graph takes of any length."""
  config = toy_models.config(
    *(19, 11), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
  )
  model = modeling.AlbertForSequenceClassification(config, 3, 0.0, True)
  rng = np.random.default_rng(0)
  ids = tf.constant(rng.integers(5, 19, [4, 11]), tf.int32)
  mask = tf.sequence_mask([7, 2, 5, 6], 11, tf.int32)
  labels = tf.constant([2, 0, 1, 1])
  padded = _loss_and_gradients(model, ids * mask, mask, labels)
  cut = _loss_and_gradients(
    model, ids[:, :7] * mask[:, :7], mask[:, :7], labels
  )
  for a, b in zip(padded, cut, strict=True):
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
