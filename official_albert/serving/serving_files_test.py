"""The files of TF Serving, by its own messages if they are installed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from official_albert.serving import serving_files

_INPUTS = {
  # More than 127 bytes, so that a length has two.
  "input_ids": np.arange(40, dtype=np.int32).reshape(5, 8),
  "text": np.array(["the river", ""], object),
}


def test_bytes_by_hand():
  inputs = {"t": np.array(["ab"], object)}
  tensor = tf.make_tensor_proto(inputs["t"]).SerializeToString()
  entry = b"\x0a\x01t\x12" + bytes([len(tensor)]) + tensor
  request = b"\x0a\x06\x0a\x01m\x1a\x01s\x12" + bytes([len(entry)]) + entry
  log = b"\x0a" + bytes([len(request)]) + request
  whole = b"\x32" + bytes([len(log)]) + log
  assert serving_files.prediction_log("m", "s", inputs) == whole


def test_tf_serving_reads_the_warmup(tmp_path):
  logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
  path = str(tmp_path / serving_files.WARMUP_FILE)
  requests = [("ids", _INPUTS), ("encode", {"text": _INPUTS["text"]})]
  serving_files.write_warmup(path, "albert_7", requests)
  records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
  read = [logs.PredictionLog.FromString(record) for record in records]
  for log, (signature, inputs) in zip(read, requests):
    request = log.predict_log.request
    assert request.model_spec.name == "albert_7"
    assert request.model_spec.signature_name == signature
    assert set(request.inputs) == set(inputs)
  sent = read[0].predict_log.request.inputs
  np.testing.assert_array_equal(
    tf.make_ndarray(sent["input_ids"]), _INPUTS["input_ids"]
  )
  assert tf.make_ndarray(sent["text"]).tolist() == [b"the river", b""]


def test_too_many_requests_are_refused(tmp_path):
  path = tmp_path / "warmup"
  with pytest.raises(ValueError, match="1,001 requests, and TF Serving reads"):
    serving_files.write_warmup(str(path), "m", [("s", {})] * 1001)
  assert not path.exists()


def test_tf_serving_reads_the_models():
  configs = pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2"
  )
  read = text_format.Parse(
    serving_files.models_config("albert_7"), configs.ModelServerConfig()
  )
  (model,) = read.model_config_list.config
  assert (model.name, model.base_path) == ("albert_7", "/models/albert_7")
  assert model.model_platform == "tensorflow"


def test_allowed_batches_end_with_the_largest():
  def lines(*arguments):
    return serving_files.batching_parameters(*arguments).splitlines()

  written = lines([3, 12])
  assert written[0] == "max_batch_size { value: 12 }"
  # Powers of two between, so that 4 rows are not filled up to 12.
  allowed = [line for line in written if line.startswith("allowed")]
  assert allowed == [f"allowed_batch_sizes: {n}" for n in (1, 2, 3, 4, 8, 12)]
  assert written[-1] == "pad_variable_length_inputs: true"
  assert lines([3, 12], False) == [
    *written[:-1],
    "pad_variable_length_inputs: false",
  ]
  any_size = lines([])
  assert any_size[0] == "max_batch_size { value: 32 }"
  assert not any(line.startswith("allowed") for line in any_size)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
