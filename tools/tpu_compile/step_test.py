"""Traces and lowers every task as on a TPU; needs no JAX."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from official_albert import modeling, training
from official_albert.tools.tpu_compile import compiler, rows, trace
from official_albert.tools.tpu_compile import step as step_lib

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
_TRAINING = {
  "pretraining": {},
  # Fine-tuning uses AdamW.
  **{
    task: {"task": task, "optimizer": "adamw"}
    for task in rows.TASKS
    if task != "pretraining"
  },
  "micro-batches of random depths": {
    "gradient_accumulation_steps": 3,
    "random_depths": (2, 1),
  },
  "recomputation": {"recompute_activations": True},
}


@pytest.fixture(autouse=True)
def _precision():
  yield
  tf.keras.mixed_precision.set_global_policy("float32")


@functools.cache
def _traced(text: str) -> tuple[trace.Cluster, hlo_pb2.HloModuleProto]:
  cluster = step_lib.trace_step(rows.Step(**json.loads(text)))
  return cluster, hlo_pb2.HloModuleProto.FromString(cluster.lower())


def traced(**changes) -> tuple[trace.Cluster, hlo_pb2.HloModuleProto]:
  """Traces and lowers `_STEP` with changes, which takes seconds, once."""
  return _traced(dataclasses.replace(_STEP, **changes).to_json())


def lowered(**changes) -> hlo_pb2.HloModuleProto:
  return traced(**changes)[1]


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
  "name",
  [
    name
    if name in ("pretraining", "squad2")
    else pytest.param(name, marks=pytest.mark.heavy)
    for name in _TRAINING
  ],
)
def test_training_is_one_program_with_every_sum(name, tmp_path):
  changes = _TRAINING[name]
  step = dataclasses.replace(_STEP, **changes)
  task = step_lib.make_task(step, str(tmp_path))
  weights = len(task.build_model().trainable_variables)
  features = len(task.train_dataset(3, 0).element_spec)
  cluster, module = traced(**changes)
  assert sums(module) == weights + _NUMBERS[step.task]
  found = opcodes(module)
  assert not {"infeed", "outfeed", "send"} & set(found)
  assert found["call"] == found["while"]  # The condition of a loop.
  # Only the drawn depth runs, and the parts of a batch follow each other.
  assert bool(found["conditional"]) == bool(step.random_depths)
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


@pytest.mark.parametrize(
  "task, mode",
  [
    (task, mode)
    for task in rows.TASKS
    for mode in ("evaluation", "prediction")
    if (task, mode) != ("pretraining", "prediction")
  ],
)
def test_evaluation_and_prediction_are_programs(task, mode):
  cluster, module = traced(task=task, mode=mode)
  # Losses are sums, and so are the gathered predictions of all replicas.
  assert sums(module) == len(cluster.results)
  assert not {"call", "infeed", "outfeed", "send"} & set(opcodes(module))
  assert not module.input_output_alias.entries
  rows = [x.shape[0] for x in cluster.results if x.shape.rank]
  assert rows == [trace.CORES * _STEP.batch_size] * len(rows)
  assert bool(rows) == (task != "pretraining")
  fed = [x.op.inputs[0].op.type for x in cluster.arguments]
  assert fed == ["Const"] + ["Placeholder"] * (len(fed) - 1)


def test_no_nested_function_is_compiled_separately():
  """As on a TPU; nested compiled functions would be kernels for CPUs."""
  cluster, _ = traced()
  functions = cluster.graph.as_graph_def().library.function
  compiled = [f for f in functions if f.attr["_XlaMustCompile"].b]
  assert functions and not [f.signature.name for f in compiled]


def test_norms_of_an_update_are_measured_on_variables_of_a_tpu(tmp_path):
  model, optimizer, _ = training.make_variables(
    step_lib.make_task(_STEP, str(tmp_path)),
    step_lib.train_config(_STEP),
    trace.TracingStrategy(),
  )
  assert set(optimizer.norms().values()) == {0.0}
  assert len(optimizer.norms()) > len(model.trainable_variables)


@pytest.mark.heavy
def test_precision_and_optimizer():
  def types(**changes):
    module = lowered(task="classification", **changes)
    dots = [i for i in instructions(module) if i.opcode == "dot"]
    return collections.Counter(i.shape.element_type for i in dots)

  bfloat16, float32 = 16, 11  # xla_data.proto, PrimitiveType.
  mixed = types(recompute_activations=False)
  assert mixed[bfloat16] > 3 * mixed[float32]
  assert set(types(precision="float32", optimizer="adamw")) == {float32}
