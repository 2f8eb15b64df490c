"""Compares served multiple choice with the examples of training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.tasks.race import examples as race_examples
from official_albert.tasks.race import model as model_lib
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tokenization import in_graph

LONGEST, LONGEST_QA = 21, 9
_REFUSED = tf.errors.InvalidArgumentError
# Passage, question, options: blanks at every place, wide ones, none, empty
# texts, and what is too long.
_QUESTIONS = [
  ("the day was cold and dark", "the day was _ .", "cold|warm|a tree|"),
  ("by the sea " * 9, "_ was _", " tall |dark|rainy|old _ \\0 old"),
  ("", "the old house", "warm|cold|sunny|by the sea " + "cold " * 9),
  ("Sunny, was the SEA", "a\n\uff3fb \u2003_", "tree|\u00e9t\u00e9|x|_"),
  ("rainy", "", "a|b|c|d"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  lines = ["the day was cold and dark by a sunny old house of the sea"] * 9
  path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
  path.write_bytes(toy_vocabulary.train(lines, 50))
  return tokenization.SentencePieceTokenizer(str(path))


@pytest.fixture(scope="module")
def module(tokenizer):
  tf.keras.utils.set_random_seed(5)
  config = toy_models.config(tokenizer.vocab_size, 23, initializer_range=0.5)
  layer = in_graph.SentencePieceTextLayer(tokenizer.model_file)
  return model_lib.ServedMultipleChoice(
    model_lib.AlbertForMultipleChoice(config), layer, LONGEST, LONGEST_QA
  )


def texts(questions=_QUESTIONS):
  columns = [list(column) for column in zip(*questions)]
  columns[2] = [options.split("|") for options in columns[2]]
  return dict(
    zip(("passage", "question", "options"), map(tf.constant, columns))
  )


def records(tokenizer, questions=_QUESTIONS):
  """Returns <int32>[B, 4, S] of ids, masks and segments, made in Python."""
  examples = [
    race_examples.RaceExample(str(i), p, q, tuple(o.split("|")), None, "high")
    for i, (p, q, o) in enumerate(questions)
  ]
  made = list(
    race_examples.make_all_inputs(examples, tokenizer, LONGEST, LONGEST_QA)
  )
  ids, segments = (
    tf.ragged.constant([[row[i] for row in options] for options in made])
    for i in range(2)
  )
  rows = {
    "input_ids": ids,
    "input_mask": tf.ones_like(ids),
    "segment_ids": segments,
  }
  return {name: x.to_tensor() for name, x in rows.items()}


def test_texts_are_packed_as_in_python_or_refused(tmp_path, module, tokenizer):
  """SentencePiece's other texts: see `test_answers_equal_the_models`."""
  words = toy_models.wordpiece(tmp_path, *"_ a b c ##x".split())
  layers = {
    words: in_graph.WordPieceTextLayer(words.model_file, True),
    tokenizer: in_graph.SentencePieceTextLayer(tokenizer.model_file),
  }
  long = (" " * 40_000 + "the sea", "a " * 20_000 + "b _", "b|c|d|_ _")
  for python, layer in layers.items():
    served = model_lib.ServedMultipleChoice(
      module.model, layer, LONGEST, LONGEST_QA
    )
    for questions in (_QUESTIONS, [long]):
      made = tf.function(served.pack_options)(**texts(questions))
      for name, value in records(python, questions).items():
        np.testing.assert_array_equal(made[name], value, name)
    for large in (
      ("a", "a" * 66_000, "b|b|c|d"),
      ("a", "b", f"{'c' * 66_000}|b|c|d"),
      # Before the texts are normalized, which takes memory.
      ("a", "b" + 66_000 * " ", "b|b|c|d"),
      # It would be joined to 900 MB.
      ("_" * 30_000, "_" * 30_000, f"{'a' * 30_000}|b|c|d"),
    ):
      with pytest.raises(_REFUSED, match="at most 65536 bytes when the opt"):
        served.pack_options(**texts([large]))


def test_answers_equal_the_models(module, tokenizer):
  signatures = module.signatures()
  answers = signatures["choose"](**texts())
  inputs = records(tokenizer)
  chances = tf.nn.softmax(module.model(inputs, training=False)["logits"])
  np.testing.assert_allclose(
    answers["probabilities"], chances, rtol=0, atol=1e-5
  )
  np.testing.assert_array_equal(answers["choice"], tf.argmax(chances, 1))
  by_ids = signatures["ids"](**inputs)["probabilities"]
  np.testing.assert_allclose(by_ids, chances, rtol=0, atol=1e-5)
  none = signatures["choose"](
    passage=tf.zeros([0], tf.string),
    question=tf.zeros([0], tf.string),
    options=tf.zeros([0, 4], tf.string),
  )
  assert none["choice"].shape == [0] and none["probabilities"].shape == [0, 4]


def test_bad_requests(module):
  with pytest.raises(ValueError, match="larger by at least 4"):
    model_lib.ServedMultipleChoice(module.model, None, 12, 9)
  choose, right = module.signatures()["choose"], texts()
  for name, message in (
    ("question", "equally many texts"),
    ("options", "4 texts for each"),
  ):
    with pytest.raises(_REFUSED, match=message):
      choose(**{**right, name: right[name][:3]})
