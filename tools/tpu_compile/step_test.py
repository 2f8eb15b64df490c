"""Tests of what a lowered step contains; needs no JAX."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.distribute import distribute_lib, tpu_strategy
from tensorflow.python.tpu import tpu_system_metadata

from official_albert import distribution, modeling, training
from tools.tpu_compile import compiler
from tools.tpu_compile import step as step_lib

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
_STEP = step_lib.Step(_CONFIG, batch_size=3, max_seq_length=7)
# Sums over replicas besides the gradients: loss weights, summed losses, and
# total and weight of each metric.
_NUMBERS = {
  "pretraining": 2 + 2 + 2 * 2,
  "classification": 1 + 1 + 2,
  "squad": 1 + 1 + 2 * 2,
  "squad2": 1 + 1 + 2 * 2,
  "multiple_choice": 1 + 1 + 2,
}


@pytest.fixture(autouse=True)
def _precision():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


@functools.cache
def _lowered(text: str) -> hlo_pb2.HloModuleProto:
  lowered = step_lib.lower(step_lib.Step(**json.loads(text)))
  return hlo_pb2.HloModuleProto.FromString(lowered)


def lowered(**changes) -> hlo_pb2.HloModuleProto:
  """Lowers `_STEP` with changes, which takes seconds, once."""
  return _lowered(dataclasses.replace(_STEP, **changes).to_json())


def instructions(module: hlo_pb2.HloModuleProto) -> list:
  return [i for c in module.computations for i in c.instructions]


def opcodes(module: hlo_pb2.HloModuleProto) -> collections.Counter:
  return collections.Counter(i.opcode for i in instructions(module))


@pytest.mark.parametrize("task", step_lib.TASKS)
def test_one_program_with_every_sum(task):
  step = dataclasses.replace(_STEP, task=task)
  weights = len(step_lib.make_task(step).build_model().trainable_variables)
  module = lowered(task=task)
  calls = [i for i in instructions(module) if i.opcode == "custom-call"]
  assert {c.custom_call_target for c in calls} == {compiler.ALL_REDUCE}
  assert len(calls) == weights + _NUMBERS[task]
  assert not {"call", "infeed", "outfeed", "send"} & set(opcodes(module))
  # Weights, both moments and the count of steps stay where they are.
  assert len(module.input_output_alias.entries) == 3 * weights + 1
  # Other arguments are the batch, the replica's number and three settings of
  # the optimizer that Keras has variables for.
  arguments = len(module.host_program_shape.parameters)
  assert arguments == 3 * weights + 1 + len(step_lib.batch_spec(step)) + 1 + 3


def test_no_nested_function_is_compiled_separately():
  """As on a TPU; nested compiled functions would be kernels for CPUs."""
  function = step_lib.make_step(_STEP)
  graph = function.get_concrete_function(
    tf.TensorSpec([], tf.int32), *step_lib.batch_spec(_STEP).values()
  ).graph
  functions = graph.as_graph_def().library.function
  compiled = [f for f in functions if f.attr["_XlaMustCompile"].b]
  assert not [f.signature.name for f in compiled]
  types = collections.Counter(op.type for op in graph.get_operations())
  types.update(node.op for f in functions for node in f.node_def)
  assert types["XlaCustomCallV2"] > 20 and types["BatchMatMulV2"] > 0
  assert not [t for t in types if "Mkl" in t]


_CORES = 2
_JOB = "/job:localhost/replica:0/task:0"
_HOST_OPERATIONS = {
  "Assert",
  "EagerPyFunc",
  "IteratorGetNext",
  "PrintV2",
  "PyFunc",
  "StringFormat",
  "Timestamp",
}


class _TwoCores:
  """A cluster resolver of one host with two TPU cores."""

  tpu_hardware_feature = None

  def cluster_spec(self):
    return None

  def get_tpu_system_metadata(self):
    kinds = [("TPU", core) for core in range(_CORES)] + [("CPU", 0)]
    devices = [
      tf.config.LogicalDevice(f"{_JOB}/device:{kind}:{i}", kind)
      for kind, i in kinds
    ]
    return tpu_system_metadata.TPUSystemMetadata(
      num_cores=_CORES,
      num_hosts=1,
      num_of_cores_per_host=_CORES,
      topology=None,
      devices=devices,
    )


def _tpu_strategy() -> tf.distribute.TPUStrategy:
  """Returns TensorFlow's own strategy, which can be traced but not run here."""
  # Without it, variables could not be created, as there are no such devices.
  tf.config.set_soft_device_placement(True)
  strategy = tf.distribute.TPUStrategy.__new__(tf.distribute.TPUStrategy)
  extended = tpu_strategy.TPUExtended(strategy, _TwoCores())
  # Skips TPUStrategy's constructor, which would start the TPU.
  distribute_lib.Strategy.__init__(strategy, extended)
  strategy._logical_device_stack = [0]
  strategy._enable_packed_variable_in_eager_mode = False
  return strategy


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_the_loop_keeps_the_host_out_of_the_replicated_step(
  tmp_path, micro_batches
):
  distribution.set_precision("mixed_bfloat16")
  strategy = _tpu_strategy()
  task = step_lib.make_task(_STEP)
  config = training.TrainConfig(
    model_dir=str(tmp_path),
    num_train_steps=10,
    num_warmup_steps=1,
    learning_rate=0.001,
    train_batch_size=_CORES * _STEP.batch_size,
    gradient_accumulation_steps=micro_batches,
  )
  with strategy.scope():
    model = task.build_model()
    optimizer = config.make_optimizer()
    optimizer._create_all_weights(model.trainable_variables)
  with tf.device(distribution.host_of(strategy)):
    stop = distribution.SharedFlag(strategy, tf.Variable(False))
  update = training.make_train_step(task, model, optimizer, config)
  loop = training.make_train_loop(update, strategy, stop)
  batch = {
    name: tf.zeros(spec.shape, spec.dtype)
    for name, spec in step_lib.batch_spec(_STEP).items()
  }
  iterator = distribution.iterate(
    strategy, lambda context: tf.data.Dataset.from_tensors(batch).repeat()
  )
  traced = loop.get_concrete_function(iterator, tf.constant(3))
  # The wait for data is not measured.
  assert traced.structured_outputs[2] is None
  library = traced.graph.as_graph_def().library.function
  (body,) = (
    function
    for function in library
    if any("_tpu_replicate" in node.attr for node in function.node_def)
  )
  inside = [node for node in body.node_def if "_tpu_replicate" in node.attr]
  assert len(inside) > 1000
  types = collections.Counter(node.op for node in inside)
  assert types["MatMul"] > 10
  assert not _HOST_OPERATIONS & set(types)
  called = {f.signature.name: f for f in library}
  nodes = list(inside)
  for node in nodes:  # Grows by the bodies of branches and loops.
    for attribute in node.attr.values():
      for function in (attribute.func, *attribute.list.func):
        if function.name in called:
          nodes += called.pop(function.name).node_def
  float64 = tf.float64.as_datatype_enum
  assert not [
    node.name
    for node in nodes
    if float64 in (node.attr["T"].type, node.attr["dtype"].type)
  ]
  assert not _HOST_OPERATIONS & {node.op for node in nodes}


def test_recomputation_computes_more_products():
  plain, again = (
    opcodes(lowered(task="classification", recompute_activations=value))
    for value in (False, True)
  )
  # Each of the two layers has four dense products and two of attention. The
  # second layer has fewer rows of queries than of keys and values. The last
  # product of a block is not needed again, which the compiler finds later.
  assert again["dot"] - plain["dot"] == (4 + 2) + (5 + 2)


def test_precision_and_optimizer():
  def types(**changes):
    module = lowered(task="classification", **changes)
    dots = [i for i in instructions(module) if i.opcode == "dot"]
    return collections.Counter(i.shape.element_type for i in dots)

  bfloat16, float32 = 16, 11  # xla_data.proto, PrimitiveType.
  mixed = types(recompute_activations=False)
  assert mixed[bfloat16] > 3 * mixed[float32]
  assert set(types(precision="float32", optimizer="adamw")) == {float32}


def test_host_operations_are_refused(monkeypatch):
  @tf.function(jit_compile=True)
  def prints(replica_id, *unused):
    return tf.strings.length(tf.strings.as_string(replica_id))

  monkeypatch.setattr(step_lib, "make_step", lambda step: prints)
  with pytest.raises(ValueError, match="compiled as one program: .*AsString"):
    step_lib.lower(_STEP)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
