"""Tests of served questions against windows, model and decoding in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert import tokenization
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tokenization import in_graph
from tasks.squad import decoding, examples, serving, windows
from tasks.squad import model as model_lib

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
_VERSIONS = pytest.mark.parametrize("version", ["squad1", "squad2"])


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory) -> str:
  proto = toy_vocabulary.train(_TEXT, 113)
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(proto)
  return str(path)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_file):
  return tokenization.SentencePieceTokenizer(tokenizer_file)


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


def _module(models, tokenizer_file, version, **options):
  return serving.served_squad(
    models[version],
    in_graph.SentencePieceTextLayer(tokenizer_file),
    **{"max_seq_length": _LENGTH, "settings": _SETTINGS, **options},
  )


@pytest.fixture(scope="module")
def answer(models, tokenizer_file):
  """The signature of each version, without a threshold."""
  return {
    version: _module(models, tokenizer_file, version).text_functions()["answer"]
    for version in models
  }


def _in_python(model, tokenizer, questions, contexts):
  rows = [
    examples.SquadExample(str(i), *texts)
    for i, texts in enumerate(zip(questions, contexts))
  ]
  found = list(
    windows.make_all_windows(rows, tokenizer, _LENGTH, _STRIDE, _QUERY)
  )
  length = max(len(window.input_ids) for window in found)

  def dense(lists):
    return tf.constant([[*x, *[0] * (length - len(x))] for x in lists])

  features = {
    "input_ids": dense([w.input_ids for w in found]),
    "input_mask": dense([[1] * len(w.input_ids) for w in found]),
    "segment_ids": dense([w.segment_ids for w in found]),
  }
  mask = [windows.p_mask(w, length) for w in found]
  if isinstance(model, model_lib.AlbertForSpansOrNone):
    features["p_mask"] = tf.constant(mask, tf.float32)
  outputs = model(features)
  return decoding.decode(
    found,
    {row.question_id: row.context for row in rows},
    {name: outputs[name].numpy() for name in model.scores},
    _BEST,
    _LONGEST,
  )


def _assert_equal(got, expected):
  assert len(expected) == len(got["answer"])
  for i, answer in enumerate(expected.values()):
    best = answer.n_best
    missing = [0] * (_BEST - len(best))
    texts = [text.decode() for text in np.array(got["n_best_answers"])[i]]
    assert texts == [c.text for c in best] + [""] * len(missing)
    for text, start, end in zip(
      texts, got["n_best_starts"][i].numpy(), got["n_best_ends"][i].numpy()
    ):
      assert _CONTEXTS[i][start:end] == text
    np.testing.assert_allclose(
      got["n_best_probabilities"][i],
      [c.probability for c in best] + missing,
      atol=1e-5,  # Of logits up to 10 in float32, in another order.
    )
    if answer.null_odds is not None:
      odds = float(got["null_score_diff"][i])
      assert odds == pytest.approx(answer.null_odds, abs=1e-5)


@_VERSIONS
def test_equals_python(models, tokenizer, answer, version):
  got = answer[version](tf.constant(_QUESTIONS), tf.constant(_CONTEXTS))
  expected = _in_python(models[version], tokenizer, _QUESTIONS, _CONTEXTS)
  _assert_equal(got, expected)
  # Without a threshold the best candidate is the answer.
  for name in ("answer", "start", "end"):
    n_best = got[f"n_best_{name}s"][:, 0]
    assert got[name].numpy().tolist() == n_best.numpy().tolist()
  np.testing.assert_array_equal(
    got["probability"], got["n_best_probabilities"][:, 0]
  )
  assert ("null_score_diff" in got) == (version == "squad2")
  dtypes = {
    "answer": tf.string,
    "n_best_answers": tf.string,
    **dict.fromkeys(("start", "end"), tf.int32),
    **dict.fromkeys(("n_best_starts", "n_best_ends"), tf.int32),
  }
  for name, value in got.items():
    assert value.dtype == dtypes.get(name, tf.float32), name
  texts = [text.decode() for text in got["answer"].numpy()]
  assert sum(map(bool, texts)) == 4 and texts[3:5] == ["", ""]
  none = tf.constant([], tf.string)
  nothing = answer[version](none, none)
  assert {name: value.shape for name, value in nothing.items()} == {
    name: [0, *value.shape[1:]] for name, value in got.items()
  }
  # Bytes that are not UTF-8 are no characters.
  clean, dirty = (
    answer[version](tf.constant([b"who?"]), tf.constant([context]))
    for context in (
      b"caf\xc3\xa9 oil rock",
      b"\xffcaf\xc3\xa9 o\xe6\x97il rock\xf0",
    )
  )
  for name, value in clean.items():
    np.testing.assert_array_equal(value, dirty[name])


def test_module_of_a_run_with_a_threshold(models, tokenizer_file, answer):
  asked = tf.constant(_QUESTIONS), tf.constant(_CONTEXTS)
  always = answer["squad2"](*asked)
  odds = always["null_score_diff"].numpy()
  threshold = float(odds[2])  # Equal odds keep the answer.
  module = _module(
    models, tokenizer_file, "squad2", null_score_diff_threshold=threshold
  )
  assert module.kind == "squad2" and module.text_signatures == ("answer",)
  assert module.settings() == {
    **_SETTINGS,
    "max_windows": serving.MAX_WINDOWS,
    "null_score_diff_threshold": threshold,
  }
  answer = module.text_functions()["answer"].get_concrete_function()
  got = answer(question=asked[0], context=asked[1])
  none = odds > threshold
  assert 0 < none.sum() < len(none) and not none[2]
  no_answer = {"answer": b"", "start": 0, "end": 0}
  no_answer["probability"] = 1 / (1 + np.exp(-odds))
  for name, values in no_answer.items():
    kept = always[name].numpy()
    np.testing.assert_array_equal(got[name].numpy()[~none], kept[~none])
    expected = np.where(none, values, kept)[none]
    if name == "probability":
      np.testing.assert_allclose(got[name][none], expected, rtol=1e-5)
    else:
      np.testing.assert_array_equal(got[name].numpy()[none], expected)
  np.testing.assert_array_equal(got["n_best_answers"], always["n_best_answers"])
  requests = module.example_requests({"answer": answer}, 3, 27)
  assert {name: texts.shape for name, texts in requests["answer"].items()} == {
    "question": (3,),
    "context": (3,),
  }


@_VERSIONS
def test_ids(models, tokenizer, tokenizer_file, version):
  module = _module(models, tokenizer_file, version)
  example = examples.SquadExample("0", _QUESTIONS[0], _CONTEXTS[1])
  (window,) = windows.make_windows(example, tokenizer, _LENGTH)
  size, length = len(window.input_ids), len(window.input_ids) + 3
  features = {
    "input_ids": tf.constant([[*window.input_ids, 0, 0, 0]]),
    "input_mask": tf.constant([[1] * size + [0] * 3]),
    "segment_ids": tf.constant([[*window.segment_ids, 0, 0, 0]]),
  }
  got = module.signatures("ids")["ids"](**features)
  p_mask = tf.constant([windows.p_mask(window, length)], tf.float32)
  expected = models[version]({**features, "p_mask": p_mask})
  assert set(got) == set(models[version].scores)
  for name, value in got.items():
    np.testing.assert_allclose(value, expected[name], atol=1e-5)
  bare = serving.AnswerQuestions(models[version], None, _LENGTH, {})
  assert set(bare.signatures("ids")) == {"ids", "examples"}
  assert bare.settings()["doc_stride"] == 128


_CLIENT = """
import json, sys
for name in ("official_albert", "tasks", "sentencepiece"):
  sys.modules[name] = None
import tensorflow as tf, tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
texts = json.load(open(sys.argv[2]))
got = answer(**{name: tf.constant(value) for name, value in texts.items()})
found = got["n_best_answers"].numpy().ravel()
print("RESULT" + json.dumps([text.decode() for text in found]))
"""


def test_saved_model_in_a_clean_process(models, tokenizer_file, tmp_path):
  module = _module(models, tokenizer_file, "squad2")
  kept = tf.Module()
  kept.text_layer = module.text_layer
  kept.answer = module.signatures("text")["answer"]
  path = tmp_path / "saved"
  options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
  signatures = {"serving_default": kept.answer}
  tf.saved_model.save(kept, str(path), signatures, options)
  saved = saved_model_pb2.SavedModel.FromString(
    (path / "saved_model.pb").read_bytes()
  )
  functions = saved.meta_graphs[0].graph_def.library.function
  assert not any(f.attr["_XlaMustCompile"].b for f in functions)
  operations = {node.op for f in functions for node in f.node_def}
  assert not [name for name in operations if "PyFunc" in name]
  assert "SentencepieceTokenizeWithOffsetsOp" in str(operations)
  texts = tmp_path / "texts.json"
  texts.write_text(json.dumps({"question": _QUESTIONS, "context": _CONTEXTS}))
  # "I" becomes another letter for those who do not look.
  environment = dict(os.environ, LC_ALL="tr_TR.UTF-8", LANG="tr_TR.UTF-8")
  done = subprocess.run(
    [sys.executable, "-I", "-c", _CLIENT, str(path), str(texts)],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  here = kept.answer(tf.constant(_QUESTIONS), tf.constant(_CONTEXTS))
  texts = [text.decode() for text in here["n_best_answers"].numpy().ravel()]
  assert json.loads(done.stdout.split("RESULT")[1]) == texts


def test_refused_requests(models, tokenizer_file):
  module = _module(
    models, tokenizer_file, "squad1", settings={"max_query_length": 40}
  )
  module.max_windows = 3
  answer = module.text_functions()["answer"].python_function

  def refused(message, questions, contexts):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
      answer(tf.constant(questions), tf.constant(contexts))

  refused("equally many", ["who?", "when?"], ["the rock"])
  refused("at most 3 windows in total", ["who?"], ["the rock " * 60])
  refused("must leave space for its context", ["why? " * 40], ["the rock"])


def test_bad_settings(models, tokenizer_file):
  for message, options in (
    ("max_seq_length is 4", {"max_seq_length": 4}),
    ("position embeddings", {"max_seq_length": _LENGTH + 3}),
    ("is for SQuAD 2.0", {"null_score_diff_threshold": 0.5}),
  ):
    with pytest.raises(ValueError, match=message):
      _module(models, tokenizer_file, "squad1", **options)


_WORDS = "a b c d e f g h i j k l m n o p q".split()


@pytest.fixture(scope="module")
def words(tmp_path_factory):
  """Returns a tokenizer of single letters, and the same in the graph."""
  folder = tmp_path_factory.mktemp("vocabulary")
  tokenizer = toy_models.wordpiece(folder, *_WORDS, "##x")
  path = str(folder / "vocab.txt")
  return tokenizer, in_graph.make_text_layer("wordpiece", path, True)


def _random_words(rng, most):
  chosen = rng.choice(_WORDS, rng.integers(0, most)).tolist()
  return "".join(word + rng.choice([" ", "  ", "x "]) for word in chosen)


@pytest.mark.parametrize("length,stride,query", [(13, 3, 4), (11, 70, 2)])
def test_windows_equal_python(models, words, length, stride, query):
  tokenizer, layer = words
  settings = {"doc_stride": stride, "max_query_length": query}
  module = serving.AnswerQuestions(models["squad1"], layer, length, settings)
  module.max_windows = 9999
  rng = np.random.default_rng(length)
  questions = ["", *(_random_words(rng, 9) for _ in range(60))]
  contexts = ["", *(_random_words(rng, 50) for _ in range(60))]
  features, got = module.make_windows(
    tf.constant(questions), tf.constant(contexts)
  )
  rows = [
    examples.SquadExample(str(i), *texts)
    for i, texts in enumerate(zip(questions, contexts))
  ]
  expected = list(
    windows.make_all_windows(rows, tokenizer, length, stride, query)
  )
  numbers = [int(window.question_id) for window in expected]
  assert got.counts.numpy().tolist() == np.bincount(numbers).tolist()
  assert len(set(numbers)) == 61 and max(got.counts.numpy()) > 2
  longest = max(len(window.input_ids) for window in expected)
  assert features["input_ids"].shape == [len(expected), longest]
  starts, ends = got.starts.numpy(), got.ends.numpy()
  for n, window in enumerate(expected):
    padding = [0] * (longest - len(window.input_ids))
    for name, values in (
      ("input_ids", window.input_ids),
      ("input_mask", [1] * len(window.input_ids)),
      ("segment_ids", window.segment_ids),
    ):
      assert features[name][n].numpy().tolist() == values + padding
    assert got.context_starts[n] == window.context_start
    first = int(got.first_tokens[n])
    part = slice(first, first + int(got.lengths[n]))
    assert starts[part].tolist() == window.token_starts
    assert ends[part].tolist() == window.token_ends
  none = tf.constant([], tf.string)
  features, got = module.make_windows(none, none)
  assert got.counts.shape == got.lengths.shape == [0]
  assert features["input_ids"].shape == [0, 1]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
