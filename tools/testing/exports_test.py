"""Tests of exports as other programs run them.

These are a session, which TF Serving loads them into, clients of gRPC's
PredictRequest and saved_model_cli. The gRPC server is a few lines around a
loaded SavedModel. If `tensorflow_model_server` is on the PATH, it answers the
same requests too.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from official_albert.tools.testing import many_commands, toy_runs

try:
  import grpc
  import tensorflow_serving  # noqa: F401
except ImportError:
  grpc = None

_TEXTS = ["the sunny day", "", "a cold house by the sea", "größe 東京"]
_IDS = {
  "input_ids": [[2, 5, 9, 3], [2, 7, 3, 0]],
  "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
  "segment_ids": [[0, 0, 1, 1], [0, 0, 0, 0]],
}
# An id of 99, where there are 47.
_BAD = {**_IDS, "input_ids": [[2, 5, 99, 3], [2, 7, 3, 0]]}
_SERVER = shutil.which("tensorflow_model_server")
# Imports tensorflow_text first, whose operations are in the exports.
_CLI = """
import contextlib, json, sys
import tensorflow_text
from tensorflow.python.tools import saved_model_cli
for arguments in json.loads(sys.argv[1]):
  sys.argv = ["saved_model_cli", *arguments]
  with contextlib.suppress(SystemExit):
    saved_model_cli.main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("exports")
  toy_runs.write_finetuned(
    str(path / "run"), "text_classification", ("bad", "good", "so so")
  )
  for result in many_commands.run(
    "export_saved_model",
    [
      [
        f"--model_dir={path}/run",
        f"--export_dir={path}/{name}/1",
        f"--signatures={signatures}",
      ]
      for name, signatures in (("text", "all"), ("ids", "ids"))
    ],
  ):
    assert result.code == 0, result.err
  return path


def _decoded(outputs):
  return {
    name: [t.decode() for t in x] if x.dtype == object else x
    for name, x in outputs.items()
  }


def assert_like_python(folder, signature, inputs, results):
  """Checks that results are those of the signature in Python's TensorFlow."""
  loaded = tf.saved_model.load(f"{folder}/1")
  dtype = tf.string if "text" in inputs else tf.int32
  expected = loaded.signatures[signature](
    **{name: tf.constant(x, dtype) for name, x in inputs.items()}
  )
  assert set(results) == set(expected)
  for name, value in expected.items():
    if value.dtype == tf.string:
      assert results[name] == [text.decode() for text in value.numpy()]
    else:
      # The same kernels, but graphs that are optimized separately.
      np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-6)


def test_a_session_answers_and_refuses(folder):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tags = ["serve"]
    meta = tf.compat.v1.saved_model.load(session, tags, f"{folder}/text/1")

    def run(name, inputs):
      signature = meta.signature_def[name]
      feeds = {signature.inputs[k].name: x for k, x in inputs.items()}
      fetches = {k: x.name for k, x in signature.outputs.items()}
      outputs = session.run(fetches, feeds)
      return _decoded(outputs)

    results = [run("classify", {"text": _TEXTS}), run("ids", _IDS)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0\] \[99\]"):
      run("ids", _BAD)
  assert_like_python(folder / "text", "classify", {"text": _TEXTS}, results[0])
  assert_like_python(folder / "text", "ids", _IDS, results[1])


@contextlib.contextmanager
def _own_server(folder):
  from tensorflow_serving.apis import predict_pb2
  from tensorflow_serving.apis import prediction_service_pb2_grpc as service

  model = tf.saved_model.load(f"{folder}/1")

  class Servicer(service.PredictionServiceServicer):
    def Predict(self, request, context):
      function = model.signatures[request.model_spec.signature_name]
      inputs = {k: tf.make_ndarray(x) for k, x in request.inputs.items()}
      try:
        outputs = function(**{k: tf.constant(x) for k, x in inputs.items()})
      except tf.errors.InvalidArgumentError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
      response = predict_pb2.PredictResponse()
      for name, value in outputs.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
      return response

  server = grpc.server(futures.ThreadPoolExecutor(2))
  service.add_PredictionServiceServicer_to_server(Servicer(), server)
  port = server.add_insecure_port("localhost:0")
  server.start()
  try:
    yield port
  finally:
    server.stop(None).wait()


@contextlib.contextmanager
def _real_server(folder):
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  flags = f"--port={port} --model_name=toy --model_base_path={folder}"
  process = subprocess.Popen([_SERVER, *flags.split()])
  try:
    yield port  # The client waits until it is ready.
  finally:
    process.terminate()
    process.wait()


def _predict(port, signature, inputs):
  from tensorflow_serving.apis import predict_pb2
  from tensorflow_serving.apis import prediction_service_pb2_grpc as service

  with grpc.insecure_channel(f"localhost:{port}") as channel:
    stub = service.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
      dtype = None if name == "text" else tf.int32
      request.inputs[name].CopyFrom(tf.make_tensor_proto(value, dtype))
    response = stub.Predict(request, timeout=30, wait_for_ready=True)
  return _decoded({k: tf.make_ndarray(x) for k, x in response.outputs.items()})


@pytest.mark.skipif(grpc is None, reason="grpc is not installed")
@pytest.mark.parametrize("start", [_own_server, _real_server])
def test_grpc(folder, start):
  if start is _real_server and not _SERVER:
    pytest.skip("no tensorflow_model_server on the PATH")
  folder = folder / "text"
  with start(folder) as port:
    for signature, inputs in (("classify", {"text": _TEXTS}), ("ids", _IDS)):
      results = _predict(port, signature, inputs)
      assert_like_python(folder, signature, inputs, results)
    with pytest.raises(grpc.RpcError) as error:
      _predict(port, "ids", _BAD)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "input_ids must be from 0 to" in error.value.details()


def test_saved_model_cli(folder):
  where = ["--dir", f"{folder}/text/1", "--tag_set", "serve"]
  texts = "text=['a cold house by the sea', 'größe']"
  commands = [
    ["run", *where, "--signature_def", "classify", "--input_exprs", texts],
    ["show", *where, "--signature_def", "ids"],
  ]
  done = many_commands.start("-c", _CLI, json.dumps(commands))
  assert done.code == 0, done.err
  loaded = tf.saved_model.load(f"{folder}/text/1")
  expected = loaded.signatures["classify"](
    tf.constant(["a cold house by the sea", "größe"])
  )
  assert f"key label:\n{expected['label'].numpy()}\n" in done.out
  assert "Result for output key probabilities:\n[[" in done.out
  for name in ("input_ids", "input_mask", "segment_ids"):
    shown = f"inputs['{name}'] tensor_info:\n      dtype: DT_INT32"
    assert shown in done.out
  assert "shape: (-1, 3)" in done.out
