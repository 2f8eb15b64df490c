"""Tests, without a GPU, of what an export's operations would do on one.

TensorFlow's packages for Linux know the kernels of GPUs, and which of their
inputs and outputs are in the memory of the host. TensorFlow takes such a kernel
where there is one, and inserts copies between both memories.
"""

from __future__ import annotations

import collections
import pathlib

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import kernels, op_def_registry

from official_albert.tools.cli import command_line

_MODELS = pathlib.Path(__file__).parents[1] / "official_albert/testdata"
# Their int32 inputs and outputs are on the host: memory_types.cc.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf")
_INT32 = tf.int32.as_datatype_enum
_NOT_COPIED = tf.string.as_datatype_enum, tf.resource.as_datatype_enum


def _kernel(node):
  """Returns the kernel for GPUs of a node, or None."""
  defaults = {x.name: x for x in op_def_registry.get(node.op).attr}
  found = {}
  for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
    fits = True
    for limit in kernel.constraint:
      name, allowed = limit.name, limit.allowed_values.list.type
      value = node.attr.get(name, defaults[name].default_value)
      fits &= {*(value.list.type or [value.type])} <= {*allowed}
    if fits:
      found[kernel.device_type] = kernel
  return found.get("GPU", found.get("DEFAULT"))


class _Graph:
  """The functions behind the signature `ids` of an export.

  Attributes:
    nodes: for each function, its nodes by name.
    lacking: the operations without a kernel for GPUs that is not of strings.
    copies: (to, function, from node, to node) where a tensor changes its
      memory; `to` is "host", which waits for the GPU, or "GPU".
  """

  def __init__(self, folder):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    self._library = {x.signature.name: x for x in graph.library.function}
    self.nodes, self.lacking, self.copies = {}, collections.Counter(), []
    for node in graph.node:
      if any(name.startswith("ids_input_ids") for name in node.input):
        self._follow(node)

  def _follow(self, node):
    for value in node.attr.values():
      for function in (value.func, *value.list.func):
        if function.name in self._library and function.name not in self.nodes:
          self._read(function.name)

  def _read(self, name):
    function = self._library[name]
    nodes = self.nodes[name] = {node.name: node for node in function.node_def}
    for node in nodes.values():
      self._follow(node)
      if not (_kernel(node) or tf.string.as_datatype_enum in _types(node)):
        self.lacking[node.op] += 1
      inputs = [x for x in node.input if not x.startswith("^")]
      for (port, dtype), source in zip(_ports(node, "input_arg"), inputs):
        made_on_host = dtype == _INT32  # An argument of the function.
        if ":" in source:
          source, output, _ = source.split(":")
          made_on_host = _on_host(nodes[source], output, dtype)
        wanted_on_host = _on_host(node, port, dtype)
        if made_on_host != wanted_on_host and dtype not in _NOT_COPIED:
          to = "host" if wanted_on_host else "GPU"
          self.copies.append((to, name, source, node.name))


def _types(node):
  return {*(x.type for x in node.attr.values())}


def _ports(node, kind):
  """Yields the name of the argument and the dtype of each input or output."""
  op, attr = op_def_registry.get(node.op), dict(node.attr)
  for default in op.attr:
    attr.setdefault(default.name, default.default_value)
  for arg in getattr(op, kind):
    count = attr[arg.number_attr].i if arg.number_attr else 1
    dtypes = [arg.type or (arg.type_attr and attr[arg.type_attr].type)] * count
    if arg.type_list_attr:
      dtypes = attr[arg.type_list_attr].list.type
    yield from ((arg.name, dtype) for dtype in dtypes)


def _on_host(node, port, dtype):
  kernel = _kernel(node)
  if kernel is None or node.device.endswith("CPU:0"):
    return True
  is_call = node.op in _CALLS and port != "cond"
  return dtype == _INT32 if is_call else port in kernel.host_memory_arg


@pytest.mark.parametrize(
  "precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.heavy)]
)
def test_the_gpu_computes_all_and_is_not_waited_for(tmp_path, precision):
  command_line.run_program(
    *("export_saved_model", "--task=text_classification", "--signatures=ids"),
    f"--model_dir={_MODELS}/hf_one_group/sequence_classification",
    *(f"--export_dir={tmp_path}/1", f"--precision={precision}"),
  )
  graph = _Graph(tmp_path / "1")
  probes = 3 if precision == "bfloat16" else 0
  assert graph.lacking == ({"Timestamp": probes} if probes else {})
  # A request waits for the best class, whose name is on the host, and for the
  # answers to whether products round: Greater.
  waits = [source for to, _, source, _ in graph.copies if to == "host"]
  waits = [name.split("/")[-1].split("_")[0] for name in waits]
  assert sorted(waits) == ["ArgMax", *probes * ["Greater"]]
  # Only the last block, of requested positions, copies something to the GPU.
  blocks = [name for name in graph.nodes if "block" in name]
  copying = {name for _, name, *_ in graph.copies if "block" in name}
  assert (
    len(blocks) == (8 if probes else 4) and len(copying) == len(blocks) // 2
  )
