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


@pytest.mark.parametrize("labels, is_pair", [(_LABELS, True), (None, False)])
def test_answers_are_those_of_the_model(vocab_file, labels, is_pair):
  module = make(vocab_file, labels, is_pair)
  name, kind = (
    ("classify", "classification") if labels else ("score", "regression")
  )
  assert (module.kind, module.text_signatures) == (kind, (name,))
  texts = (_FIRST, _SECOND) if is_pair else (_FIRST, None)
  signatures = module.signatures()
  answers = signatures[name](
    **{x: tf.constant(column) for x, column in zip(module.inputs, texts)}
  )
  inputs = tokenization.WordPieceTokenizer(vocab_file)(*texts, _LONGEST)
  logits = module.model(inputs, training=False)["logits"].numpy()
  by_ids = signatures["ids"](
    **{x: tf.constant(np.pad(y, [(0, 0), (0, 2)])) for x, y in inputs.items()}
  )
  if labels:
    wanted = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
    found = [label.decode() for label in answers["label"].numpy()]
    assert found == [_LABELS[i] for i in logits.argmax(axis=1)]
    assert len(set(found)) > 1 and module.settings()["labels"] == [*_LABELS]
  else:
    wanted = {"score": logits[:, 0]}
    assert answers.keys() == {"score"}
  for output, values in wanted.items():
    for got in (answers, by_ids):
      # Float32 sums in another order, as rows are padded.
      np.testing.assert_allclose(got[output], values, rtol=0, atol=1e-5)


def test_labels_are_lines_of_a_file(vocab_file, tmp_path):
  module = make(vocab_file, ("a, b", 'c"'), False)
  source = serving.Source(module, "sst2", "x", None)
  serving.write_assets(str(tmp_path), source, {})
  assert (tmp_path / "labels.txt").read_text() == 'a, b\nc"\n'
