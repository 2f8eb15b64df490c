"""Tests of TFLite files: outputs, sizes, errors."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert import AlbertConfig, modeling, serving
from official_albert.inference import source as source_lib
from official_albert.tools.conversion import export_check, tflite_export
from official_albert.tools.testing import toy_runs

_PAGE = pathlib.Path(__file__).parents[2] / "docs/tflite_onnx.md"
# Most of the file are shared weights; the exact GELU is one operation.
_CONFIG = AlbertConfig(
  vocab_size=97,
  embedding_size=24,
  hidden_size=72,
  num_hidden_layers=7,
  num_attention_heads=3,
  intermediate_size=144,
  max_position_embeddings=37,
  # Large enough that layers change their inputs.
  initializer_range=0.1,
  hidden_act="gelu_erf",
)


def make_source(**changes):
  """A random classifier of three classes."""
  tf.keras.utils.set_random_seed(0)
  config = dataclasses.replace(_CONFIG, **changes)
  model = modeling.AlbertForSequenceClassification(config, 3)
  module = serving.ServedTextTask(model, None, 19, ("a", "b", "c"), False)
  return serving.Source(module, "text_classification", "x", None)


@pytest.fixture(scope="module")
def source():
  return make_source()


def export(source, folder, *args):
  """Returns the path of the TFLite file."""
  tflite_export.write_folder(source, str(folder), *args)
  return str(folder / "model.tflite")


def answers(source, path, ids):
  """Returns the logits of the file, and those of the model."""
  features = {
    "input_ids": np.int32(ids),
    "input_mask": np.int32(np.array(ids) > 0),
    "segment_ids": np.zeros_like(ids, np.int32),
  }
  run = tf.lite.Interpreter(model_path=path).get_signature_runner("ids")
  exact = source.module.model({k: tf.constant(x) for k, x in features.items()})
  return run(**features)["logits"], exact["logits"].numpy()


@pytest.mark.parametrize(
  "quantization, bytes_per_weight, tolerance",
  [("none", 4, 1e-5), ("float16", 2, 2e-3), ("int8", 1, 0.05)],
)
def test_fixed_length(
  source, tmp_path, capfd, quantization, bytes_per_weight, tolerance
):
  path = export(source, tmp_path / "new", quantization, 19)
  assert capfd.readouterr().err == ""
  # The seven layers share one copy of the weights.
  weights = _CONFIG.parameter_count() + 3 * _CONFIG.hidden_size + 3
  assert 0 < os.path.getsize(path) - bytes_per_weight * weights < 100_000
  interpreter = tf.lite.Interpreter(model_path=path)
  operations = {x["op_name"] for x in interpreter._get_ops_details()}
  assert "GELU" in operations
  assert not any(name.startswith("Flex") for name in operations)
  details = interpreter.get_signature_runner("ids").get_input_details()
  assert sorted(details) == ["input_ids", "input_mask", "segment_ids"]
  assert details["input_ids"]["shape"].tolist() == [1, 19]
  found, exact = answers(source, path, [[2, 7, 33, 96, 3] + [0] * 14])
  np.testing.assert_allclose(found, exact, atol=tolerance)


def test_adapters_are_kept(tmp_path):
  source = make_source(adapter_rank=3)
  model = source.module.model
  for variable in model.albert.encoder.adapters.variables:
    variable.assign(tf.random.normal(variable.shape, stddev=0.1))
  path = export(source, tmp_path / "new", "none", 19)
  found, exact = answers(source, path, [[2, 7, 33, 96, 3] + [0] * 14])
  np.testing.assert_allclose(found, exact, atol=1e-5)
  # The seven layers still share one copy of the kernels.
  size = os.path.getsize(path) - 4 * model.count_params()
  assert 0 < size < 100_000


def test_failed_exports_leave_nothing(source, tmp_path, monkeypatch, capfd):
  for length in (38, 1):
    with pytest.raises(ValueError, match=f"is {length}, .* from 2 to 37"):
      export(source, tmp_path / "new", "none", length)

  def refused(message, function, dtype=tf.float32):
    monkeypatch.setattr(
      source.module,
      "plain_outputs",
      lambda x: {"x": function(tf.cast(x["input_ids"], dtype))},
    )
    with pytest.raises(ValueError, match=message):
      export(source, tmp_path / "new", "none", 5)

  refused("cannot run .*AsString", tf.strings.as_string, tf.int32)
  assert "AsString" in capfd.readouterr().err  # The converter's own message.
  monkeypatch.setitem(export_check.TOLERANCES, "none", -1.0)
  refused("x of .* differs by .*, more than -1", tf.sqrt)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  "quantization, tolerance", [("none", 1e-5), ("int8", 0.02)]
)
def test_the_python_of_the_page(tmp_path, monkeypatch, quantization, tolerance):
  monkeypatch.chdir(tmp_path)
  toy_runs.write_finetuned("run", "text_classification", ("bad", "good"))
  source = source_lib.open_source("run", with_texts=False)
  tflite_export.write_folder(source, "phone", quantization, 11)
  assert sorted(os.listdir("phone")) == [
    *("albert_config.json", "export.json", "labels.txt"),
    *("model.tflite", "tokenizer.model"),
  ]
  record = json.loads(pathlib.Path("phone/export.json").read_text())
  assert (record["format"], record["sequence_length"]) == ("tflite", 11)
  page = _PAGE.read_text("utf-8").replace('"portable"', '"phone"')
  shared, _, code = re.findall(r"```python\n(.*?)```", page, re.S)
  names: dict[str, Any] = {}
  exec(shared + code, names)
  model = official_albert.load("run", max_seq_length=11)
  for text in ("A cold  d\u00e1y", "", "day 1, day 22, house, sea, a warm day"):
    label, probabilities = names["classify"](text)
    answer = model.classify(text)
    assert label == answer.label
    np.testing.assert_allclose(
      probabilities, list(answer.probabilities.values()), atol=tolerance
    )
