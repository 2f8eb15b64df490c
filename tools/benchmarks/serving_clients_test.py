"""Exports as clients see them: gRPC's PredictRequest, and saved_model_cli.

The server is a few lines around a loaded SavedModel; where
`tensorflow_model_server` is on the PATH, it answers the same requests too.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import sys
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.

from tools.testing import many_commands, toy_runs

grpc = pytest.importorskip("grpc")
serving = pytest.importorskip("tensorflow_serving.apis")
from tensorflow_serving.apis import (  # noqa: E402
  predict_pb2,
  prediction_service_pb2_grpc,
)

_ROOT = pathlib.Path(__file__).parents[2]
_TEXTS = ["the sunny day", "", "a cold house by the sea", "größe 東京"]
_IDS = {
  "input_ids": np.int32([[2, 5, 9, 3], [2, 7, 3, 0]]),
  "input_mask": np.int32([[1, 1, 1, 1], [1, 1, 1, 0]]),
  "segment_ids": np.int32([[0, 0, 1, 1], [0, 0, 0, 0]]),
}
_SERVER = shutil.which("tensorflow_model_server")
# It has to import tensorflow_text first.
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
  """As a server wants it: a folder with a version in it."""
  run = str(tmp_path_factory.mktemp("run") / "run")
  toy_runs.write_finetuned(run, "text_classification", ("bad", "good", "so so"))
  path = tmp_path_factory.mktemp("clients") / "toy"
  arguments = [f"--model_dir={run}", f"--export_dir={path}/1"]
  (result,) = many_commands.run("export_saved_model", [arguments])
  assert result.code == 0, result.err
  return path


class _Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
  def __init__(self, saved_model_dir):
    self._model = tf.saved_model.load(saved_model_dir)

  def Predict(self, request, context):
    function = self._model.signatures[request.model_spec.signature_name]
    inputs = {k: tf.make_ndarray(x) for k, x in request.inputs.items()}
    try:
      outputs = function(**{k: tf.constant(x) for k, x in inputs.items()})
    except tf.errors.InvalidArgumentError as error:
      context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
    response = predict_pb2.PredictResponse()
    for name, value in outputs.items():
      response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
    return response


@contextlib.contextmanager
def _own_server(folder):
  server = grpc.server(futures.ThreadPoolExecutor(2))
  prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
    _Servicer(str(folder / "1")), server
  )
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


def predict(port, signature, inputs):
  with grpc.insecure_channel(f"localhost:{port}") as channel:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
      request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    response = stub.Predict(request, timeout=30, wait_for_ready=True)
  return {name: tf.make_ndarray(x) for name, x in response.outputs.items()}


@pytest.mark.parametrize(
  "start",
  [
    _own_server,
    pytest.param(
      _real_server,
      marks=pytest.mark.skipif(
        not _SERVER, reason="no tensorflow_model_server on the PATH"
      ),
    ),
  ],
)
def test_grpc(folder, start):
  loaded = tf.saved_model.load(str(folder / "1"))
  with start(folder) as port:
    for signature, inputs in (("classify", {"text": _TEXTS}), ("ids", _IDS)):
      outputs = predict(port, signature, inputs)
      expected = loaded.signatures[signature](
        **{name: tf.constant(x) for name, x in inputs.items()}
      )
      assert outputs["label"].tolist() == expected["label"].numpy().tolist()
      assert outputs["logits"].shape == (len(outputs["label"]), 3)
      np.testing.assert_allclose(
        outputs["logits"], expected["logits"], rtol=1e-6, atol=1e-6
      )
    bad = dict(_IDS, input_ids=_IDS["input_ids"] + 90)
    with pytest.raises(grpc.RpcError) as error:
      predict(port, "ids", bad)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "input_ids must be from 0 to" in error.value.details()


def test_saved_model_cli(folder):
  where = ["--dir", str(folder / "1"), "--tag_set", "serve"]
  texts = "text=['a cold house by the sea', 'größe']"
  commands = [
    ["run", *where, "--signature_def", "classify", "--input_exprs", texts],
    ["show", *where, "--signature_def", "ids"],
  ]
  done = subprocess.run(
    [sys.executable, "-c", _CLI, json.dumps(commands)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  loaded = tf.saved_model.load(str(folder / "1"))
  expected = loaded.signatures["classify"](
    tf.constant(["a cold house by the sea", "größe"])
  )
  assert f"key label:\n{expected['label'].numpy()}\n" in done.stdout
  assert "Result for output key probabilities:\n[[" in done.stdout
  for name in ("input_ids", "input_mask", "segment_ids"):
    shown = f"inputs['{name}'] tensor_info:\n      dtype: DT_INT32"
    assert shown in done.stdout
  assert "shape: (-1, 3)" in done.stdout


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
