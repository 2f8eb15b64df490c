"""A TFLite file with its tokenizer and labels beside it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import serving
from tools.conversion import export_source, export_tflite_folder
from tools.testing import toy_finetuned


def test_the_folder_is_all_that_an_app_needs(tmp_path):
  pytest.importorskip("tools.conversion.tflite_export")
  toy_finetuned.write(str(tmp_path / "run"), "sst2", ("bad", "good"))
  source = export_source.open_source(
    str(tmp_path / "run"), export_source.Wanted(with_texts=False)
  )
  folder = tmp_path / "phone"
  export_tflite_folder.write(source, str(folder), sequence_length=7)
  assert sorted(os.listdir(folder)) == [
    "albert_config.json",
    "export.json",
    "labels.txt",
    "model.tflite",
    "tokenizer.model",
  ]
  record = json.loads((folder / "export.json").read_text())
  assert (record["format"], record["sequence_length"]) == ("tflite", 7)
  assert record["labels"] == ["bad", "good"]
  interpreter = tf.lite.Interpreter(str(folder / "model.tflite"))
  ids = np.array([[2, 5, 6, 7, 3, 0, 0]], np.int32)
  features = {
    "input_ids": ids,
    "input_mask": (ids > 0).astype(np.int32),
    "segment_ids": ids * 0,
  }
  said = interpreter.get_signature_runner("ids")(**features)
  model = source.module.model
  features = {name: tf.constant(x) for name, x in features.items()}
  expected = model(features, training=False)["logits"]
  np.testing.assert_allclose(said["logits"], expected, rtol=0, atol=1e-5)


def test_nothing_is_left_of_what_failed(tmp_path):
  toy_finetuned.write(str(tmp_path / "run"), "race", max_qa_length=9)
  source = export_source.open_source(
    str(tmp_path / "run"), export_source.Wanted(with_texts=False)
  )
  assert source.module.plain_inputs["input_ids"] == "B 4 S"
  pytest.importorskip("tools.conversion.tflite_export")
  for length, message in ((41, "41 exceeds the model's 40"), (-1, "negative")):
    with pytest.raises(ValueError, match=message):
      export_tflite_folder.write(
        source, str(tmp_path / "new"), sequence_length=length
      )
  assert os.listdir(tmp_path) == ["run"]


# How far logits may be off, as a share of their root mean square. The same
# operations in float32; weights of 11 bits in float16; of 8 bits in int8, with
# what is multiplied by them.
@pytest.mark.parametrize(
  "quantization, least, most",
  [("none", 0, 1e-5), ("float16", 1e-5, 1e-3), ("int8", 1e-3, 0.03)],
)
def test_a_phone_says_what_the_server_says(
  tmp_path, monkeypatch, quantization, least, most
):
  pytest.importorskip("tools.conversion.tflite_export")
  # TFLite rounds no kernels of under 1024 weights.
  for name, size in (
    ("embedding_size", 24),
    ("hidden_size", 48),
    ("intermediate_size", 76),
    ("initializer_range", 0.1),
  ):
    monkeypatch.setitem(toy_finetuned.SIZES, name, size)
  run = str(tmp_path / "run")
  toy_finetuned.write(run, "mnli", ("a", "b", "c"))

  def opened():
    return export_source.open_source(
      run, export_source.Wanted(with_texts=False)
    )

  source = opened()
  serving.write_saved_model(
    source.module,
    str(tmp_path / "server"),
    serving.ExportOptions(signatures="ids", warmup_seq_lengths=()),
    source.task,
    source.checkpoint,
    source.tokenizer,
  )
  export_tflite_folder.write(
    opened(), str(tmp_path / "phone"), quantization, sequence_length=13
  )
  loaded = tf.saved_model.load(str(tmp_path / "server"))
  interpreter = tf.lite.Interpreter(str(tmp_path / "phone" / "model.tflite"))
  phone = interpreter.get_signature_runner("ids")
  rng = np.random.default_rng(7)
  pairs = []
  for length in (13, 9, 3):
    ids = np.zeros([1, 13], np.int32)
    ids[0, :length] = [2, *rng.integers(5, 47, length - 2), 3]
    features = {
      "input_ids": ids,
      "input_mask": np.int32(ids > 0),
      "segment_ids": np.int32((ids > 0) & (np.arange(13) > length // 2)),
    }
    expected = loaded.signatures["ids"](
      **{name: tf.constant(x) for name, x in features.items()}
    )
    pairs.append((phone(**features)["logits"], expected["logits"].numpy()))
  said, wanted = map(np.concatenate, zip(*pairs))
  assert said.shape == (3, 3)
  off = np.sqrt(np.mean((said - wanted) ** 2) / np.mean(wanted**2))
  assert least <= off < most


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
