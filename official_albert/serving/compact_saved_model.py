"""SavedModels of constants that are smaller, to store and to load.

Signatures lose a function each, see `flatten`; and constants take as
many bytes as their numbers have. TensorFlow's optimizer, which freezing goes
through, writes 16-bit numbers as a list of integers: about 2.5 bytes a number
in the file, and 4 in the memory of whoever reads it, in every copy that is made
there of a function. As `tensor_content` they take 2, and every TensorFlow reads
that as well.

Nodes lose the names of custom gradients, which are not saved: TensorFlow would
warn of each at loading, and fail where a gradient is asked for. The gradient of
the operations themselves is the same.
"""

from __future__ import annotations

import os
from typing import Iterable, Mapping, Optional

import numpy as np
from tensorflow.core.framework import (
  function_pb2,
  graph_pb2,
  node_def_pb2,
  tensor_pb2,
  types_pb2,
)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from official_albert import files

_FILE = "saved_model.pb"
_CUSTOM_GRADIENT = "_gradient_op_type"
_SIXTEEN_BITS = (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF)


def compact(saved_model_dir: str) -> int:
  """Rewrites the graph of a SavedModel that no one reads yet.

  Args:
    saved_model_dir: its folder.

  Returns:
    How many functions, nodes and constants are written otherwise than before;
    what they compute is the same, bit for bit.

  Raises:
    OSError: the graph cannot be read or written.
  """
  path = os.path.join(saved_model_dir, _FILE)
  with open(path, "rb") as file:
    saved_model = saved_model_pb2.SavedModel.FromString(file.read())
  count = 0
  for meta_graph in saved_model.meta_graphs:
    graph = meta_graph.graph_def
    kept = meta_graph.object_graph_def.concrete_functions
    count += flatten(graph, kept)
    bodies = [function.node_def for function in graph.library.function]
    for nodes in (graph.node, *bodies):
      for node in nodes:
        if _CUSTOM_GRADIENT in node.attr:
          del node.attr[_CUSTOM_GRADIENT]
          count += 1
        if node.op == "Const":
          count += _compact_tensor(node.attr["value"].tensor)
  if count:
    files.write_bytes(path, saved_model.SerializeToString(deterministic=True))
    # It has a checksum of the graph.
    fingerprinting_utils.write_fingerprint(saved_model_dir)
  return count


def _compact_tensor(tensor: tensor_pb2.TensorProto) -> bool:
  """Whether the tensor was a list of 16-bit numbers, which it is no longer."""
  if tensor.dtype not in _SIXTEEN_BITS:
    return False
  size = np.prod([dim.size for dim in tensor.tensor_shape.dim], dtype=np.int64)
  # A shorter list goes on with its last number: that is compact already.
  if size < 2 or len(tensor.half_val) != size:
    return False
  tensor.tensor_content = np.array(tensor.half_val, np.uint16).tobytes()
  tensor.ClearField("half_val")
  return True


_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_NOTHING = ("Identity", "NoOp")
_NO_INLINE = "_noinline"


def flatten(graph: graph_pb2.GraphDef, kept: Iterable[str] = ()) -> int:
  """Inlines calls in functions that do nothing else, in place.

  `tf.saved_model.save` wraps each signature into one more function. Python's
  loader makes a graph of every function, with a copy of all functions that it
  calls, directly or not; for a model whose weights are constants that is a copy
  of the weights. So a function whose body is a single call gets the body of
  what it calls, which is then removed.

  Args:
    graph: of a SavedModel.
    kept: names of functions that are asked for from outside of the graph.

  Returns:
    How many functions were changed.
  """
  functions = {f.signature.name: f for f in graph.library.function}
  inlined = set()
  count = 0
  for function in graph.library.function:
    callee = _only_call(function, functions)
    if callee is not None:
      inlined.add(callee.signature.name)
      count += 1
  unused = inlined - set(kept) - _called(graph)
  rest = [f for f in graph.library.function if f.signature.name not in unused]
  del graph.library.function[:]
  graph.library.function.extend(rest)
  return count


def _only_call(
  function: function_pb2.FunctionDef,
  functions: Mapping[str, function_pb2.FunctionDef],
) -> Optional[function_pb2.FunctionDef]:
  """Inlines the call of a function that does nothing else; returns whose."""
  nodes = {node.name: node for node in function.node_def}
  calls = [node for node in nodes.values() if node.op in _CALLS]
  if len(calls) != 1 or any(
    node.op not in _NOTHING for node in nodes.values() if node is not calls[0]
  ):
    return None
  callee = functions.get(calls[0].attr["f"].func.name)
  given = list(calls[0].input)
  arguments = {argument.name for argument in function.signature.input_arg}
  # To ask a map of messages for a key would put it there.
  if callee is None or _NO_INLINE in callee.attr:
    return None
  names = [argument.name for argument in callee.signature.input_arg]
  # Anything less simple stays as it is.
  if (
    len(names) != len(given)
    or not set(given) <= arguments
    or arguments & {node.name for node in callee.node_def}
  ):
    return None
  renamed = dict(zip(names, given))
  outputs = [
    renamed.get(callee.ret[output.name], callee.ret[output.name])
    for output in callee.signature.output_arg
  ]
  for name, value in list(function.ret.items()):
    while value.split(":")[0] != calls[0].name and value not in arguments:
      value = nodes[value.split(":")[0]].input[0]
    if value not in arguments:
      value = outputs[int(value.split(":")[-1])]
    function.ret[name] = value
  del function.node_def[:]
  for node in callee.node_def:
    _rename_inputs(function.node_def.add(), node, renamed)
  function.control_ret.clear()
  function.control_ret.update(callee.control_ret)
  del function.signature.control_output[:]
  function.signature.control_output.extend(callee.signature.control_output)
  return callee


def _rename_inputs(
  target: node_def_pb2.NodeDef,
  node: node_def_pb2.NodeDef,
  renamed: Mapping[str, str],
) -> None:
  """Makes `target` the node, with other names for the function's arguments."""
  target.CopyFrom(node)
  for place, name in enumerate(node.input):
    mark = "^" if name.startswith("^") else ""
    # Outputs of nodes have a colon, arguments none.
    plain = name[len(mark) :]
    target.input[place] = mark + renamed.get(plain, plain)


def _called(graph: graph_pb2.GraphDef) -> set[str]:
  """The names of all functions that are called, or are others' gradients."""
  names = set()
  bodies = [function.node_def for function in graph.library.function]
  for nodes in (graph.node, *bodies):
    for node in nodes:
      names.add(node.op)
      for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
  for gradient in graph.library.gradient:
    names |= {gradient.function_name, gradient.gradient_func}
  names.update(g.gradient_func for g in graph.library.registered_gradients)
  return names
