"""Tests of served questions against windows, model and decoding in Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.tasks.squad import examples, serving
from official_albert.tasks.squad import model as model_lib
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tokenization import in_graph

_LENGTH, _STRIDE, _QUERY, _BEST, _LONGEST = 29, 7, 6, 4, 5
_SETTINGS = {
  "doc_stride": _STRIDE,
  "max_query_length": _QUERY,
  "n_best_size": _BEST,
  "max_answer_length": _LONGEST,
}
_TEXT = [
  "the lighthouse of 1874 stands on the rock, 31 metres high.",
  "its keeper rowed out in 1902, with 3,5 tons of oil and two café chairs.",
  "who built the tower, when, and how many steps are there (9,9)?",
] * 9
_QUESTIONS = [
  "Who rowed out?",
  "",
  "How many steps are there in the tower of the lighthouse, and who built it?",
  "When?",
  "日本 ½?",
  "oil",
]
_CONTEXTS = [
  "The Lighthouse  of 1874\u3000stands on the rock, 31 metres high. " * 4,
  "Its keeper rowed out.",
  "In 1902, 3,5 tons; ﬁve cafe\u0301 chairs ½ 🙂\x00 日本\u200b語 ÉÉ " * 3,
  "",
  "\u3000 \t",
  "oil and oil and oil and oil and the oil " * 3,
]
# Of all lengths, most of them in several windows.
_CONTEXTS += [" ".join(" ".join(_TEXT).split()[:n]) for n in range(0, 40, 2)]
_QUESTIONS += ["Who built it?"] * 20


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(toy_vocabulary.train(_TEXT, 113))
  return tokenization.SentencePieceTokenizer(str(path))


@pytest.fixture(scope="module")
def models(tokenizer):
  tf.keras.utils.set_random_seed(5)
  config = toy_models.config(
    tokenizer.vocab_size, _LENGTH + 2, initializer_range=0.7
  )
  return {
    "squad1": model_lib.AlbertForSpans(config),
    "squad2": model_lib.AlbertForSpansOrNone(config, 3, 4),
  }


def _module(models, tokenizer, version, **options):
  return serving.AnswerQuestions(
    models[version],
    in_graph.SentencePieceTextLayer(tokenizer.model_file),
    **{"max_seq_length": _LENGTH, "settings": _SETTINGS, **options},
  )


@pytest.fixture(scope="module")
def answer(models, tokenizer):
  """The signature of each version, without a threshold."""
  return {
    version: _module(models, tokenizer, version).text_signature("answer")
    for version in models
  }


def _in_python(model, tokenizer, questions, contexts):
  rows = [
    examples.SquadExample(str(i), *texts)
    for i, texts in enumerate(zip(questions, contexts))
  ]
  found = list(examples.make_windows(rows, tokenizer, _LENGTH, _STRIDE, _QUERY))
  features = {
    "input_ids": [w.input_ids for w in found],
    "input_mask": [[1] * len(w.input_ids) for w in found],
    "segment_ids": [w.segment_ids() for w in found],
  }
  features = {
    name: tf.ragged.constant(rows).to_tensor()
    for name, rows in features.items()
  }
  outputs = model(features)
  scores = {name: outputs[name].numpy() for name in model.scores}
  return serving.decode(found, contexts, scores, _BEST, _LONGEST)


def _assert_equal(got, expected, contexts):
  assert len(expected) == len(got["answer"])
  for i, answer in enumerate(expected.values()):
    best = answer.n_best
    missing = [0] * (_BEST - len(best))
    texts = [text.decode() for text in np.array(got["n_best_answers"])[i]]
    assert texts == [c.text for c in best] + [""] * len(missing)
    for text, start, end in zip(
      texts, got["n_best_starts"][i].numpy(), got["n_best_ends"][i].numpy()
    ):
      assert contexts[i][start:end] == text
    np.testing.assert_allclose(
      got["n_best_probabilities"][i],
      [c.probability for c in best] + missing,
      atol=1e-5,  # Of logits up to 10 in float32, in another order.
    )
    if answer.null_odds is not None:
      odds = float(got["null_score_diff"][i])
      assert odds == pytest.approx(answer.null_odds, abs=1e-5)


@pytest.mark.parametrize("version", ["squad1", "squad2"])
def test_equals_python(models, tokenizer, answer, version):
  got = answer[version](
    question=tf.constant(_QUESTIONS), context=tf.constant(_CONTEXTS)
  )
  expected = _in_python(models[version], tokenizer, _QUESTIONS, _CONTEXTS)
  _assert_equal(got, expected, _CONTEXTS)
  # Without a threshold the best candidate is the answer.
  for name in ("answer", "start", "end"):
    n_best = got[f"n_best_{name}s"][:, 0]
    assert got[name].numpy().tolist() == n_best.numpy().tolist()
  np.testing.assert_array_equal(
    got["probability"], got["n_best_probabilities"][:, 0]
  )
  assert ("null_score_diff" in got) == (version == "squad2")
  texts = [text.decode() for text in got["answer"].numpy()]
  assert sum(map(bool, texts[:6])) == 4 and texts[3:5] == ["", ""]
  none = tf.constant([], tf.string)
  nothing = answer[version](question=none, context=none)
  assert {name: value.shape for name, value in nothing.items()} == {
    name: [0, *value.shape[1:]] for name, value in got.items()
  }
  # Bytes that are not UTF-8 are no characters.
  clean, dirty = (
    answer[version](
      question=tf.constant([b"who?"]), context=tf.constant([context])
    )
    for context in (
      b"caf\xc3\xa9 oil rock",
      b"\xffcaf\xc3\xa9 o\xe6\x97il rock\xf0",
    )
  )
  for name, value in clean.items():
    np.testing.assert_array_equal(value, dirty[name])


def test_a_threshold_leaves_questions_without_an_answer(
  models, tokenizer, answer
):
  asked = {
    "question": tf.constant(_QUESTIONS),
    "context": tf.constant(_CONTEXTS),
  }
  always = answer["squad2"](**asked)
  odds = always["null_score_diff"].numpy()
  threshold = float(odds[2])  # Equal odds keep the answer.
  module = _module(
    models, tokenizer, "squad2", null_score_diff_threshold=threshold
  )
  assert module.settings() == {
    **_SETTINGS,
    "max_windows": 256,
    "null_score_diff_threshold": threshold,
  }
  got = module.text_signature("answer")(**asked)
  none = odds > threshold
  assert 0 < none.sum() < len(none) and not none[2]
  for name, value in (("answer", b""), ("start", 0), ("end", 0)):
    expected = np.where(none, value, always[name])
    np.testing.assert_array_equal(got[name], expected)
  chance = np.where(none, 1 / (1 + np.exp(-odds)), always["probability"])
  np.testing.assert_allclose(got["probability"], chance, rtol=1e-5)
  np.testing.assert_array_equal(got["n_best_answers"], always["n_best_answers"])


def test_refused_requests(models, tokenizer):
  module = _module(
    models, tokenizer, "squad1", settings={"max_query_length": 40}
  )
  module.max_windows = 3
  answer = module.text_signature("answer")

  def refused(message, questions, contexts):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
      answer(question=tf.constant(questions), context=tf.constant(contexts))

  refused("equally many", ["who?", "when?"], ["the rock"])
  refused("at most 3 windows in total", ["who?"], ["the rock " * 60])
  refused("may have at most 2088 bytes", ["who?"], ["the rock " * 240])
  refused("must leave space for its context", ["why? " * 40], ["the rock"])
