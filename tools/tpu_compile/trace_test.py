"""Traces and lowers steps of every task as on a TPU; needs no JAX."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from official_albert import distribution, training
from official_albert.testing import toy_models
from official_albert.tools.tpu_compile import compiler, rows, trace

_CONFIG = toy_models.config(
  97, 11, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
)
_STEP = rows.Step(_CONFIG.to_dict(), batch_size=3, max_seq_length=7)
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
_CHANGES = [
  {"task": "pretraining"},
  # Fine-tuning uses AdamW.
  *({"task": task, "optimizer": "adamw"} for task in [*rows.TASKS][1:]),
  {"gradient_accumulation_steps": 3, "random_depths": (2, 1)},
  {"recompute_activations": True},
]


@pytest.fixture(autouse=True)
def _precision():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


def total(x):
  replica = tf.distribute.get_replica_context()
  return replica.all_reduce("SUM", tf.reduce_sum(x))


@pytest.mark.parametrize(
  "step, before, message",
  [
    (
      lambda x: total(tf.py_function(lambda y: y + 1.0, [x], tf.float32)),
      tf.no_op,
      "EagerPyFunc",
    ),
    (
      lambda x: tf.cast(total(tf.cast(x, tf.float64)), tf.float32),
      tf.no_op,
      "is float64",
    ),
    (lambda x: total(tf.cast(x, tf.float16)), tf.no_op, "is float16"),
    (lambda x: tf.boolean_mask(x, x > 0.0), tf.no_op, "depends on the data"),
    # As the loop did when it measured the wait for data on TPUs.
    (total, tf.timestamp, r"\(Timestamp\) is read from the host"),
  ],
)
def test_what_tpus_lack_is_refused(step, before, message):
  strategy = trace.TracingStrategy()

  @tf.function(autograph=False)
  def run(x):
    with tf.control_dependencies([before()]):
      return strategy.run(step, args=(x,))

  run.get_concrete_function(tf.TensorSpec([5]))
  with pytest.raises(ValueError, match=message):
    strategy.clusters[0].lower()


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
      marks=[pytest.mark.heavy] * (changes.get("task") != "pretraining"),
    )
    for changes in _CHANGES
  ],
)
def test_training_is_one_program_with_every_sum(changes, tmp_path):
  depths = {key: changes[key] for key in changes if key == "random_depths"}
  changes = {key: changes[key] for key in changes if key not in depths}
  step = dataclasses.replace(_STEP, **changes)
  config = trace.train_config(step, str(tmp_path))
  config = dataclasses.replace(config, **depths)
  distribution.set_precision(step.precision)
  task = trace.make_task(step, str(tmp_path))
  weights = len(task.build_model().trainable_variables)
  features = len(task.train_dataset(3, 0).element_spec)
  cluster = trace.trace_run(task, config)
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


def trace_prediction(task, batch_size: int) -> trace.Cluster:
  strategy = trace.TracingStrategy()
  with strategy.scope():
    evaluation = training.Evaluation(task, task.build_model(), strategy)
  # There is no batch to run what was traced on.
  with pytest.raises(ValueError, match="no example to predict"):
    evaluation.predict(task.eval_dataset(batch_size).take(0))
  return strategy.clusters[0]


@pytest.mark.parametrize("task", rows.TASKS)
@pytest.mark.parametrize("mode", ["evaluation", "prediction"])
def test_evaluation_and_prediction_are_programs(task, mode, tmp_path):
  if (task, mode) == ("pretraining", "prediction"):
    return  # It predicts nothing.
  step = dataclasses.replace(_STEP, task=task)
  distribution.set_precision(step.precision)
  made, count = trace.make_task(step, str(tmp_path)), 3 * trace.CORES
  if mode == "prediction":
    cluster = trace_prediction(made, count)
  else:
    config = trace.train_config(step, str(tmp_path))
    config = dataclasses.replace(config, eval_batch_size=count)
    cluster = trace.trace_run(made, config, training.Trainer)
  module = lowered(cluster)
  # Losses are sums, and so are the gathered predictions of all replicas.
  assert sums(module) == len(cluster.results)
  assert not {"call", "infeed", "outfeed", "send"} & set(opcodes(module))
  assert not module.input_output_alias.entries
  counts = [x.shape[0] for x in cluster.results if x.shape.rank]
  assert counts == [count] * len(counts)
  assert bool(counts) == (task != "pretraining")
  fed = [x.op.inputs[0].op.type for x in cluster.arguments]
  assert fed == ["Const"] + ["Placeholder"] * (len(fed) - 1)


def test_norms_of_an_update_are_measured_on_variables_of_a_tpu(tmp_path):
  task = trace.make_task(_STEP, str(tmp_path))
  with trace.TracingStrategy().scope():
    model = task.build_model()
    optimizer = training.optimizer_of(trace.train_config(_STEP, "unused"))
    optimizer.prepare(model)
  assert set(optimizer.norms().values()) == {0.0}
  assert len(optimizer.norms()) > len(model.trainable_variables)
