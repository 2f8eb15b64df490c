"""Tests of what a TPU's program may contain, and of the whole training loop."""

from __future__ import annotations

import collections
import io

import numpy as np
import pytest
import tensorflow as tf

from official_albert import training
from official_albert.testing import toy_task
from official_albert.tools.tpu_compile import trace


def cluster_of(step) -> trace.Cluster:
  """Traces a step on five numbers."""
  strategy = trace.TracingStrategy()

  @tf.function(autograph=False)
  def run(x):
    return strategy.run(step, args=(x,))

  run.get_concrete_function(tf.TensorSpec([5]))
  (cluster,) = strategy.clusters
  return cluster


def total(x):
  replica = tf.distribute.get_replica_context()
  return replica.all_reduce("SUM", tf.reduce_sum(x))


def _prints_in_a_loop(x):
  def body(number, y):
    tf.print(number)
    return number + 1, y * 2.0

  return tf.while_loop(lambda n, _: n < 3, body, (tf.constant(0), x))[1]


def _reads_batches(x):
  batches = iter(tf.data.Dataset.from_tensors(np.ones(5, np.float32)))
  return total(x + next(batches))


@pytest.mark.parametrize(
  "step, message",
  [
    (_prints_in_a_loop, "StringFormat"),
    (
      lambda x: total(tf.py_function(lambda y: y + 1.0, [x], tf.float32)),
      "EagerPyFunc",
    ),
    (_reads_batches, "TensorDataset"),
    (
      lambda x: tf.cast(total(tf.cast(x, tf.float64)), tf.float32),
      "is float64",
    ),
    (lambda x: total(tf.cast(x, tf.float16)), "is float16"),
    (lambda x: tf.boolean_mask(x, x > 0.0), "depends on the data"),
  ],
)
def test_what_tpus_lack_is_refused(step, message):
  with pytest.raises(ValueError, match=message):
    cluster_of(step).lower()


def test_a_step_that_waits_for_the_host_is_refused():
  """As the loop did when it measured the wait for data on TPUs."""
  strategy = trace.TracingStrategy()

  @tf.function(autograph=False)
  def run(x):
    with tf.control_dependencies([tf.timestamp()]):
      return strategy.run(total, args=(x,))

  run.get_concrete_function(tf.TensorSpec([5]))
  with pytest.raises(ValueError, match=r"\(Timestamp\) is read from the host"):
    strategy.clusters[0].lower()


def test_a_rebuilt_cluster_differs_in_the_sums_only():
  task = toy_task.PredictingToyTask(dropout_rate=0.3)
  config = toy_task.config("", gradient_accumulation_steps=2)
  cluster = trace.trace_training(task, config)
  arguments = [tf.TensorSpec(x.shape, x.dtype) for x in cluster.arguments]
  rebuilt = tf.function(cluster.rebuild).get_concrete_function(*arguments).graph
  kept = [op for op in cluster.operations if op.type != "TPUReplicateMetadata"]
  assert len(kept) == len(cluster.operations) - 1
  names = {op.name for op in kept}

  def results(op):
    return [(x.dtype, x.shape) for x in op.outputs]

  def operands(op):
    return [x.name for x in op.inputs if x.op.name in names]

  sums = 0
  for op in kept:
    copy = rebuilt.get_operation_by_name(op.name)
    assert results(copy) == results(op)
    controls = {x.name for x in op.control_inputs} & names
    assert controls <= {x.name for x in copy.control_inputs}
    if op.type == "CrossReplicaSum":
      sums += 1
      assert copy.type == "XlaCustomCallV2"
      assert operands(copy) == operands(op)[:1]
    else:
      assert copy.type == op.type and operands(copy) == operands(op)
  assert sums == 4 + 2 + 2 + 2  # Gradients, weights, losses, a metric.
  functions, copies = (
    {x.signature.name: x for x in graph.as_graph_def().library.function}
    for graph in (cluster.graph, rebuilt)
  )
  assert len(functions) > 1
  assert copies == functions  # TensorFlow lists them in any order.


def count(operations) -> collections.Counter:
  """Counts operations by type, dtypes and shapes of their results.

  Those of all functions that they call are among them, but no arguments.
  """
  called, found = set(), list(operations)
  for op in found:  # Grows.
    for value in op.node_def.attr.values():
      for function in (value.func, *value.list.func):
        if function.name and function.name not in called:
          called.add(function.name)
          body = op.graph._get_function(function.name).graph
          found += body.get_operations()
  return collections.Counter(
    (op.type, *((x.dtype, str(x.shape)) for x in op.outputs))
    for op in found
    if op.type != "Placeholder"
  )


def test_a_run_evaluates_and_trains_with_what_is_traced(tmp_path, monkeypatch):
  """Up to the first call of a function, which this machine cannot execute."""
  config = toy_task.config(tmp_path, gradient_accumulation_steps=3)

  def last_count() -> collections.Counter:
    strategy, task = trace.TracingStrategy(), toy_task.PredictingToyTask()
    with (
      training.Reporter(config.model_dir, io.StringIO()) as report,
      pytest.raises(tf.errors.OpError),
    ):
      training.Trainer([task], config, strategy, report).run()
    return count(strategy.clusters[-1].operations)

  task = toy_task.PredictingToyTask()
  evaluation = trace.trace_dataset(
    task, training.make_evaluation, config.eval_batch_size
  )
  assert last_count() == count(evaluation.operations)
  monkeypatch.setattr(
    "official_albert.training.evaluation.make_evaluation",
    lambda *unused: lambda *unused: {"loss": 1.0},
  )
  update = trace.trace_training(task, config)
  assert last_count() == count(update.operations)
