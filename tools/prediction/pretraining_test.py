"""A pretraining run's words, vectors and orders."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, tokenization, training
from tasks import pretraining
from tools import finetuning
from tools.prediction import pretraining as prediction_pretraining
from tools.prediction import run as prediction_run
from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.testing import toy_encoder, toy_finetuned


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return toy_encoder.write(str(tmp_path_factory.mktemp("run") / "encoder"))


@pytest.fixture(scope="module")
def model(folder):
  config = modeling.AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = pretraining.AlbertForPretraining(config)
  training.warm_start(model, f"{folder}/model.ckpt-1")
  return model


def open_run(folder, signature="", **changes):
  devices = finetuning.run.Devices(tf.distribute.get_strategy(), "float32")
  settings = prediction_run.Settings(devices, 2, **changes)
  encoder = toy_finetuned.read_encoder(folder)
  return prediction_pretraining.PretrainedBackend(
    folder, signature, encoder, settings
  ), encoder.tokenizer


def predict(backend, rows):
  found = [
    InputRow(f"a, line {i}", str(i), cells) for i, cells in enumerate(rows)
  ]
  return [said for _, said in prediction_stream.predict(backend, found, 2, 2)]


def features(sequence):
  ids, segments = (tf.constant([x]) for x in sequence)
  return {"input_ids": ids, "segment_ids": segments}


def test_masks(folder, model):
  backend, tokenizer = open_run(folder, top_k=4)
  rows = ["the [MASK] tree", "by the sea a [MASK] day was [MASK] and old"]
  said = predict(backend, [{"text": text} for text in rows])
  for text, answer in zip(rows, said):
    ids = [2]
    for number, part in enumerate(text.split("[MASK]")):
      ids += [4] * (number > 0) + tokenizer.encode(part)
    ids.append(3)
    positions = [i for i, x in enumerate(ids) if x == 4]
    there = answer["mask_positions"] >= 0
    assert answer["mask_positions"][there].tolist() == positions
    logits = model(
      {
        **features((ids, [0] * len(ids))),
        "masked_lm_positions": tf.constant([positions]),
      }
    )["masked_lm_logits"][0]
    best, expected = tf.math.top_k(tf.nn.softmax(logits), 4)
    np.testing.assert_array_equal(answer["token_ids"][there], expected)
    np.testing.assert_allclose(answer["probabilities"][there], best, atol=1e-5)
    pieces = [tokenizer.id_to_piece(i) for i in expected[0].numpy().tolist()]
    assert answer["tokens"][0].tolist() == [p.lstrip("\u2581") for p in pieces]
  with pytest.raises(ValueError, match=r"a, line 0: the text has no \[MASK\]"):
    predict(backend, [{"text": "mask"}])


def test_vectors_and_orders(folder, model):
  cells = {"text": "the old tree", "text_a": "a cold day", "text_b": "the sea"}
  for signature in ("encode", "encode_pair", "sentence_order"):
    backend, tokenizer = open_run(folder, signature)
    ids = [tokenizer.encode(cells[role]) for role in backend.roles]
    sequence = tokenization.pack_pair(*(ids + [None])[:2], 64, 2, 3)
    none = {"masked_lm_positions": tf.zeros([1, 0], tf.int32)}
    expected = model({**features(sequence), **none})
    (said,) = predict(backend, [cells])
    if signature == "sentence_order":
      swapped = tf.nn.softmax(expected["sentence_order_logits"])[0, 1]
      np.testing.assert_allclose(
        said["swapped_probability"], swapped, rtol=1e-5
      )
    else:
      np.testing.assert_allclose(
        said["pooled_output"], expected["pooled_output"][0], atol=1e-5
      )


def test_refusals(folder):
  with pytest.raises(ValueError, match="choose one of fill_mask, encode"):
    open_run(folder, "classify")
  with pytest.raises(ValueError, match="top_k is 0"):
    open_run(folder, top_k=0)
  with pytest.raises(ValueError, match="max_seq_length 65 is more"):
    open_run(folder, max_seq_length=65)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
