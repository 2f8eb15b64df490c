"""Traces training steps on records of zeros for a TPU, without a TPU.

TensorFlow's own `TPUStrategy` traces the project's own tasks and `Trainer`.
Only the description of the TPU is made up. Nothing is executed.

A traced function has two parts. The cluster is what `Strategy.run` marks for
the TPU's compiler: the program of one replica. The rest runs on the host.
"""

from __future__ import annotations

import io
import os
import pathlib
import re
import tempfile
import types
from typing import Any, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.distribute import distribute_lib, tpu_strategy
from tensorflow.python.tpu import tpu_system_metadata

from official_albert import distribution, tfrecords, training
from official_albert.config import AlbertConfig
from official_albert.tasks import common, registry
from official_albert.tasks.pretraining import data
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.tpu_compile import rows
from official_albert.tools.tpu_compile.compiler import ALL_REDUCE

# The number of cores of the TPU: the fewest with sums over replicas.
CORES = 2
# What marks the operations of a cluster.
_MARK = "_tpu_replicate"
# Operations that only TPUs have.
_ALL_REDUCE, _METADATA = "CrossReplicaSum", "TPUReplicateMetadata"
# XLA's types that the TPU's compiler refuses or has no operations for.
_REFUSED = {xla_data_pb2.F64: "float64", xla_data_pb2.F16: "float16"}


class Cluster:
  """The program of one replica: `operations` in `graph`.

  Operations of functions that it calls are not among them. `arguments` and the
  handles `variables` are the tensors outside that it reads, the replica's
  number <int32>[] first; `results` are the tensors that it returns.
  """

  def __init__(self, graph: tf.Graph, added: list[tf.Operation]):
    """Collects the operations among those that `Strategy.run` added."""
    self.graph = graph
    self.operations = [op for op in added if _MARK in op.node_def.attr]
    inside = set(self.operations)
    outer = {
      x.ref(): x
      for op in self.operations
      for x in op.inputs
      if x.op not in inside
    }.values()
    self.arguments = [x for x in outer if x.dtype != tf.resource]
    self.variables = [x for x in outer if x.dtype == tf.resource]
    self.results = [
      op.inputs[0] for op in added if op.type == "TPUReplicatedOutput"
    ]

  def lower(self) -> bytes:
    """Returns the cluster as a serialized HloModuleProto.

    Raises ValueError if a TPU could not run it: it must have operations of XLA
    with dtypes of TPUs and static shapes, and read nothing of the host but the
    arguments of `Strategy.run`.
    """
    for x in (*self.arguments, *self.variables):
      if x.op.type != "TPUReplicatedInput":
        raise ValueError(f"{x.name} ({x.op.type}) is read from the host.")
    function = tf.function(self.rebuild, jit_compile=True, autograph=False)
    arguments = (tf.TensorSpec(x.shape, x.dtype) for x in self.arguments)
    try:
      make_ir = function.experimental_get_compiler_ir(*arguments)
      lowered = make_ir(stage="hlo_serialized")
    except (tf.errors.OpError, TypeError, ValueError) as error:
      # The rest of the message is a stack trace, with escaped line breaks.
      reason = re.split(r"\n|\\n|\{\{", str(error).strip())[0].strip()
      raise ValueError(
        f"the step cannot be compiled as one program: {reason}"
      ) from error
    for computation in hlo_pb2.HloModuleProto.FromString(lowered).computations:
      for x in computation.instructions:
        name = x.metadata.op_name or x.name
        if x.shape.element_type in _REFUSED:
          kind = _REFUSED[x.shape.element_type]
          raise ValueError(f"{name} is {kind}, which TPUs lack.")
        if any(x.shape.is_dynamic_dimension):
          raise ValueError(f"{name} has a shape that depends on the data.")
    return lowered

  def rebuild(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
    """Adds a copy of the cluster to the current function; returns its results.

    Only the sums over replicas differ: they become custom calls named
    `ALL_REDUCE`, because XLA has no such sums on CPUs. The variables are those
    of the first replica.
    """
    shapes = {
      op.name: op.outputs[0].shape.as_proto() if op.outputs else None
      for op in self.operations
      if op.type != _METADATA
    }
    whole = self.graph.as_graph_def()
    copied = tf.compat.v1.GraphDef(
      versions=whole.versions, library=whole.library
    )
    for node in whole.node:
      if node.name not in shapes:
        continue
      # The control inputs from outside begin the cluster.
      inputs = [x for x in node.input if x[0] != "^" or x[1:] in shapes]
      if node.op == _ALL_REDUCE:
        dtype, shape = node.attr["T"].type, shapes[node.name]
        node.op = "XlaCustomCallV2"
        node.attr.clear()
        node.attr["call_target_name"].s = ALL_REDUCE.encode()
        node.attr["backend_config"].s = b""
        node.attr["has_side_effect"].b = False
        node.attr["operand_dtypes"].list.type.append(dtype)
        node.attr["result_dtypes"].list.type.append(dtype)
        node.attr["result_shapes"].list.shape.append(shape)
        del inputs[1]  # The groups of replicas.
      del node.input[:]
      node.input.extend(inputs)
      node.device = ""
      for name in (_MARK, "_class"):
        node.attr.pop(name, None)
      copied.node.append(node)
    current = tf.compat.v1.get_default_graph()
    values = dict(zip((x.name for x in self.arguments), arguments, strict=True))
    for x in self.variables:
      values[x.name] = current.capture(_outermost(x.op.inputs[0]))
    return tf.graph_util.import_graph_def(
      copied, values, [x.name for x in self.results], name=""
    )


def _outermost(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the value of a captured tensor outside of all functions."""
  while not hasattr(tensor, "numpy"):
    tensor = next(x for x, inner in tensor.graph.captures if inner is tensor)
  return tensor


def _resolver() -> Any:
  """Describes one host with `CORES` cores to `TPUStrategy`."""
  job = "/job:localhost/replica:0/task:0"
  kinds = [*(("TPU", core) for core in range(CORES)), ("CPU", 0)]
  metadata = tpu_system_metadata.TPUSystemMetadata(
    num_cores=CORES,
    num_hosts=1,
    num_of_cores_per_host=CORES,
    topology=None,
    devices=[
      tf.config.LogicalDevice(f"{job}/device:{kind}:{i}", kind)
      for kind, i in kinds
    ],
  )
  return types.SimpleNamespace(
    tpu_hardware_feature=None,
    cluster_spec=lambda: None,
    get_tpu_system_metadata=lambda: metadata,
  )


class TracingStrategy(tf.distribute.TPUStrategy):
  """A TPUStrategy without a TPU, with the `clusters` that it has traced."""

  # On a TPU it is True: one handle stands for the variables of all replicas.
  # XLA on a CPU needs a handle of one variable; see `Cluster.rebuild`.
  _enable_packed_variable_in_eager_mode = False

  def __init__(self):
    # Variables of devices that do not exist are created on the CPU.
    tf.config.set_soft_device_placement(True)
    extended = tpu_strategy.TPUExtended(self, _resolver())
    # Skips TPUStrategy's constructor, which would start the TPU.
    distribute_lib.Strategy.__init__(self, extended)
    self._logical_device_stack = [0]
    self.clusters: list[Cluster] = []

  def run(self, fn, args=(), kwargs=None, options=None):
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    results = super().run(fn, args, kwargs, options)
    added = graph.get_operations()[before:]
    self.clusters.append(Cluster(graph, added))
    return results


class _Trainer(training.Trainer):
  """Trains without an evaluation before the first update."""

  def _evaluate(self, phase: int) -> None:
    del phase


def trace_run(
  task, config: training.TrainConfig, trainer: type = _Trainer
) -> Cluster:
  """Returns the first program of a run, by default the update in its loop."""
  strategy = TracingStrategy()
  with training.Reporter(config.model_dir, io.StringIO()) as report:
    try:
      trainer([task], config, strategy, report).run()
    except tf.errors.OpError:  # This machine cannot execute what was traced.
      if not strategy.clusters:
        raise
  return strategy.clusters[0]


def _write_records(
  step: rows.Step, folder: str, features: Sequence[tfrecords.Feature]
) -> None:
  """Writes a training and a held-out record of zeros to an empty folder."""
  splits = {}
  for split in ("train", "heldout" if step.task == "pretraining" else "dev"):
    path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
    zeros = {x.name: np.zeros([1, *x.shape], x.dtype) for x in features}
    records = tfrecords.encode_examples(features, zeros)
    splits[split] = tfrecords.Split((tfrecords.write_shard(path, records),), {})
  tokenizer = tfrecords.TokenizerInfo("", step.config["vocab_size"], True)
  pathlib.Path(folder, tokenizer.file).touch()
  length = step.max_seq_length
  manifest = tfrecords.Manifest(
    *(step.task, length, data.num_to_predict(length), tuple(features)),
    *(tokenizer, {}, 0, splits),
  )
  tfrecords.write_manifest(folder, manifest)


def make_task(step: rows.Step, folder: str):
  """Returns the task of the step, on records of zeros in an empty folder."""
  config, length = AlbertConfig.from_dict(step.config), step.max_seq_length
  more: Any = {"recompute_activations": step.recompute_activations}
  if step.task == "pretraining":
    predictions = data.num_to_predict(length)
    features = tfrecords.pretraining_schema(length, predictions)
    _write_records(step, folder, features)
    return task_lib.PretrainingTask(config, folder, **more)
  # TPUs need batches of one length.
  options = common.TaskOptions(
    max_seq_length=length,
    length_bucketing=False,
    recipe={"albert_dropout": config.hidden_dropout_prob},
    **more,
  )
  task = registry.make_task(rows.TASKS[step.task], options)
  _write_records(step, folder, task.schema())
  return task.on_records({"train": folder, "dev": folder}, config)


def train_config(step: rows.Step, folder: str) -> training.TrainConfig:
  """Returns the settings of a training on `CORES` replicas."""
  return training.TrainConfig(
    model_dir=os.path.join(folder, "run"),
    learning_rate=0.001,
    train_batch_size=step.batch_size * CORES,
    optimizer=step.optimizer,
    gradient_accumulation_steps=step.gradient_accumulation_steps,
  )


def trace_step(step: rows.Step) -> Cluster:
  """Returns the program of one replica."""
  distribution.set_precision(step.precision)
  with tempfile.TemporaryDirectory(prefix="tpu_compile") as folder:
    return trace_run(make_task(step, folder), train_config(step, folder))
