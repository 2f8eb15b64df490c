"""Traces and lowers steps of every task as on a TPU; needs no JAX."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from official_albert import distribution, modeling, training
from official_albert.testing import toy_task
from official_albert.tools.tpu_compile import compiler, rows, trace

_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=24,
  num_hidden_layers=2,
  num_attention_heads=3,
  intermediate_size=40,
  hidden_dropout_prob=0.1,
  attention_probs_dropout_prob=0.1,
  max_position_embeddings=11,
).to_dict()
_STEP = rows.Step(_CONFIG, batch_size=3, max_seq_length=7)
# Sums over replicas besides the gradients: loss weights, summed losses, and
# total and weight of each metric.
_NUMBERS = {
  "pretraining": 2 + 2 + 2 * 2,
  "classification": 1 + 1 + 2,
  "regression": 1 + 1,
  "squad": 1 + 1 + 2 * 2,
  "squad2": 1 + 1 + 2 * 2,
  "multiple_choice": 1 + 1 + 2,
}
_QUICK = ("pretraining", "squad2")
# Fine-tuning uses AdamW.
_CHANGES = [
  {"task": task, "optimizer": "adamw"}
  if task != "pretraining"
  else {"task": task}
  for task in rows.TASKS
]
_CHANGES += [
  {"gradient_accumulation_steps": 3, "random_depths": (2, 1)},
  {"recompute_activations": True},
]


@pytest.fixture(autouse=True)
def _precision():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


def trace_dataset(task, make_function, batch_size: int) -> trace.Cluster:
  """Traces the evaluation or prediction of a batch that all replicas share."""
  strategy = trace.TracingStrategy()
  with strategy.scope():
    model = task.build_model()
  function = make_function(task, model, strategy)
  # There is no batch to run what was traced on.
  with contextlib.suppress(ValueError):
    function(task.eval_dataset(batch_size).take(0))
  return strategy.clusters[-1]


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
  evaluation = trace_dataset(
    task, training.make_evaluation, config.eval_batch_size
  )
  assert last_count() == count(evaluation.operations)
  monkeypatch.setattr(
    "official_albert.training.evaluation.make_evaluation",
    lambda *unused: lambda *unused: {"loss": 1.0},
  )
  update = trace.trace_training(task, config)
  assert last_count() == count(update.operations)


def lowered(cluster: trace.Cluster) -> hlo_pb2.HloModuleProto:
  return hlo_pb2.HloModuleProto.FromString(cluster.lower())


def instructions(module: hlo_pb2.HloModuleProto) -> list:
  return [i for c in module.computations for i in c.instructions]


def opcodes(module: hlo_pb2.HloModuleProto) -> collections.Counter:
  return collections.Counter(i.opcode for i in instructions(module))


def sums(module: hlo_pb2.HloModuleProto) -> int:
  """Returns the number of sums over replicas, the only custom calls."""
  calls = [i for i in instructions(module) if i.opcode == "custom-call"]
  assert {c.custom_call_target for c in calls} == {compiler.ALL_REDUCE}
  return len(calls)


@pytest.mark.parametrize(
  "changes",
  [
    pytest.param(
      changes,
      id=" ".join(map(str, changes.values())),
      marks=[pytest.mark.heavy] * (changes.get("task") not in _QUICK),
    )
    for changes in _CHANGES
  ],
)
def test_training_is_one_program_with_every_sum(changes, tmp_path):
  depths = {key: changes[key] for key in changes if key == "random_depths"}
  changes = {key: changes[key] for key in changes if key not in depths}
  step = dataclasses.replace(_STEP, **changes)
  config = dataclasses.replace(trace.train_config(step), **depths)
  distribution.set_precision(step.precision)
  task = trace.make_task(step, str(tmp_path))
  weights = len(task.build_model().trainable_variables)
  features = len(task.train_dataset(3, 0).element_spec)
  cluster = trace.trace_training(task, config)
  module = lowered(cluster)
  assert sums(module) == weights + _NUMBERS[step.task]
  found = opcodes(module)
  assert not {"infeed", "outfeed", "send"} & set(found)
  assert found["call"] == found["while"]  # The condition of a loop.
  # Only the drawn depth runs, and the parts of a batch follow each other.
  assert bool(found["conditional"]) == bool(depths)
  assert bool(found["while"]) == (step.gradient_accumulation_steps > 1)
  # Weights, both moments, norms and the count of steps stay where they are.
  assert len(module.input_output_alias.entries) == 4 * weights + 1
  # Other arguments are the batch, the replica's number, the seed, and three
  # settings of the optimizer that Keras has variables for; and the scale of
  # targets that are numbers.
  arguments = len(module.host_program_shape.parameters)
  others = features + 1 + 1 + 3 + (step.task == "regression")
  assert arguments == 4 * weights + 1 + others
  # The host reads the batches, and each replica gets one of its own.
  fed = [[y.op for y in x.op.inputs] for x in cluster.arguments]
  assert [op.type for op, _ in fed] == ["Const"] + [
    "IteratorGetNext"
  ] * features
  assert not [op.name for op, other in fed if op.name == other.name]
  # As on a TPU; nested compiled functions would be kernels for CPUs.
  functions = cluster.graph.as_graph_def().library.function
  compiled = [f for f in functions if f.attr["_XlaMustCompile"].b]
  assert functions and not [f.signature.name for f in compiled]


@pytest.mark.parametrize("task", rows.TASKS)
@pytest.mark.parametrize("mode", ["evaluation", "prediction"])
def test_evaluation_and_prediction_are_programs(task, mode, tmp_path):
  if (task, mode) == ("pretraining", "prediction"):
    return  # It predicts nothing.
  step = dataclasses.replace(_STEP, task=task)
  distribution.set_precision(step.precision)
  made = trace.make_task(step, str(tmp_path))
  make = getattr(training, f"make_{mode}")
  cluster = trace_dataset(made, make, _STEP.batch_size * trace.CORES)
  module = lowered(cluster)
  # Losses are sums, and so are the gathered predictions of all replicas.
  assert sums(module) == len(cluster.results)
  assert not {"call", "infeed", "outfeed", "send"} & set(opcodes(module))
  assert not module.input_output_alias.entries
  counts = [x.shape[0] for x in cluster.results if x.shape.rank]
  assert counts == [trace.CORES * _STEP.batch_size] * len(counts)
  assert bool(counts) == (task != "pretraining")
  fed = [x.op.inputs[0].op.type for x in cluster.arguments]
  assert fed == ["Const"] + ["Placeholder"] * (len(fed) - 1)


def test_norms_of_an_update_are_measured_on_variables_of_a_tpu(tmp_path):
  model, optimizer, _ = training.make_variables(
    trace.make_task(_STEP, str(tmp_path)),
    trace.train_config(_STEP),
    trace.TracingStrategy(),
  )
  assert set(optimizer.norms().values()) == {0.0}
  assert len(optimizer.norms()) > len(model.trainable_variables)
