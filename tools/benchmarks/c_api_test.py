"""What goes through TensorFlow's C API comes back; signatures are read."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tools.benchmarks import c_api

# The library is opened in a process without Python's TensorFlow, which has
# copies of its own.
_ROUND_TRIP = """
import json, sys
import numpy as np
from tools.benchmarks import c_api
lib = c_api.Library()
said = {"version": lib.version}
for name, dtype, value in json.loads(sys.argv[1]):
  array = c_api.to_array(name, value, dtype)
  tensor = lib.make_tensor(array, dtype)
  back = lib.read_tensor(tensor)
  lib.free_tensor(tensor, array.size if dtype == 7 else 0)
  assert back.shape == array.shape and back.dtype == array.dtype
  said[name] = np.array_equal(back, array)
raw = np.array([[1.5, -2.0]], np.float32)
tensor = lib.make_tensor((raw.view(np.uint32) >> 16).astype(np.uint16), 14)
said["bfloat16"] = lib.read_tensor(tensor).tolist()
try:
  lib.load_operations("/nowhere/ops.so")
except c_api.GraphError as error:
  said["error"] = [error.code, str(error)]
said["python"] = "tensorflow" in sys.modules
print(json.dumps(said))
"""


def test_round_trip():
  cases = [
    ["int32", 3, [[1, -2, 3]]],
    ["float32", 1, [0.25, 7]],
    ["int64", 9, 5],
    ["bool", 10, [True, False]],
    ["empty", 3, []],
    ["string", 7, [["", "a" * 50], ["ä\u0000", "c"], ["d", "e"]]],
  ]
  done = subprocess.run(
    [sys.executable, "-c", _ROUND_TRIP, json.dumps(cases)],
    cwd=pathlib.Path(__file__).parents[2],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  said = json.loads(done.stdout)
  assert all(said[name] for name, *_ in cases)
  assert said["bfloat16"] == [[1.5, -2.0]]
  assert said["version"].startswith("2.15") and not said["python"]
  assert said["error"][0] == "NOT_FOUND" and "nowhere" in said["error"][1]


@pytest.mark.parametrize(
  "value, dtype, message",
  [
    ([1.5], 3, "a number does not fit"),
    ([2**31], 3, "a number does not fit"),
    (["5"], 3, "'5' is no number"),
    ([None], 1, "None is no number"),
    ([[1], [1, 2]], 3, "lists of one length"),
    ([["a"], ["b", "c"]], 7, "lists of one length"),
    ([3], 7, "3 is no text"),
    ([1], 21, "cannot be given here"),
  ],
)
def test_wrong_values(value, dtype, message):
  with pytest.raises(ValueError, match=message) as error:
    c_api.to_array("x", value, dtype)
  assert "'x'" in str(error.value)


def test_values():
  array = c_api.to_array("x", [[1, 0], [1, 1]], 3)
  assert array.dtype == np.int32 and array.tolist() == [[1, 0], [1, 1]]
  texts = c_api.to_array("x", ["ä", b"\xff\0", "\ud83d"], 7)
  assert texts.tolist() == [b"\xc3\xa4", b"\xff\0", b"?"]
  assert c_api.dtype_name(7) == "string"
  assert c_api.dtype_name(14) == "bfloat16"
  assert c_api.dtype_name(9) == "int64"


def test_one_sentence():
  sentence = c_api.one_sentence
  assert sentence("bad ids:\n\t [[{{node Assert}}]]\n\t [[x]]") == "bad ids:"
  several = (
    "2 root error(s) found.\n  (0) INVALID_ARGUMENT: bad: ids\n"
    "\t [[{{node a}}]]\n  (1) INVALID_ARGUMENT: bad: ids\n"
    "0 successful operations."
  )
  assert sentence(several) == "bad: ids"
  assert sentence("plain words") == "plain words"


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
  found = c_api.read_signatures(_meta_graph().SerializeToString())
  assert found == {
    "classify": c_api.Signature(
      {"text": ("classify_text:0", 7, (-1,))},
      {"logits": ("PartitionedCall:2", 1, (-1, 300))},
    ),
    "ids": c_api.Signature(
      {"input_ids": ("ids:0", 3, None)}, {"größe": ("n:1", 9, ())}
    ),
  }
  assert c_api.read_signatures(b"") == {}


def test_other_bytes_are_refused():
  data = _meta_graph().SerializeToString()
  for bad in (data[:-1], data + b"\x2a\x7f", b"\xff" * 20, b"\x0b\x00"):
    with pytest.raises(ValueError, match="no MetaGraphDef"):
      c_api.read_signatures(bad)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
