"""Tests of cuDNN's attention without cuDNN: its text, and who gets it.

The calls are compared with what JAX writes, and with the messages that XLA
reads them into; `fused_ops_test` computes with a stand-in.
"""

from __future__ import annotations

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  json_format,
  message_factory,
)

from official_albert import modeling
from official_albert.modeling import attention_program, cudnn_attention

B, S, T, N, D = 2, 24, 40, 3, 16
_JAX = json.loads(
  (
    pathlib.Path(__file__).parents[1] / "testdata/cudnn_attention.json"
  ).read_text()
)
_HAS_CALL = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 20)
newer = pytest.mark.skipif(not _HAS_CALL, reason="of TensorFlow 2.20")


def zeros(*shape, dtype=tf.bfloat16):
  return tf.zeros(shape, dtype)


def passes(dtype=tf.bfloat16):
  """Calls both passes; returns their results."""
  q, dy, context = (zeros(B, S, N, D, dtype=dtype) for _ in range(3))
  k, v = (zeros(B, T, N, D, dtype=dtype) for _ in range(2))
  lengths, sums = tf.constant([T, 3]), zeros(B, N, S, dtype=tf.float32)
  return (
    cudnn_attention.forward(q, k, v, lengths),
    cudnn_attention.backward(q, k, v, lengths, context, sums, dy),
  )


@pytest.fixture(name="calls")
def fixture_calls(monkeypatch):
  """The arguments of XlaCallModule, which is not called."""
  calls = []

  def record(**arguments):
    calls.append(arguments)
    kinds = zip(arguments["Sout"], arguments["Tout"])
    return [tf.zeros(shape, dtype) for shape, dtype in kinds]

  monkeypatch.setattr(cudnn_attention.gen_xla_ops, "xla_call_module", record)
  return calls


def parsed(text):
  """Returns the call in a program, as the file of JAX's calls has it."""
  (call,) = re.findall(
    r"custom_call @(\S+)\(.*?\) \{(.*?)\} : (.*)", text, re.S
  )
  target, attributes, kinds = call
  assert "api_version = 2 : i32" in attributes
  operands, results = re.match(r"\((.*)\) -> \((.*)\)", kinds).groups()
  (configuration,) = re.findall('backend_config = "(.*)"', attributes)
  return {
    "target": target,
    "operands": operands.split(", "),
    "results": results.split(", "),
    **{
      name: re.findall(
        r"dense<\[([\d, ]+)\]>", re.search(rf"{name} = \[(.*)\]", attributes)[1]
      )
      for name in ("operand_layouts", "result_layouts")
    },
    "configuration": json.loads(configuration.replace("\\22", '"')),
  }


def without_defaults(value):
  """Drops what a message does not store."""
  if not isinstance(value, dict):
    return value
  kept = {name: without_defaults(x) for name, x in value.items()}
  defaults = (0, "0", "", [], {}, "PRIMITIVE_TYPE_INVALID")
  return {name: x for name, x in kept.items() if x not in defaults}


@pytest.mark.parametrize("index", [0, 1], ids=["forward", "backward"])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_the_calls_are_those_of_jax(calls, index, dtype):
  results = passes(dtype)
  names = ["forward", "backward"]
  text = json.dumps(_JAX[names[index]])
  if dtype == tf.float16:
    text = text.replace("xbf16", "xf16").replace("BF16", "F16")
  expected, found = json.loads(text), parsed(calls[index]["module"])
  of_found, of_jax = (x.pop("configuration") for x in (found, expected))
  assert found == expected
  attention = of_found["cudnn_fmha_backend_config"]
  # JAX leaves it to XLA's options.
  assert attention.pop("force_deterministic", False) == bool(index)
  assert without_defaults(of_found) == without_defaults(of_jax)
  # q and k have other lengths, and the results the layout of TensorFlow's.
  shapes = [[x.shape.as_list() for x in y] for y in results]
  q, k = [B, S, N, D], [B, T, N, D]
  assert shapes == [[q, [B, N, S]], [q, k, k]]
  assert calls[index]["platforms"] == ["CUDA"]
  assert len(calls[index]["args"]) == len(found["operands"])
  queries, keys = calls[index]["args"][-2:]
  assert queries.numpy().tolist() == [S, S] and keys.numpy().tolist() == [T, 3]


def _message(name):
  """Returns a class of XLA's messages from the descriptors in TensorFlow."""
  library = (
    pathlib.Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"
  )
  data, pool = library.read_bytes(), descriptor_pool.DescriptorPool()

  def add(file):
    path = file.encode()
    start = data.find(b"\x0a" + bytes([len(path)]) + path + b"\x12")
    end = data.find(b"b\x06proto3", start) + len(b"b\x06proto3")
    found = descriptor_pb2.FileDescriptorProto.FromString(data[start:end])
    for other in found.dependency:
      add(other)
    pool.AddSerializedFile(found.SerializeToString())

  add("xla/service/gpu/backend_configs.proto")
  return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@newer
def test_xla_knows_every_field_of_the_calls(calls):
  kind = _message("xla.gpu.GpuBackendConfig")
  passes()
  for call, name in zip(calls, ("forward", "backward"), strict=True):
    found, expected = (
      json_format.ParseDict(x["configuration"], kind())
      for x in (parsed(call["module"]), _JAX[name])
    )
    attention = found.cudnn_fmha_backend_config
    assert attention.force_deterministic == (name == "backward")
    attention.force_deterministic = False
    assert found == expected and attention.fmha_scale == 0.25
  with pytest.raises(json_format.ParseError):
    json_format.ParseDict({"cudnn_fmha_backend_config": {"odd": 1}}, kind())


@newer
def test_tensorflow_lowers_the_calls(monkeypatch):
  """To XLA's own language; a CPU cannot compile further."""
  monkeypatch.setattr(cudnn_attention, "_PLATFORMS", ["CPU"])
  function = tf.function(lambda: passes(), jit_compile=True, autograph=False)
  text = function.experimental_get_compiler_ir()(stage="hlo")
  calls = [x for x in text.splitlines() if " custom-call(" in x]
  assert len(calls) == 2
  heads = "bf16[2,3,24,16]{3,1,2,0}"
  for line, target, result in zip(
    calls,
    ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"),
    (f"({heads}, f32[2,3,24]{{2,1,0}}, u8[0]{{0}})", f"({heads}, bf16[2,3,40,"),
  ):
    assert f'custom_call_target="{target}"' in line and f"= {result}" in line
    assert "API_VERSION_STATUS_RETURNING" in line
    constraints = line.partition("operand_layout_constraints={")[2]
    assert constraints.count("{3,2,1,0}") == 3 + 2 * ("Backward" in target)


def test_what_is_missing(monkeypatch):
  def missing(*shape, dtype=tf.bfloat16, heads=N):
    spec = tf.keras.Input(shape[1:], shape[0], dtype=dtype)
    return cudnn_attention.missing([spec], heads)

  product = B, S, 3 * N * D
  monkeypatch.setattr(tf, "__version__", "2.15.1")
  assert missing(*product) == "TensorFlow 2.20"
  monkeypatch.setattr(tf, "__version__", "2.20.0")
  assert "GPU" in missing(*product)
  for capability, works in (((7, 5), False), ((8, 0), True), ((12, 0), True)):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["one"])
    monkeypatch.setattr(
      tf.config.experimental,
      "get_device_details",
      lambda _, found=capability: {"compute_capability": found},
    )
    assert ("GPU" in missing(*product)) is not works
  assert not missing(*product, dtype=tf.float16)
  assert "bfloat16" in missing(*product, dtype=tf.float32)
  assert "length" in missing(B, None, product[-1])
  assert "heads" in missing(B, S, 3 * 12, heads=1)
  assert "heads" in missing(B, S, 3 * 136, heads=1)
  assert not missing(B, S, 3 * 128, heads=1)


def test_a_warning_says_why_attention_is_not_fused(monkeypatch):
  monkeypatch.setattr(cudnn_attention, "missing", lambda *unused: "a card")
  x = [tf.ones([B, 3, 6])], [tf.zeros([6])], tf.ones([B, 3], tf.int32), 1
  found = []
  for kind in ("compiled", "fused"):
    with attention_program.attention_as(kind):
      if kind == "fused":
        with pytest.warns(UserWarning, match="'fused' needs a card"):
          found.append(attention_program.attention(*x))
      else:
        found.append(attention_program.attention(*x))
  np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("shape", [[3, 4], [2, 3, 4]])
def test_masks_that_lengths_cannot_describe_are_refused(shape):
  good = np.ones(shape, np.int32)
  good[0, ..., 2:] = 0
  good[1] = 0
  bad = good.copy()
  bad[0, ..., 3] = 1
  batches = tf.data.Dataset.from_tensor_slices(
    {"input_mask": [good, bad], "ids": [1, 2]}
  )
  for kind in ("plain", "compiled"):
    assert modeling.with_prefix_masks(batches, kind) is batches
  checked = modeling.with_prefix_masks(batches, "fused")
  assert checked.element_spec == batches.element_spec
  read = iter(checked)
  np.testing.assert_array_equal(next(read)["input_mask"], good)
  with pytest.raises(tf.errors.InvalidArgumentError, match="--attention=comp"):
    next(read)
