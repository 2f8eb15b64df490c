"""SavedModels of constants that are smaller, to store and to load.

Signatures lose a function each, see `flat_signatures`; and constants take as
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

import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from official_albert import files
from official_albert.serving import flat_signatures

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
    count += flat_signatures.flatten(graph, kept)
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
