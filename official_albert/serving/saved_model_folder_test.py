"""Exported folders and signatures, which compute what the model does.

The files of TF Serving are read by its own messages if they are installed.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, modeling, serving, tokenization
from official_albert.serving import saved_model_folder, served_module
from official_albert.testing import toy_models
from official_albert.tokenization import in_graph

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] rain sun wind ##y cold , 9".split()
_CONFIG = toy_models.config(12, 13)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab_zh.txt"
  path.write_text("\n".join(_PIECES), "utf-8")
  return checkpoints.TokenizerFile(str(path), "wordpiece")


@pytest.fixture(scope="module")
def module(tokenizer):
  tf.keras.utils.set_random_seed(3)
  model = modeling.AlbertModel(_CONFIG)
  layer = in_graph.WordPieceTextLayer(tokenizer.path, True)
  return served_module.ServedEncoder(model, layer, 9)


def write(module, tokenizer, folder, columns=None, **options):
  source = saved_model_folder.Source(
    module, "encoder", "runs/run/model.ckpt-7", tokenizer, columns or {}
  )
  saved_model_folder.write_saved_model(source, str(folder), **options)


def names(folder):
  return sorted(os.listdir(folder))


def test_everything_is_there(module, tokenizer, tmp_path):
  folder = tmp_path / "albert" / "1"
  columns = {"text": "review", "id": "key"}
  write(module, tokenizer, folder, columns)
  assert names(tmp_path / "albert") == ["1"]
  assert names(folder / "assets") == [
    "albert_config.json",
    "export.json",
    "vocab.txt",
  ]
  assert (folder / "assets" / "vocab.txt").read_text().split() == _PIECES
  record = json.loads((folder / "assets" / "export.json").read_text())
  assert record["kind"] == "encoder" and record["vocab_size"] == 12
  assert record["serving_default"] == "encode" and record["lower_case"]
  assert record["checkpoint"] == "run/model.ckpt-7"
  assert record["columns"] == columns
  assert record["tokenizer"]["sha256"] == tokenizer.sha256()
  assert names(folder / "assets.extra") == ["tf_serving_warmup_requests"]
  loaded = tf.saved_model.load(str(folder))
  assert sorted(loaded.signatures) == sorted(
    ["serving_default", *record["signatures"]]
  )


def test_equal_models_have_equal_variables(tmp_path):
  """Their order does not depend on where they are in memory."""
  contents = set()
  for i in range(2):
    tf.keras.utils.set_random_seed(5)
    model = modeling.AlbertModel(_CONFIG, name="model")
    folder = tmp_path / str(i)
    module = served_module.ServedEncoder(model, None, 9)
    write(module, None, folder, signatures="ids")
    files = sorted((folder / "variables").iterdir())
    contents.add(tuple(file.read_bytes() for file in files))
  assert len(contents) == 1


def test_warmup_of_all_sizes(module, tokenizer, tmp_path):
  write(module, tokenizer, tmp_path / "1", signatures="ids")
  path = tmp_path / "1" / "assets.extra" / saved_model_folder.WARMUP_FILE
  # Two batch sizes, one length, as both are beyond what the module takes, and
  # serving_default besides two names.
  assert len([*tf.data.TFRecordDataset(str(path))]) == 2 * 1 * 3


def test_nothing_is_left_of_what_failed(module, tokenizer, tmp_path):
  gone = checkpoints.TokenizerFile("gone.txt", "wordpiece")
  with pytest.raises(FileNotFoundError):
    write(module, gone, tmp_path / "1", signatures="ids")
  assert not names(tmp_path)


# More than 127 bytes, so that a length has two.
_IDS = np.arange(40, dtype=np.int32).reshape(5, 8)
_TEXTS = np.array(["the river", ""], object)


def test_tf_serving_reads_the_warmup():
  logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
  requests = [("ids", {"input_ids": _IDS, "text": _TEXTS}), ("encode", {})]
  encoded = [saved_model_folder.prediction_log(*x) for x in requests]
  read = [logs.PredictionLog.FromString(x).predict_log.request for x in encoded]
  names = [request.model_spec.signature_name for request in read]
  assert names == ["ids", "encode"] and not read[1].inputs
  sent = read[0].inputs
  np.testing.assert_array_equal(tf.make_ndarray(sent["input_ids"]), _IDS)
  assert tf.make_ndarray(sent["text"]).tolist() == [b"the river", b""]


_FIRST = ["sun", "Rainy, windy COLD " * 3, "", "windy 9,"]
_SECOND = ["cold", "", "sunny sunny rain wind wind wind", "snow"]
_LABELS = ("bad", "gut?", 'été, "a"')


@pytest.mark.parametrize("labels, is_pair", [(_LABELS, True), (None, False)])
def test_answers_are_those_of_the_model(tokenizer, labels, is_pair, tmp_path):
  tf.keras.utils.set_random_seed(3)
  config = toy_models.config(len(_PIECES), 13, initializer_range=0.5)
  model = modeling.AlbertForSequenceClassification(config, len(labels or "1"))
  module = serving.ServedTextTask(
    model, tokenizer.make_layer(), 9, labels, is_pair
  )
  name, kind = (
    ("classify", "classification") if labels else ("score", "regression")
  )
  assert (module.kind, module.text_signatures) == (kind, (name,))
  texts = (_FIRST, _SECOND) if is_pair else (_FIRST, None)
  signatures = module.signatures()
  answers = signatures[name](
    **{x: tf.constant(column) for x, column in zip(module.inputs, texts)}
  )
  inputs = tokenization.WordPieceTokenizer(tokenizer.path)(*texts, 9)
  logits = module.model(inputs, training=False)["logits"].numpy()
  by_ids = signatures["ids"](
    **{x: tf.constant(np.pad(y, [(0, 0), (0, 2)])) for x, y in inputs.items()}
  )
  examples = []
  for row in range(len(logits)):
    example = tf.train.Example()
    for x, values in inputs.items():
      example.features.feature[x].int64_list.value.extend(values[row])
    examples.append(example.SerializeToString())
  by_examples = signatures["examples"](tf.constant(examples))
  for signature in signatures.values():
    request = saved_model_folder.example_request(module, signature, 3, 6)
    sent = {key: tf.constant(value) for key, value in request.items()}
    assert {len(output) for output in signature(**sent).values()} == {3}
  if labels:
    wanted = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
    found = [label.decode() for label in answers["label"].numpy()]
    assert found == [_LABELS[i] for i in logits.argmax(axis=1)]
    assert len(set(found)) > 1 and module.settings()["labels"] == [*_LABELS]
    source = serving.Source(module, "sst2", "x", None)
    serving.write_assets(str(tmp_path), source, {})
    assert (tmp_path / "labels.txt").read_text() == 'bad\ngut?\nété, "a"\n'
  else:
    wanted = {"score": logits[:, 0]}
    assert answers.keys() == {"score"}
  for output, values in wanted.items():
    for got in (answers, by_ids, by_examples):
      # Float32 sums in another order, as rows are padded.
      np.testing.assert_allclose(got[output], values, rtol=0, atol=1e-5)
