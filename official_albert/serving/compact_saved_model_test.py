"""Rewritten SavedModels: smaller, and bit for bit what they were."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert.serving import compact_saved_model, frozen_encoder

_VALUES = np.random.default_rng(3).normal(size=[37, 53]).astype(np.float32)
# What a careless copy would change: signs of zeros, and what is no number.
_VALUES[0, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40]


def _save(folder: str, dtype: tf.DType) -> None:
  def function(features):
    table = tf.constant(_VALUES, dtype)
    same = tf.constant(0.25, dtype, [5, 53])
    return {"rows": tf.gather(tf.concat([table, same], 0), features["row"])}

  spec = tf.TensorSpec([None], tf.int32, "row")
  run = frozen_encoder.freeze(function, [spec])
  signature = tf.function(lambda row: run({"row": row}), input_signature=[spec])
  tf.saved_model.save(tf.Module(), folder, {"look": signature})


def _bits(folder: str) -> np.ndarray:
  look = tf.saved_model.load(folder).signatures["look"]
  return look(row=tf.range(42))["rows"].numpy().view(np.uint16)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_two_bytes_a_number(tmp_path, dtype):
  folder = str(tmp_path)
  _save(folder, dtype)
  before = _bits(folder)
  path = os.path.join(folder, "saved_model.pb")
  size = os.path.getsize(path)
  # A signature and a constant.
  assert compact_saved_model.compact(folder) == 2
  # About half a byte less for each number.
  assert 0.4 * _VALUES.size < size - os.path.getsize(path) < _VALUES.size
  np.testing.assert_array_equal(_bits(folder), before)
  expected = tf.cast(_VALUES, dtype).numpy().view(np.uint16)
  np.testing.assert_array_equal(before[:37], expected)
  graph = (
    saved_model_pb2.SavedModel.FromString(
      (tmp_path / "saved_model.pb").read_bytes()
    )
    .meta_graphs[0]
    .graph_def
  )
  constants = [
    node.attr["value"].tensor
    for function in graph.library.function
    for node in function.node_def
    if node.op == "Const"
  ]
  assert max(len(c.half_val) for c in constants) < 53 * 5
  assert 2 * _VALUES.size in [len(c.tensor_content) for c in constants]
  # The fingerprint is that of the new file.
  fingerprint = tf.saved_model.experimental.read_fingerprint(folder)
  again = str(tmp_path / "fingerprint.pb")
  kept = fingerprint.saved_model_checksum
  os.remove(again)
  compact_saved_model.fingerprinting_utils.write_fingerprint(folder)
  now = tf.saved_model.experimental.read_fingerprint(folder)
  assert now.saved_model_checksum == kept
  assert sorted(os.listdir(folder)) == sorted(
    ["assets", "fingerprint.pb", "saved_model.pb", "variables"]
  )


def test_wider_numbers_stay_as_they_are(tmp_path):
  _save(str(tmp_path), tf.float32)
  assert compact_saved_model.compact(str(tmp_path)) == 1
  before = (tmp_path / "saved_model.pb").read_bytes()
  assert compact_saved_model.compact(str(tmp_path)) == 0
  assert (tmp_path / "saved_model.pb").read_bytes() == before
  with pytest.raises(FileNotFoundError):
    compact_saved_model.compact(str(tmp_path / "none"))


_CLIENT = """
import sys
import tensorflow as tf
cube = tf.saved_model.load(sys.argv[1]).signatures["cube"]
x = tf.constant([2.0, -3.0])
with tf.GradientTape() as tape:
  tape.watch(x)
  y = cube(x=x)["y"]
print(y.numpy().tolist(), tape.gradient(y, x).numpy().tolist())
"""


def test_a_function_with_a_gradient_of_its_own_loads_silently(tmp_path):
  @tf.custom_gradient
  def cube(x):
    return x**3, lambda upstream: upstream * 3 * x**2

  spec = tf.TensorSpec([None], tf.float32, "x")
  function = tf.function(lambda x: {"y": cube(x)}, input_signature=[spec])
  tf.saved_model.save(
    tf.Module(),
    str(tmp_path),
    {"cube": function},
    tf.saved_model.SaveOptions(experimental_custom_gradients=False),
  )
  assert compact_saved_model.compact(str(tmp_path)) >= 1
  done = subprocess.run(
    [sys.executable, "-I", "-c", _CLIENT, str(tmp_path)],
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
  )
  assert (done.stdout, done.stderr) == ("[8.0, -27.0] [12.0, 27.0]\n", "")


_WEIGHTS = np.arange(15, dtype=np.float32).reshape(3, 5)
_X = tf.TensorSpec([None, 3], tf.float32, "x")


def _module() -> tf.Module:
  """Signatures that share a function, with a table and a check before it."""
  module = tf.Module()
  initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], [2.0, 3.0])
  module.table = tf.lookup.StaticHashTable(initializer, -1.0)

  @tf.function(
    input_signature=[_X], experimental_attributes={"_noinline": True}
  )
  def shared(x):
    return tf.matmul(x, tf.constant(_WEIGHTS))

  @tf.function(input_signature=[_X, tf.TensorSpec([None], tf.string, "word")])
  def product(x, word):
    check = tf.debugging.Assert(tf.reduce_all(x < 9), ["x is too large."])
    with tf.control_dependencies([check]):
      y = shared(x)
    # Some outputs are inputs.
    more = {f"more_{number}": y + number for number in range(20)}
    y *= module.table.lookup(word)[:, None]
    return {**more, "y": y, "a": word, "x": x}

  @tf.function(input_signature=[_X])
  def alone(x):
    return {"y": shared(x)}

  module.signatures_ = {"product": product, "default": product, "alone": alone}
  return module


def _save_module(folder) -> saved_model_pb2.SavedModel:
  module = _module()
  root = tf.Module()
  root.table = module.table
  tf.saved_model.save(root, str(folder), module.signatures_)
  return saved_model_pb2.SavedModel.FromString(
    (folder / "saved_model.pb").read_bytes()
  )


def _said(folder):
  loaded = tf.saved_model.load(str(folder))
  x, word = tf.constant([[1.0, 2.5, 3.0], [0.5, 4.0, 7.0]]), ["b", "z"]
  said = []
  for name in ("product", "default"):
    function = loaded.signatures[name]
    said.append(function(x=x, word=tf.constant(word)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="x is too large"):
      function(x=x + 9, word=tf.constant(word))
  return [*said, loaded.signatures["alone"](x=x)]


def test_the_same_answers_with_fewer_functions(tmp_path):
  saved = _save_module(tmp_path)
  before = _said(tmp_path)
  np.testing.assert_array_equal(before[0]["a"].numpy(), [b"b", b"z"])
  np.testing.assert_allclose(before[0]["y"][0, 0], 3 * 42.5)
  (meta_graph,) = saved.meta_graphs
  library = meta_graph.graph_def.library
  count = len(library.function)
  kept = list(meta_graph.object_graph_def.concrete_functions)
  assert compact_saved_model.flatten(meta_graph.graph_def, kept) == 3
  # Of `product`, which two call, and of `alone`.
  assert len(library.function) == count - 2
  wrappers = [f for f in library.function if "wrapper" in f.signature.name]
  assert len(wrappers) == 3
  for function in wrappers:
    (call,) = (n for n in function.node_def if "Call" in n.op)
    assert call.attr["f"].func.name.startswith("__inference_shared")
  (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
  for old, new in zip(before, _said(tmp_path)):
    assert old.keys() == new.keys()
    for name, value in old.items():
      np.testing.assert_array_equal(new[name], value)
  # Nothing is left to be done: a call of `shared` is not to be inlined.
  assert compact_saved_model.flatten(meta_graph.graph_def, kept) == 0


def test_functions_that_others_ask_for_stay(tmp_path):
  (meta_graph,) = _save_module(tmp_path).meta_graphs
  names = {f.signature.name for f in meta_graph.graph_def.library.function}
  compact_saved_model.flatten(meta_graph.graph_def, names)
  assert names == {
    f.signature.name for f in meta_graph.graph_def.library.function
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
