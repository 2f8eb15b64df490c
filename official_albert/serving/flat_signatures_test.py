"""Flat signatures say what they said, with a function less each."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert.serving import flat_signatures

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


def _save(folder) -> saved_model_pb2.SavedModel:
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
  saved = _save(tmp_path)
  before = _said(tmp_path)
  np.testing.assert_array_equal(before[0]["a"].numpy(), [b"b", b"z"])
  np.testing.assert_allclose(before[0]["y"][0, 0], 3 * 42.5)
  (meta_graph,) = saved.meta_graphs
  library = meta_graph.graph_def.library
  count = len(library.function)
  kept = list(meta_graph.object_graph_def.concrete_functions)
  assert flat_signatures.flatten(meta_graph.graph_def, kept) == 3
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
  assert flat_signatures.flatten(meta_graph.graph_def, kept) == 0


def test_functions_that_others_ask_for_stay(tmp_path):
  (meta_graph,) = _save(tmp_path).meta_graphs
  names = {f.signature.name for f in meta_graph.graph_def.library.function}
  flat_signatures.flatten(meta_graph.graph_def, names)
  assert names == {
    f.signature.name for f in meta_graph.graph_def.library.function
  }


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
