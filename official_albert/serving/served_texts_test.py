"""Compares served classes and numbers with the model, called text by text."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, serving, tokenization
from official_albert.testing import toy_models
from official_albert.tokenization import in_graph

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] rain sun wind ##y cold , 9".split()
_LONGEST = 9
_FIRST = ["sun", "Rainy, windy COLD " * 3, "", "windy 9,"]
_SECOND = ["cold", "", "sunny sunny rain wind wind wind", "snow"]
_LABELS = ("bad", "gut?", "été")


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory) -> str:
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  path.write_text("\n".join(_PIECES), "utf-8")
  return str(path)


def make(vocab_file, labels, is_pair):
  tf.keras.utils.set_random_seed(3)
  config = toy_models.config(len(_PIECES), 13, initializer_range=0.5)
  model = modeling.AlbertForSequenceClassification(config, len(labels or "1"))
  layer = in_graph.make_text_layer("wordpiece", vocab_file, True)
  return serving.ServedTextTask(model, layer, _LONGEST, labels, is_pair)


def expected(module, vocab_file, firsts, seconds=None):
  """Returns logits [B, C], each text in a batch of its own."""
  tokenizer = tokenization.open_tokenizer(vocab_file=vocab_file)
  rows = []
  for i, first in enumerate(firsts):
    ids, segments = tokenization.pack_pair(
      tokenizer.encode(first),
      None if seconds is None else tokenizer.encode(seconds[i]),
      _LONGEST,
      tokenizer.cls_id,
      tokenizer.sep_id,
    )
    inputs = {
      "input_ids": tf.constant([ids]),
      "segment_ids": tf.constant([segments]),
    }
    rows.append(module.model(inputs, training=False)["logits"][0].numpy())
  return np.array(rows)


def test_classes_of_pairs(vocab_file):
  module = make(vocab_file, _LABELS, True)
  assert module.kind == "classification"
  assert module.text_signatures == ("classify",)
  signatures = module.signatures()
  answers = signatures["classify"](
    text_a=tf.constant(_FIRST), text_b=tf.constant(_SECOND)
  )
  logits = expected(module, vocab_file, _FIRST, _SECOND)
  # Float32 sums in another order, as rows are padded.
  np.testing.assert_allclose(answers["logits"], logits, rtol=0, atol=1e-5)
  np.testing.assert_allclose(
    answers["probabilities"], tf.nn.softmax(logits), rtol=0, atol=1e-5
  )
  labels = [label.decode() for label in answers["label"].numpy()]
  assert labels == [_LABELS[i] for i in logits.argmax(axis=1)]
  assert len(set(labels)) > 1
  assert module.settings()["labels"] == list(_LABELS)


def test_numbers_of_texts(vocab_file):
  module = make(vocab_file, None, False)
  assert (module.kind, module.text_signatures) == ("regression", ("score",))
  signatures = module.signatures()
  answers = signatures["score"](text=tf.constant(_FIRST))
  logits = expected(module, vocab_file, _FIRST)
  assert answers.keys() == {"score"}
  np.testing.assert_allclose(answers["score"], logits[:, 0], rtol=0, atol=1e-5)
  # The same by ids, with more padding.
  ids = tf.constant([[2, 6, 3, 0, 0]])
  by_ids = signatures["ids"](
    input_ids=ids,
    input_mask=tf.constant([[1, 1, 1, 0, 0]]),
    segment_ids=tf.zeros_like(ids),
  )
  np.testing.assert_allclose(by_ids["score"], logits[:1, 0], rtol=0, atol=1e-5)


def test_labels_are_lines_of_a_file(vocab_file, tmp_path):
  module = make(vocab_file, ("a, b", 'c"'), False)
  source = serving.Source(module, "sst2", "x", None)
  serving.write_assets(str(tmp_path), source, {})
  assert (tmp_path / "labels.txt").read_text() == 'a, b\nc"\n'
