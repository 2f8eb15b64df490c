"""Signatures read off the wire, beside what TensorFlow's own classes say."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tools.benchmarks import c_api_loader_signatures as signatures_lib


def _meta_graph():
  """Two signatures, beside all else that a MetaGraphDef may have."""
  meta_graph = meta_graph_pb2.MetaGraphDef()
  meta_graph.meta_info_def.tags.append("serve")
  node = meta_graph.graph_def.node.add(name="x", op="Const")
  node.attr["value"].f = 1.5  # A fixed-size field.
  classify = meta_graph.signature_def["classify"]
  text = classify.inputs["text"]
  text.name, text.dtype = "classify_text:0", types_pb2.DT_STRING
  text.tensor_shape.dim.add(size=-1)
  logits = classify.outputs["logits"]
  logits.name, logits.dtype = "PartitionedCall:2", types_pb2.DT_FLOAT
  logits.tensor_shape.dim.add(size=-1)
  logits.tensor_shape.dim.add(size=300)
  free = meta_graph.signature_def["ids"].inputs["input_ids"]
  free.name, free.dtype = "ids:0", types_pb2.DT_INT32
  free.tensor_shape.unknown_rank = True
  scalar = meta_graph.signature_def["ids"].outputs["größe"]
  scalar.name, scalar.dtype = "n:1", types_pb2.DT_INT64
  return meta_graph


def test_what_tensorflow_wrote():
  found = signatures_lib.read_signatures(_meta_graph().SerializeToString())
  assert found == {
    "classify": signatures_lib.Signature(
      {"text": ("classify_text:0", 7, (-1,))},
      {"logits": ("PartitionedCall:2", 1, (-1, 300))},
    ),
    "ids": signatures_lib.Signature(
      {"input_ids": ("ids:0", 3, None)}, {"größe": ("n:1", 9, ())}
    ),
  }
  assert signatures_lib.read_signatures(b"") == {}


def test_other_bytes_are_refused():
  data = _meta_graph().SerializeToString()
  for bad in (data[:-1], data + b"\x2a\x7f", b"\xff" * 20, b"\x0b\x00"):
    with pytest.raises(ValueError, match="no MetaGraphDef"):
      signatures_lib.read_signatures(bad)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
