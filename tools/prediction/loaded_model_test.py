"""`official_albert.load`: the answers of exports, to the bit, and mistakes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import shutil
import tarfile
import warnings

import numpy as np
import pytest
import tensorflow as tf

import official_albert as albert
from official_albert import checkpoints, files, runs, tokenization
from official_albert.tools.testing import toy_data, toy_runs

_LABELS = ("bad", "good", "so so")
_RNG = np.random.default_rng(8)
_TEXTS = [
  " ".join(toy_data.sentence(_RNG, toy_data.GOOD) for _ in range(1 + i % 3))
  for i in range(7)
]
_PAIRS = _TEXTS[1:] + _TEXTS[:1]
_MASKS = [
  "the [MASK] tree",
  "by the sea a [MASK] day was [MASK] and old",
  "[MASK]",
]
_OPTIONS = ["cold", "größe 東京", "a tree", "by the sea"]
# Runs by name: the task, its labels, and the settings of its records.
_RUNS = {
  "classes": ("text_classification", _LABELS, {}),
  "pairs": ("text_pair_classification", _LABELS, {}),
  "several": ("text_pair_multi_label", _LABELS, {}),
  "numbers": ("stsb", None, {}),
  "squad2": ("squad_v2", None, {"doc_stride": 5, "max_query_length": 6}),
  "race": ("race", None, {"max_qa_length": 8}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with runs and their exports."""
  path = tmp_path_factory.mktemp("models")
  toy_runs.write_pretrained(str(path / "pretrained"))
  for name, (task, labels, settings) in _RUNS.items():
    toy_runs.write_finetuned(str(path / name), task, labels, 19, **settings)
  for name in ("pretrained", *_RUNS):
    if name != "pairs":
      top_k = 4 * (name == "pretrained")
      toy_runs.write_export(
        f"{path}/{name}.export", f"{path}/{name}", "text", top_k=top_k
      )
  return path


@pytest.fixture(scope="module")
def signatures(folder):
  """Returns the signatures of an export by its name."""

  def read(name):
    exports[name] = tf.saved_model.load(str(folder / f"{name}.export"))
    return exports[name].signatures

  exports = {}  # They own the tables of their graphs.
  return read


@pytest.fixture(scope="module")
def both(folder):
  """Loads a run and its export."""

  def load(name):
    paths = folder / name, folder / f"{name}.export"
    return [albert.load(path) for path in paths]

  return load


def _as_tensors(**texts):
  return {name: tf.constant(values) for name, values in texts.items()}


def _floats(values):
  """Numbers with nine digits are those of float32, to the bit."""
  return np.array(values, np.float32)


def test_vectors_are_those_of_the_export(both, signatures):
  model, exported = both("pretrained")
  encode, pairs = (
    signatures("pretrained")[x] for x in ("encode", "encode_pair")
  )
  one = encode(**_as_tensors(text=_TEXTS))
  two = pairs(**_as_tensors(text_a=_TEXTS, text_b=_PAIRS))
  for found in (model, exported):
    for name, expected in (
      ("pooler", one["pooled_output"]),
      ("cls", one["sequence_output"][:, 0]),
    ):
      vectors = found.embed(_TEXTS, pooling=name, normalize=False)
      np.testing.assert_array_equal(vectors, expected)
    vectors = found.embed(_TEXTS, _PAIRS, "pooler", normalize=False)
    np.testing.assert_array_equal(vectors, two["pooled_output"])
    assert found.embed(_TEXTS[0]).shape == (24,)
  hidden, mask = one["sequence_output"].numpy(), one["input_mask"].numpy()
  means = [rows[kept == 1].mean(0) for rows, kept in zip(hidden, mask)]
  largest = [rows[kept == 1].max(0) for rows, kept in zip(hidden, mask)]
  for name, expected in (("mean", means), ("max", largest)):
    found = model.embed(_TEXTS, pooling=name, normalize=False)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
  # By default, it is the mean of length 1.
  found = model.embed(_TEXTS, batch_size=1)
  lengths = np.linalg.norm(means, axis=1, keepdims=True)
  np.testing.assert_allclose(found, means / lengths, rtol=0, atol=1e-6)
  np.testing.assert_array_equal(model.embed(_TEXTS), exported.embed(_TEXTS))
  few = np.array(means)[:, :5]
  few /= np.linalg.norm(few, axis=1, keepdims=True)
  found = model.embed(_TEXTS, dimensions=5)
  np.testing.assert_allclose(found, few, rtol=0, atol=1e-6)
  cosines = model.similarity(_TEXTS, _TEXTS[0], dimensions=5)
  np.testing.assert_allclose(cosines, few @ few[:1].T, rtol=0, atol=1e-6)
  vectors = model.embed(_TEXTS, normalize=False)
  np.testing.assert_allclose(
    model.similarity(vectors, _TEXTS),
    (means / lengths) @ (means / lengths).T,
    rtol=0,
    atol=1e-6,
  )
  # Arrays of texts, and of numbers whose squares exceed float16.
  found = model.similarity(np.array(_TEXTS), _TEXTS)
  np.testing.assert_array_equal(found, model.similarity(_TEXTS, _TEXTS))
  large = np.full([2, few.shape[1]], 300, np.float16)
  found = model.similarity(large, np.ones(few.shape[1], int))
  np.testing.assert_allclose(found, np.ones([2, 1]), rtol=0, atol=1e-6)
  assert model.similarity([], _TEXTS).shape == (0, len(_TEXTS))
  for other in (vectors[:, :5], vectors[None]):
    with pytest.raises(ValueError, match=r"shapes \[N, H\] and \[M, H\], but"):
      model.similarity(other, _TEXTS)


def test_masks_are_filled_as_by_the_export(both, signatures):
  model, exported = both("pretrained")
  wanted = signatures("pretrained")["fill_mask"](**_as_tensors(text=_MASKS))
  # The default is what the export has; and the second answer is by a graph.
  answers = exported.fill_mask(_MASKS)
  assert answers == model.fill_mask(_MASKS, 4) == model.fill_mask(_MASKS, 4)
  assert [len(masks) for masks in answers] == [1, 2, 1]
  for row, masks in enumerate(answers):
    for column, pieces in enumerate(masks):
      values = [(x.token.encode(), x.id) for x in pieces]
      tokens, ids = (
        wanted[x].numpy()[row, column] for x in ("tokens", "token_ids")
      )
      assert values == list(zip(tokens, ids))
      found = _floats([x.probability for x in pieces])
      np.testing.assert_array_equal(found, wanted["probabilities"][row, column])
  # More pieces than by default, and fewer.
  (nine,), *_ = model.fill_mask(_MASKS, top_k=9)
  assert len(nine) == 9 and nine[:4] == answers[0][0]
  assert model.fill_mask(_MASKS)[0] == [nine[:5]]
  assert exported.fill_mask(_MASKS, top_k=np.int64(2))[0] == [nine[:2]]
  with pytest.raises(ValueError, match="--top_k, is 5, but must be from 1"):
    exported.fill_mask(_MASKS, top_k=5)
  with pytest.raises(ValueError, match=r"^texts\[1\]: every text must have a"):
    model.fill_mask(["[MASK]", "none"])


_ASKED = {
  **{"text": _TEXTS, "text_a": _TEXTS, "text_b": _PAIRS, "passage": _TEXTS},
  "question": ["the day was" * (1 + i % 2) for i in range(7)],
  "context": [text * (1 + i % 4) for i, text in enumerate(_TEXTS)],
  "options": [_OPTIONS[i % 4 :] + _OPTIONS[: i % 4] for i in range(7)],
}


@pytest.mark.parametrize(
  "run, method, inputs, outputs",
  [
    ("pretrained", "sentence_order", "text_a text_b", "swapped_probability"),
    ("numbers", "score", "text_a text_b", "score"),
    ("classes", "classify", "text", "label probabilities"),
    ("several", "classify", "text_a text_b", "label probabilities"),
    (
      *("squad2", "answer", "question context"),
      "probability start end null_score_diff",
    ),
    ("race", "choose", "passage question options", "choice probabilities"),
  ],
)
def test_answers_are_those_of_the_export(
  both, signatures, run, method, inputs, outputs
):
  model, exported = both(run)
  asked = {name: _ASKED[name] for name in inputs.split()}
  wanted = signatures(run)[method](**_as_tensors(**asked))
  answers = getattr(model, method)(*asked.values())
  assert answers == getattr(exported, method)(*asked.values())
  # From its second answer on, a run is asked by a graph.
  assert answers == getattr(model, method)(*asked.values())
  for output in outputs.split():
    found = answers
    if not isinstance(answers[0], float):
      name = {"choice": "index"}.get(output, output)
      found = [getattr(answer, name) for answer in answers]
    if run == "several" and output == "label":
      rows = wanted["labels"].numpy().tolist()
      assert found == [[x.decode() for x in row if x] for row in rows]
      probabilities = wanted["probabilities"].numpy()
      chosen = probabilities >= np.linspace(0.3, 0.7, len(_LABELS))
      np.testing.assert_array_equal(chosen, np.array(rows) != b"")
      assert 0 < chosen.mean() < 1 and max(probabilities.sum(1)) > 1
    elif output == "label":
      assert [label.encode() for label in found] == wanted[
        output
      ].numpy().tolist()
    else:
      if isinstance(found[0], dict):
        assert {tuple(row) for row in found} == {_LABELS}
        found = [list(row.values()) for row in found]
      np.testing.assert_array_equal(_floats(found), wanted[output])
  # One text instead of a list has one answer.
  one = getattr(model, method)(*(x[0] for x in asked.values()))
  assert isinstance(one, type(answers[0]))
  for answer, context in zip(answers, _ASKED["context"]):
    if method == "answer":
      assert answer.text == context[answer.start : answer.end] != ""
      assert answer.n_best[0]["text"] == answer.text
  for answer, row in zip(answers, _ASKED["options"]):
    assert method != "choose" or answer.option == row[answer.index]


def test_a_text_classifier_is_exported_like_a_run(
  folder, both, tmp_path, monkeypatch
):
  model, exported = both("classes")
  export = str(tmp_path / "1")
  # Trained in another precision.
  tf.keras.mixed_precision.set_global_policy("mixed_float16")
  try:
    classifier = albert.TextClassifier.from_checkpoint(
      str(folder / "classes"), _LABELS, max_seq_length=19
    )
    classifier.export(export, signatures="text")
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  assert albert.load(export).classify(_TEXTS) == model.classify(_TEXTS)
  # The same from the cache of Kaggle.
  handle = "team/albert/tensorFlow2/stars/1"
  cached = tmp_path / "models" / handle
  shutil.copytree(export, cached)
  cached.with_name("1.complete").touch()
  monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
  assert albert.load(handle).classify(_TEXTS) == model.classify(_TEXTS)
  ours, theirs = (
    json.loads(files.read_bytes(f"{x}/assets/export.json"))
    for x in (export, exported.source.checkpoint)
  )
  assert {**ours, "checkpoint": theirs["checkpoint"]} == theirs
  with pytest.raises(ValueError, match="no weights by .* give the run or the"):
    albert.TextClassifier.from_checkpoint(export, _LABELS)
  classifier.save(str(tmp_path / "stars.keras"))
  with pytest.raises(ValueError, match="file of Keras, .*keras.models.load_mo"):
    albert.load(tmp_path / "stars.keras")


def test_a_text_classifier_has_the_thresholds_of_the_run(folder, both):
  model, _ = both("several")
  texts = _TEXTS, _TEXTS[::-1]
  run, labels = str(folder / "several"), _LABELS[::-1]
  read, given, other = (
    albert.TextClassifier.from_checkpoint(
      run, names, multi_label=True, max_seq_length=19, **thresholds
    )
    for names, thresholds in (
      (labels, {}),
      (labels, {"thresholds": 0.5}),
      ([*labels[1:], "new"], {}),  # The head is not that of the run.
    )
  )
  for ours, theirs in zip(read.classify(texts), model.classify(*texts)):
    assert {*ours.label} == {*theirs.label}
  np.testing.assert_allclose(
    read.thresholds, np.linspace(0.7, 0.3, len(labels))
  )
  assert {*given.thresholds, *other.thresholds} == {0.5}


def test_empty_lists_and_generators(both):
  for model in both("race"):
    assert model.choose([], [], []) == []
    texts = _TEXTS[:2], ["the day was _ ."] * 2, [_OPTIONS, _OPTIONS[::-1]]
    generators = [iter(x) for x in texts[:2]]
    options = (iter(row) for row in texts[2])
    assert model.choose(*generators, options) == model.choose(*texts)
  for model in both("pretrained"):
    assert model.embed([], []).shape == (0, 24)
    assert model.fill_mask([]) == model.sentence_order([], []) == []


def test_threads_may_ask_for_other_numbers_of_pieces(folder):
  model = albert.load(folder / "pretrained")
  numbers = [47, 1, 9] * 8
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = list(
      pool.map(lambda k: model.fill_mask(_MASKS[0], k)[0], numbers)
    )
  assert answers == [answers[0][:top_k] for top_k in numbers]
  # Requests leave nothing behind.
  (answer,) = model.backend("fill_mask")([{"text": _MASKS[0]}])
  assert answer["tokens"].shape == (1, 5)


def test_methods_share_one_copy_of_the_weights(folder):
  model = albert.load(folder / "classes")
  whole, encoder = (
    {
      id(captured)
      for captured in function.captured_inputs
      if captured.dtype == tf.resource
    }
    for function in (
      model._module.text_signature("classify"),
      model._encoder.text_signature("encode"),
    )
  )
  assert encoder <= whole


def test_formats_of_a_pretrained_model(folder, tmp_path):
  """All are asked without a copy in the format of this package."""
  run = str(folder / "pretrained")
  read = checkpoints.read_checkpoint(run)
  prefix = runs.find_prefix(run)
  (tmp_path / "tf1").mkdir()
  checkpoints.WRITERS["tf1"](read, str(tmp_path / "tf1"))
  with tarfile.open(tmp_path / "tf1.tar.gz", "w:gz") as archive:
    archive.add(tmp_path / "tf1", "tf1")
  expected = albert.load(run).fill_mask(_MASKS)
  for path in (prefix, tmp_path / "tf1.tar.gz"):
    model = albert.load(path)
    assert model.methods == ("embed", "fill_mask", "sentence_order")
    assert model.fill_mask(_MASKS) == expected, path
  shorter = albert.load(run, max_seq_length=9)
  assert len(shorter.fill_mask("[MASK]" * 20)) == 7


def test_heads_that_another_format_lacks(folder, tmp_path):
  read = checkpoints.read_checkpoint(str(folder / "pretrained"))
  expected = albert.load(folder / "pretrained")
  for head in ("masked_lm", "none"):
    (tmp_path / head).mkdir()
    read.head = head
    checkpoints.WRITERS["hf"](read, str(tmp_path / head))
  # A masked LM of Hugging Face has no pooler.
  model = albert.load(tmp_path / "masked_lm")
  assert model.methods == ("embed", "fill_mask")
  assert model.fill_mask(_MASKS) == expected.fill_mask(_MASKS)
  assert model.backend().roles == ("text",)
  toy_runs.write_export(f"{tmp_path}/1", f"{tmp_path}/masked_lm", "text")
  export = albert.load(tmp_path / "1")
  for one in (model, export):
    with pytest.raises(ValueError, match="no weights of the pooler: use pool"):
      one.embed(_TEXTS, pooling="pooler")
    with pytest.raises(ValueError, match="pooler, .* encode needs: use"):
      one.backend("encode")
  means = [x.embed(_TEXTS, pooling="mean") for x in (export, model)]
  np.testing.assert_array_equal(*means)
  model = albert.load(tmp_path / "none")
  assert model.methods == ("embed",) and "is an encoder" in repr(model)
  np.testing.assert_array_equal(model.embed(_TEXTS), expected.embed(_TEXTS))


def test_classifiers_that_do_not_name_their_task(folder, tmp_path):
  pairs = [_TEXTS, _PAIRS]
  for name, texts in (
    ("classes", [_TEXTS]),
    ("pairs", pairs),
    ("several", pairs),
  ):
    (tmp_path / name).mkdir()
    read = checkpoints.read_checkpoint(str(folder / name))
    read.task = ""
    checkpoints.WRITERS["hf"](read, str(tmp_path / name))
    model = albert.load(tmp_path / name, max_seq_length=19)
    expected = albert.load(folder / name).classify(*texts)
    found = model.classify(*texts)
    if name == "several":  # Their thresholds are not carried.
      found, expected = (
        [x.probabilities for x in y] for y in (found, expected)
      )
    assert found == expected
  path = tmp_path / name / "tokenizer_config.json"
  settings = json.loads(path.read_text())
  path.write_text(json.dumps({**settings, "model_input_names": ["input_ids"]}))
  with pytest.warns(UserWarning, match=f"{name}: .*segment 0; here the second"):
    albert.load(tmp_path / name)
  path = tmp_path / "classes" / "config.json"
  text = path.read_text()
  assert "single_label" in text
  path.write_text(text.replace("single_label", "multi_label"))
  found = albert.load(path.parent).classify(_TEXTS)[0].probabilities
  assert sum(found.values()) != pytest.approx(1, abs=1e-3)
  path.write_text(text.replace("single_label", "no_label"))
  model = albert.load(path.parent)
  assert model.methods == ("embed",)
  with pytest.raises(ValueError, match="'problem_type' is 'no_label_classif"):
    model.classify(_TEXTS)


def test_a_tokenizer_of_the_users(folder, tmp_path):
  read = checkpoints.read_checkpoint(str(folder / "pretrained"))
  read.tokenizer = None
  model = albert.load(checkpoints.WRITERS["tf1"](read, str(tmp_path)))
  assert model.tokenizer is None
  with pytest.raises(ValueError, match="has no tokenizer, which texts need"):
    model.embed(_TEXTS)
  own = str(folder / "pretrained/tokenizer.model")
  files.copy(own, str(tmp_path / "x.model"))
  model = albert.load(folder / "pretrained", tokenizer=tmp_path / "x.model")
  assert model.fill_mask("a [MASK]")
  toy_runs.write_tokenizer(str(tmp_path), seed=6)
  with pytest.raises(ValueError, match="is not the tokenizer that the model"):
    albert.load(folder / "pretrained", tokenizer=tmp_path / "tokenizer.model")


def test_the_rules_of_a_tokenizer_go_everywhere(folder, tmp_path):
  read = checkpoints.read_checkpoint(str(folder / "classes"))
  rules = tokenization.TextRules(False, True)
  read.tokenizer = dataclasses.replace(read.tokenizer, rules=rules)
  own, hf, export = (str(tmp_path / name) for name in ("own", "hf", "1"))
  for kind, path in (("official_albert", own), ("hf", hf)):
    files.make_folder(path)
    checkpoints.WRITERS[kind](read, path)
  toy_runs.write_export(export, own, "text")
  tokenizers = [albert.load(x).tokenizer for x in (own, hf, export)]
  for tokenizer in tokenizers:
    assert tokenizer.rules == rules
    ids = tokenizer.encode_batch(["The s\u00e5 old", "the sa old"])
    assert ids == tokenizers[0].encode_batch(["The s\u00e5 old", "the sa old"])
  again = albert.load(own, keep_accents=False).tokenizer
  assert again.encode("s\u00e5") == again.encode("sa")


def test_unknown_text_is_warned_of_once(folder):
  model = albert.load(folder / "classes")
  with pytest.warns(UserWarning, match="2 texts have only unknown tokens"):
    vectors = model.embed(["\u6771", "\u4eac"])
  np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    # Rows of one product may be rounded differently.
    np.testing.assert_array_equal(*map(model.embed, ("\u6771", "\u4eac")))
    model.classify(["\u6771"])


def test_mistakes_are_one_sentence(both):
  model, exported = both("pretrained")
  classes, exported_classes = both("classes")
  race, _ = both("race")
  surrogate = r"contains the lone surrogate '\\ud800'\.$"
  values = (
    (lambda: model.classify("a"), "cannot classify: its methods are"),
    (lambda: exported_classes.embed("a"), "cannot embed: its methods"),
    (lambda: model.embed(["a"], ["b", "c"]), "1 texts, 2 texts_b"),
    (lambda: model.embed("a", pooling="sum"), "must be one of mean, cls"),
    (
      lambda: model.embed("a", dimensions=25),
      "dimensions is 25, but must be from 0 to 24",
    ),
    (
      lambda: model.embed("a", batch_size=0),
      "batch_size is 0, but must be at least 1",
    ),
    (lambda: model.embed(["a", "a \ud800"]), rf"^texts\[1\] {surrogate}"),
    (lambda: model.fill_mask("[MASK]", 0), "must be from 1 to 47"),
    (lambda: model.fill_mask("[MASK]", 5.5), "top_k is 5.5, but"),
    (lambda: classes.classify("a", "b"), "leave texts_b out"),
    (lambda: race.choose("a", "b", "cdef"), "options must be lists of 4"),
    (
      lambda: albert.load(exported.source.checkpoint, lower_case=False),
      "fixed lower_ca",
    ),
    (
      lambda: albert.load(exported.source.checkpoint, tokenizer=__file__),
      "fixed tokenizer: leave it out",
    ),
  )
  types = (
    (lambda: model.embed([3]), r"texts\[0\] is 3, but must be a str"),
    (lambda: model.embed(3), "texts must be a text or a list of texts"),
    (lambda: race.choose("a", "b", None), r"options\[0\] must be a text or a"),
    (lambda: race.choose(["a"], ["b"], None), "options is None, but must be l"),
    (lambda: race.choose("a", "b", [1] * 4), r"options\[0\]\[0\] is 1"),
  )
  paths = ((lambda: albert.load("/no/model"), "no checkpoint at /no/model"),)
  all_cases = {ValueError: values, TypeError: types, FileNotFoundError: paths}
  for error, cases in all_cases.items():
    for call, message in cases:
      with pytest.raises(error, match=message) as caught:
        call()
      assert "\n" not in str(caught.value)


_ODD_TEXTS = ["the sunny sea was cold", "", "Straße é ﬁ½ 😀 old rain"]


@pytest.mark.parametrize(
  "pooling, normalize", [("mean", True), ("cls", False), ("pooler", True)]
)
def test_the_export_and_copies_of_a_run_have_its_vectors(
  tmp_path, pooling, normalize
):
  run, export, own = (str(tmp_path / x) for x in ("run", "1", "own"))
  settings = {"pooling": pooling, "normalize": normalize}
  toy_runs.write_finetuned(run, "text_embedding", None, 9, **settings)
  toy_runs.write_export(export, run)
  files.make_folder(own)
  checkpoints.WRITERS["official_albert"](checkpoints.read_checkpoint(run), own)
  loaded = albert.load(run)
  assert loaded.kind == "embedding" and loaded.methods == ("embed",)
  assert vars(loaded.pooling) == settings
  found = loaded.embed(_ODD_TEXTS)
  lengths = np.linalg.norm(found, axis=1)
  assert np.allclose(lengths, 1, atol=1e-6) == normalize
  for path in (export, own):
    np.testing.assert_array_equal(albert.load(path).embed(_ODD_TEXTS), found)
  # Other poolings are computed from the same weights.
  plain = loaded.embed(_ODD_TEXTS, pooling=pooling, normalize=not normalize)
  unit = found / lengths[:, None]
  np.testing.assert_allclose(
    plain / np.linalg.norm(plain, axis=1)[:, None], unit, atol=1e-6
  )
  with pytest.raises(ValueError, match="only has the vectors of single texts"):
    albert.load(export).embed(_ODD_TEXTS, normalize=not normalize)
  short = loaded.embed(_ODD_TEXTS[0], dimensions=5)
  expected = found[0, :5]
  if normalize:
    expected = expected / np.linalg.norm(expected)
  np.testing.assert_allclose(short, expected, rtol=1e-6)
