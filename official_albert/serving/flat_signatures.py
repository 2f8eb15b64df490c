"""Signatures of a SavedModel without the function that only calls another.

`tf.saved_model.save` wraps each signature into one more function. Python's
loader makes a graph of every function, and puts into it a copy of all functions
that it calls, directly or not; for a model whose weights are constants that is
a copy of the weights. So a function whose body is a single call gets the body
of what it calls, which nobody needs any longer then.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Optional

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_NOTHING = ("Identity", "NoOp")
_NO_INLINE = "_noinline"


def flatten(graph: graph_pb2.GraphDef, kept: Iterable[str] = ()) -> int:
  """Inlines calls in functions that do nothing else, in place.

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
