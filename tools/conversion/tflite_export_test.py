"""TFLite files: what they say, how large they are, what is refused."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig
from tools.benchmarks import tflite_measure
from tools.conversion import tflite_export

# Shared weights are most of the file.
_CONFIG = AlbertConfig(
  vocab_size=97,
  embedding_size=24,
  hidden_size=72,
  num_hidden_layers=7,
  num_attention_heads=3,
  intermediate_size=144,
  max_position_embeddings=37,
  # So that the layers do something.
  initializer_range=0.1,
)


@pytest.fixture(scope="module")
def function():
  return tflite_measure.make_function(_CONFIG)


def export(function, path, *args, **kwargs):
  return tflite_export.export_tflite(
    function, tflite_measure.INPUTS, str(path), 97, *args, **kwargs
  )


def weights():
  """Of the encoder, and of a head with three classes."""
  return _CONFIG.parameter_count() + 3 * _CONFIG.hidden_size + 3


@pytest.mark.parametrize(
  "quantization, bytes_per_weight",
  [("none", 4), ("float16", 2), ("int8", 1)],
)
def test_fixed_length(function, tmp_path, quantization, bytes_per_weight):
  path = str(tmp_path / "new" / "model.tflite")
  made = export(function, path, quantization, 19)
  assert made.path == path and made.bytes == os.path.getsize(path)
  # The weights once, in spite of seven layers, and the program.
  assert made.bytes < bytes_per_weight * weights() + 100_000
  assert made.bytes > bytes_per_weight * weights()
  limit = tflite_export.TOLERANCES[quantization]
  assert made.differences["logits"] < limit / 2
  assert made.agreement >= 0.75
  with open(path, "rb") as file:
    names = tflite_export.operations(file.read())
  assert names and not any(name.startswith("Flex") for name in names)
  interpreter = tf.lite.Interpreter(model_path=path)
  runner = interpreter.get_signature_runner("ids")
  details = runner.get_input_details()
  assert sorted(details) == ["input_ids", "input_mask", "segment_ids"]
  assert details["input_ids"]["shape"].tolist() == [1, 19]
  ids = np.array([[2, 7, 33, 96, 3] + [0] * 14], np.int32)
  inputs = {
    "input_ids": ids,
    "input_mask": np.int32(ids > 0),
    "segment_ids": np.zeros_like(ids),
  }
  expected = function({name: tf.constant(x) for name, x in inputs.items()})
  said = runner(**inputs)
  np.testing.assert_allclose(
    said["probabilities"], expected["probabilities"], atol=limit / 5
  )


def test_the_exact_gelu_is_tflites_own(tmp_path):
  config = dataclasses.replace(
    _CONFIG, num_hidden_layers=1, hidden_act="gelu_erf"
  )
  path = tmp_path / "model.tflite"
  made = export(tflite_measure.make_function(config), path, "none", 19)
  assert made.differences["logits"] < 1e-5
  assert "GELU" in tflite_export.operations(path.read_bytes())


def test_any_length(function, tmp_path):
  path = str(tmp_path / "model.tflite")
  made = export(function, path)
  assert made.differences["probabilities"] < 1e-5
  assert made.bytes < 4 * weights() + 170_000
  interpreter = tf.lite.Interpreter(model_path=path)
  run = interpreter.get_signature_runner("ids")
  for rows, length in ((3, 5), (1, 37)):
    ids = np.full([rows, length], 7, np.int32)
    said = run(input_ids=ids, input_mask=ids // 7, segment_ids=ids * 0)
    assert said["logits"].shape == (rows, 3)


def test_refusals(function, tmp_path, monkeypatch):
  path = tmp_path / "model.tflite"
  with pytest.raises(ValueError, match="has to be one of none, float16, int8"):
    export(function, path, "int4")
  with pytest.raises(ValueError, match="sequence_length is -1"):
    export(function, path, sequence_length=-1)

  def odd(features):
    return {"x": tf.cast(features["input_ids"], tf.float32) ** 0.5}

  def text(features):
    return {"x": tf.strings.as_string(features["input_ids"])}

  with pytest.raises(ValueError, match="not all operations of .*: AsString"):
    export(text, path, sequence_length=5)
  monkeypatch.setitem(tflite_export.TOLERANCES, "none", -1.0)
  with pytest.raises(ValueError, match="off by .* of x, more than -1"):
    export(odd, path, sequence_length=5)
  assert not os.listdir(tmp_path)


def test_options(tmp_path):
  """Questions with four sequences each."""

  def scores(features):
    ids = tf.cast(features["input_ids"] * features["input_mask"], tf.float32)
    return {"logits": tf.reduce_sum(ids, -1)}

  inputs = {"input_ids": "B 4 S", "input_mask": "B 4 S"}
  path = str(tmp_path / "model.tflite")
  made = tflite_export.export_tflite(
    scores, inputs, path, 50, sequence_length=6, batch_size=3
  )
  assert made.agreement == 1.0
  runner = tf.lite.Interpreter(path).get_signature_runner("ids")
  ids = np.arange(72, dtype=np.int32).reshape(3, 4, 6)
  said = runner(input_ids=ids, input_mask=ids % 2)["logits"]
  np.testing.assert_array_equal(said, (ids * (ids % 2)).sum(-1))


_IN_A_PROCESS = """
import sys
import tensorflow as tf
from tools.conversion import tflite_export, tflite_export_test
from tools.benchmarks import tflite_measure

def text(features):
  return {"x": tf.strings.as_string(features["input_ids"])}

model = tflite_measure.make_function(tflite_export_test._CONFIG)
for function in (model, text):
  try:
    tflite_export_test.export(function, sys.argv[1], sequence_length=9)
  except ValueError as error:
    print(error, file=sys.stderr)
  print("next", file=sys.stderr)
"""


def test_the_converter_is_silent_unless_it_fails(tmp_path):
  done = subprocess.run(
    [sys.executable, "-c", _IN_A_PROCESS, str(tmp_path / "model.tflite")],
    cwd=pathlib.Path(__file__).resolve().parents[2],
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
  )
  assert done.stdout == ""
  model, text, rest = done.stderr.split("next\n")
  assert (model, rest) == ("", "")
  *converter, ours = text.splitlines()
  assert ours == "TFLite has not all operations of the model: AsString."
  assert "AsString" in "".join(converter)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
