"""Tests of `TextClassifier`: what it takes, learns, refuses and saves."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import (
  AdamW,
  TextClassifier,
  checkpoints,
  runs,
  text_batches,
  training,
)
from official_albert import labels as labels_lib
from official_albert.testing import toy_models

_ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = ("good", "bad", "the", "mill", "was", "very", ".")
GOOD = [f"The mill was {'very ' * (i % 7)}good." for i in range(25)]
BAD = [f"The mill was {'very ' * (i % 5)}bad." for i in range(25)]
TEXTS = [text for pair in zip(GOOD, BAD) for text in pair]
LABELS = ["pos", "neg"] * 25


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  return toy_models.wordpiece(tmp_path_factory.mktemp("vocabulary"), *WORDS)


def made(tokenizer, labels=("neg", "pos"), seed=1, sharing="all", **kwargs):
  tf.keras.utils.set_random_seed(seed)
  config = toy_models.config(tokenizer.vocab_size, 32)
  config = dataclasses.replace(config, sharing=sharing)
  return TextClassifier(config, tokenizer, labels, max_seq_length=24, **kwargs)


@pytest.fixture(scope="module")
def trained(tokenizer):
  classifier = made(tokenizer)
  classifier.compile(AdamW(0.01))
  history = classifier.fit(
    TEXTS, LABELS, batch_size=8, epochs=20, validation_split=0.2, verbose=0
  )
  return classifier, history.history


def test_iterators_of_batches_end_at_once():
  """A sleeping autotuner would be waited for; see `distribution.untuned`."""
  names = ("input_ids", "input_mask", "segment_ids")
  ids = dict.fromkeys(names, np.ones([5, 16], np.int32))
  batches = text_batches.make_batches([ids], 2, has_one_length=False)
  assert batches.options().autotune.enabled is False
  assert [len(x["input_ids"]) for (x,) in batches] == [2, 2, 1]


def test_it_learns_from_texts(trained):
  classifier, history = trained
  assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
  assert history["val_accuracy"][-1] == 1.0
  probabilities = classifier.predict(TEXTS, verbose=0)
  assert probabilities.dtype == np.float32 and probabilities.shape == (50, 2)
  np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
  # In the order of the texts, and as if each was alone.
  inputs = classifier.tokenizer(TEXTS[:5])
  np.testing.assert_allclose(classifier(inputs), probabilities[:5], atol=1e-6)
  assert (probabilities.argmax(axis=1) == np.arange(1, 51) % 2).all()
  loss, accuracy = classifier.evaluate(TEXTS, LABELS, verbose=0)
  right = probabilities[np.arange(50), np.arange(1, 51) % 2]
  np.testing.assert_allclose(loss, -np.log(right).mean(), rtol=1e-4)
  assert accuracy == 1.0


def test_labels_with_probabilities(trained):
  classifier, _ = trained
  answer = classifier.classify("Very good.")
  expected = classifier.predict("Very good.", verbose=0)[0].tolist()
  assert answer.label == "pos"
  assert answer.probabilities == {"neg": expected[0], "pos": expected[1]}
  answers = classifier.classify(["bad", "good"])
  assert [answer.label for answer in answers] == ["neg", "pos"]
  assert classifier.classify("good", "bad") != classifier.classify("good")
  assert classifier.predict([]).shape == (0, 2)


def slices(*arrays):
  parts = arrays if len(arrays) > 1 else arrays[0]
  return tf.data.Dataset.from_tensor_slices(parts)


def test_all_forms_of_texts_and_labels_are_the_same(trained):
  """Also with weights of the texts."""
  classifier, _ = trained
  texts, names, indices = TEXTS[:10], LABELS[:10], np.array([1, 0] * 5)
  weights = np.linspace(0.5, 2.0, 10)
  expected = classifier.evaluate(texts, names, 4, sample_weight=weights)
  for x, y in (
    (np.array(texts), np.array(names)),
    (np.array(texts, "S"), indices[:, None].astype(np.float64)),
    (tf.constant(texts), tf.constant(names)),
    (texts, indices.astype(bool)),
  ):
    for given, more in (
      ((x, y), {"sample_weight": weights}),
      ((slices(x, y, weights[:, None]).batch(3),), {}),
    ):
      found = classifier.evaluate(*given, verbose=0, **more)
      np.testing.assert_allclose(found, expected, rtol=1e-5)
  predicted = classifier.predict(texts, verbose=0)
  generated = tf.data.Dataset.from_generator(lambda: iter(texts), tf.string)
  # The second one as GLUE's tests.
  for given in (slices(texts), slices(texts, [-1] * 10), generated):
    found = classifier.predict(given, verbose=0)
    np.testing.assert_allclose(found, predicted, atol=1e-6)


class _Batches(tf.keras.utils.Sequence):
  __len__ = __getitem__ = None


def test_metrics_and_losses_of_keras(trained):
  """Those that take indices; others are refused by name."""
  metrics, losses = tf.keras.metrics, tf.keras.losses

  def chosen(y_true, y_pred):
    best = tf.cast(tf.argmax(y_pred, -1), y_true.dtype)
    return tf.cast(best == y_true[:, 0], tf.float32)

  classifier = TextClassifier.from_config(trained[0].get_config())
  classifier.compile(
    loss=losses.SparseCategoricalCrossentropy(),
    metrics=["acc", metrics.SparseCategoricalAccuracy(name="sparse"), chosen],
  )
  found = classifier.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
  assert found["acc"] == found["sparse"] == found["chosen"]
  for metric in (metrics.AUC(), metrics.F1Score(), "categorical_accuracy"):
    with pytest.raises(ValueError, match="takes one-hot labels, but"):
      classifier.compile(metrics=[metric])
  with pytest.raises(ValueError, match="categoricalcrossentropy takes one-hot"):
    classifier.compile(loss=losses.CategoricalCrossentropy())


SEVERAL = [["pos", "pos_pair"], [], ["neg"]] * 12
SEVERAL_TEXTS = ["very good the", "mill was .", "bad the"] * 12
NAMES = ("neg", "pos", "pos_pair")


@pytest.fixture(scope="module")
def several(tokenizer):
  classifier = made(tokenizer, NAMES, multi_label=True)
  classifier.compile(AdamW(0.01))
  history = classifier.fit(
    SEVERAL_TEXTS, SEVERAL, 6, 40, validation_split=0.25, verbose=0
  )
  return classifier, history.history


def test_a_text_may_have_several_labels(several, tmp_path):
  new = made(several[0].tokenizer, NAMES, multi_label=True, dtype="float64")
  assert new.model.classifier.output_weights.numpy().std() > 0.4
  classifier, history = several
  assert {*history} >= {"loss", "val_loss", "val_binary_accuracy"}
  gold = np.array([[x in row for x in NAMES] for row in SEVERAL])
  chances = classifier.predict(SEVERAL_TEXTS, verbose=0)
  assert ((chances > 0.5) == gold).all()
  # The loss is the mean over texts and labels, in any form of the labels.
  right = -np.log(np.where(gold, chances, 1 - chances))
  weights = np.linspace(0.5, 2, len(gold))
  expected = (right.mean(axis=1) * weights).mean()
  numbers = [np.flatnonzero(row) for row in gold]
  dataset = tf.data.Dataset.from_tensor_slices((SEVERAL_TEXTS, gold, weights))
  for y in (SEVERAL, gold, gold.astype(np.float64).tolist(), numbers):
    found = classifier.evaluate(
      SEVERAL_TEXTS, y, sample_weight=weights, verbose=0
    )
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
  found = classifier.evaluate(dataset, verbose=0)
  np.testing.assert_allclose(found[0], expected, rtol=1e-5)
  assert classifier.classify("very good the").label == ["pos", "pos_pair"]
  assert classifier.classify(["mill was ."])[0].label == []
  # The thresholds of other labels are saved and served.
  classifier.choose_thresholds(SEVERAL_TEXTS[:3], [["neg"], ["neg"], ["neg"]])
  assert classifier.thresholds[0] < chances[:, 0].min()
  assert classifier.thresholds[1:] == [0.5, 0.5]
  expected = classifier.classify("very good the")
  assert expected.label == [*NAMES]
  classifier.save(tmp_path / "several.keras")
  loaded = tf.keras.models.load_model(tmp_path / "several.keras")
  assert loaded.thresholds == classifier.thresholds
  assert loaded.classify("very good the") == expected
  loaded.fit(SEVERAL_TEXTS, SEVERAL, verbose=0)
  classifier.export(str(tmp_path / "1"))
  served = tf.saved_model.load(str(tmp_path / "1")).signatures["classify"]
  found = served(text=tf.constant(["very good the"]))
  assert found["labels"].numpy().tolist() == [[x.encode() for x in NAMES]]
  chances = [*expected.probabilities.values()]
  np.testing.assert_allclose(found["probabilities"][0], chances, atol=1e-6)


def test_wrong_labels_of_several_are_refused(several, tokenizer):
  classifier, _ = several
  for y, named in (
    (["pos", "neg"], "the labels of a text are 'pos', but must be a list"),
    ([["pos"], ["new"]], "label 'new' is unknown"),
    ([[0.5, 0, 1], [0, 1, 1]], "label 0.5 is unknown"),
    ([[0, 1], [0, 0]], r"a label twice in \[0, 0\]: .* \[N, 3\]"),
    ([["pos"]], r"2 texts, but the labels have the shape \[1, 3\]"),
  ):
    with pytest.raises(ValueError, match=named):
      classifier.fit(["good", "bad"], y)
  with pytest.raises(ValueError, match="class_weight is for one class"):
    classifier.fit(["good"], [["pos"]], class_weight={"pos": 2.0})
  with pytest.raises(ValueError, match="labels are None, but must"):
    made(tokenizer, None, multi_label=True)
  for wrong in ([0.5, 0.5], 1.5, [0.5, float("nan"), 0.5]):
    with pytest.raises(ValueError, match="for each of the 3 labels"):
      made(tokenizer, NAMES, multi_label=True, thresholds=wrong)
  with pytest.raises(ValueError, match="thresholds are for multi_label=True"):
    made(tokenizer, NAMES, thresholds=0.7)
  with pytest.raises(ValueError, match=r"2 texts, but .* \[3, 3\]"):
    classifier.choose_thresholds(["good", "bad"], [["pos"], ["neg"], []])
  with pytest.raises(ValueError, match="a model with multi_label=True"):
    made(tokenizer, NAMES).choose_thresholds(["good"], ["pos"])


def test_integers_are_names_if_the_names_are_integers():
  names = labels_lib.names_of([3, 1, 2])
  given = [1, 2, "3", np.int64(3), b"2", 1.0]
  assert labels_lib.to_classes(given, names).tolist() == [1, 2, 0, 0, 2, 1]
  with pytest.raises(ValueError, match="label 0 is unknown: .* 3, 1, 2"):
    labels_lib.to_classes([1, 0], names)
  with pytest.raises(ValueError, match=f"label {10**30} is unknown"):
    labels_lib.to_classes([10**30], names)


def test_batches_hold_texts_of_similar_length_once(tokenizer):
  classifier = made(tokenizer)
  texts = [f"The mill was {'very ' * (i % 17)}good." for i in range(1000)]
  features = classifier._features(texts)
  numbers = np.arange(1000, dtype=np.int32)
  epochs = []
  for _ in range(2):
    batches = list(classifier._batches((features, numbers), 16, "shuffled"))
    seen = np.concatenate([rows for _, rows in batches])
    assert sorted(seen) == numbers.tolist() and len(batches[-1][1]) == 8
    epochs.append(seen.tolist())
    lengths = [features["input_ids"].shape[1] for features, _ in batches]
    # Of 17 texts, 7 have more than 16 tokens; of 16 texts, almost always one.
    assert set(lengths) == {16, 24} and np.mean(lengths) < 20
  assert epochs[0] != epochs[1]
  classifier.compile(jit_compile=True)
  batches = classifier._batches((features, numbers), 16)
  assert {x["input_ids"].shape[1] for x, _ in batches} == {24}


def test_a_model_of_one_segment_takes_single_texts(tokenizer, tmp_path):
  config = toy_models.config(tokenizer.vocab_size, 32, type_vocab_size=1)
  model = TextClassifier(config, tokenizer, ["a", "b"], 24)
  assert len(model.predict(["good", "bad"], verbose=0)) == 2
  for ask in (
    lambda: model.predict((["good"], ["bad"]), verbose=0),
    lambda: model.export(str(tmp_path / "1"), pairs=True),
  ):
    with pytest.raises(ValueError, match="type_vocab_size 1"):
      ask()
  assert not (tmp_path / "1").exists()


def test_pairs_of_texts_of_a_dataset(tokenizer):
  """Its batches are those of the training."""
  model = made(tokenizer, ["no", "yes", "perhaps"])
  model.compile()
  texts = (TEXTS[:10], [BAD[0]] * 10)
  dataset = slices(texts, ["no", "perhaps"] * 5)
  history = model.fit(
    dataset.batch(4), epochs=2, validation_data=dataset, verbose=0
  )
  assert model.optimizer.iterations == 2 * 3
  assert len(history.history["val_loss"]) == 2
  expected = model(model.tokenizer(*texts, max_seq_length=24))
  outputs = model.predict(texts, verbose=0)
  np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.parametrize("label", ["grand", 2, 0.5, float("nan"), -1.0])
def test_unknown_labels_are_refused(trained, label):
  for given in ((["good"], [label]), (slices(["a"], [label]),)):
    with pytest.raises(ValueError, match=f"^label {label!r} is unknown"):
      trained[0].fit(*given)


@pytest.mark.parametrize(
  "call, message",
  [
    # Several labels of a text.
    (lambda c: c.fit(["good"], [[0, 1, 0]]), r"multi-label.* \[1, 3\]"),
    (lambda c: c.fit(slices(["a"], [[1, 1]])), "multi-label"),
    (lambda c: c.fit(["a", "b"], [["neg"], ["neg", "pos"]]), "multi-label"),
    (lambda c: c.fit(["good"], ["neg|pos"]), "multi-label"),
    # Numbers of texts, labels and weights.
    (lambda c: c.fit(["good"]), "labels are missing"),
    (lambda c: c.fit(slices(["a"])), "labels are missing"),
    (lambda c: c.fit(["good"], [0, 1]), r"1 texts, .* labels .*\[2\]"),
    (
      lambda c: c.fit(["good"], [1], sample_weight=[1, 2]),
      r"1 texts, .* weights .*\[2\]",
    ),
    (lambda c: c.evaluate([], []), "there are no texts"),
    (lambda c: c.fit(slices(["a"], [1]).take(0)), "there are no texts"),
    (lambda c: c.fit(["a"], [1], validation_split=0.5), "0.5, which leaves no"),
    # Before rows are read, or a model is built.
    (lambda c: c.fit(iter("a"), validation_split=1.5), "split is 1.5, but"),
    (lambda c: c.fit(iter("a"), validation_split=np.nan), "split is nan, but"),
    (lambda c: c.export("x", precision="float16"), "precision is 'float16'"),
    (lambda c: c.export("x", signatures="id"), "signatures is 'id', but"),
    (lambda c: c.export(os.path.dirname(__file__)), "filepath .* not empty"),
    # Other forms of data.
    (lambda c: c.fit(slices(["a"], [1]), [1]), "leave y and sample_weight"),
    (lambda c: c.fit(slices(["a"], [1]).repeat()), "leave repeat.. out"),
    (lambda c: c.fit(slices({"text": ["a"]}, [1])), "not a dict"),
    (lambda c: c.fit(_Batches()), "not a _Batches: collect them in a list"),
    (lambda c: c.predict(iter(["a"])), "not a list_iterator: collect"),
    (lambda c: c.predict(("a", "b", "c")), "pair of two lists"),
    (lambda c: c.predict(("a", "b")), "pair of two lists"),
    (lambda c: c.predict(()), "pair of two lists"),
    (lambda c: c.predict(["good"], steps=1), "steps is not supported"),
    (lambda c: c(tf.constant(["good"])), "fit, evaluate, predict"),
    (lambda c: c.score("good"), "use classify"),
  ],
)
def test_calls_that_are_refused(trained, call, message, monkeypatch):
  monkeypatch.setattr(type(trained[0].model), "from_config", None)
  with pytest.raises((ValueError, FileExistsError), match=message):
    call(trained[0])


def test_other_models_are_refused(tokenizer):
  for labels in ("neg", ["neg"], ["neg", "neg"], 2, {"a": 0, "b": 1}):
    with pytest.raises(ValueError, match="different names of two or more"):
      made(tokenizer, labels)
  with pytest.raises(ValueError, match=r"label 'a\\tb' contains a tab"):
    made(tokenizer, ["a\tb", "c"])
  for vocab_size, length, message in (
    (11, 24, "has 12 pieces, but .* vocab_size 11"),
    (13, 24, "24 exceeds the model's 16 position"),
    (13, 2, "max_seq_length is 2, but"),
  ):
    with pytest.raises(ValueError, match=message):
      config = toy_models.config(vocab_size, 16)
      TextClassifier(config, tokenizer, None, length)
  regression = made(tokenizer, None)
  for y, message in (
    (["pos"], "must be numbers: could not convert"),
    ([float("nan")], "not a finite number"),
    ([7, 7], "different numbers to learn from"),
  ):
    with pytest.raises(ValueError, match=message):
      regression.fit(["good"] * len(y), y, verbose=0)
  with pytest.raises(ValueError, match="class_weight is for one class"):
    regression.fit(["good", "bad"], [1, 2], class_weight={0: 2.0})


def test_class_weights_multiply_the_weights_of_texts(tokenizer):
  weights = np.linspace(0.5, 2.0, 10)
  expected = weights * np.where(np.array(LABELS[:10]) == "pos", 3.0, 1.0)
  classifier = made(tokenizer, classifier_dropout_prob=0.0)
  classifier.compile(AdamW(0.0), run_eagerly=True)  # Keeps the weights.
  losses = [
    classifier.fit(
      TEXTS[:10], LABELS[:10], 10, verbose=0, sample_weight=x, class_weight=y
    ).history["loss"][0]
    for x, y in ((weights, {"pos": 3}), (expected, None), (weights, None))
  ]
  np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
  assert abs(losses[0] - losses[2]) > 0.1


def test_frozen_layers_are_exported_with_their_weights(tokenizer, tmp_path):
  classifier = made(tokenizer, sharing="attention")
  first_block, *_ = classifier.model.albert.encoder.blocks()
  first_block[1].trainable = False
  classifier.export(str(tmp_path / "1"), signatures="text")
  exported = tf.saved_model.load(str(tmp_path / "1"))
  answers = exported.signatures["classify"](text=tf.constant(TEXTS[:3]))
  expected = classifier.predict(TEXTS[:3], verbose=0)
  np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-6)


_NEW_PROCESS = """
import sys
import numpy as np
import official_albert
import tensorflow as tf
classifier = tf.keras.models.load_model(sys.argv[1])
np.save(sys.argv[2], classifier.predict(["Very good.", "bad"], verbose=0))
"""


def test_a_file_has_all_that_another_process_needs(trained, tmp_path):
  classifier, _ = trained
  path, outputs = str(tmp_path / "stars.keras"), str(tmp_path / "outputs.npy")
  classifier.save(path)
  os.rename(classifier.tokenizer.model_file, tmp_path / "elsewhere")
  subprocess.run(
    [sys.executable, "-c", _NEW_PROCESS, path, outputs], cwd=_ROOT, check=True
  )
  expected = classifier.predict(["Very good.", "bad"], verbose=0)
  np.testing.assert_array_equal(np.load(outputs), expected)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_keras_habits(tokenizer, precision, tmp_path):
  """Precision, callbacks, and a file in another precision."""
  path = str(tmp_path / "best.keras")
  classifier = made(tokenizer, dtype=precision)
  classifier.compile(AdamW(0.01), metrics=["accuracy"], run_eagerly=True)
  callbacks = [
    tf.keras.callbacks.EarlyStopping(patience=3),
    tf.keras.callbacks.ModelCheckpoint(path),
  ]
  texts, labels = TEXTS[:8], LABELS[:8]
  classifier.fit(
    *(texts, labels, 4, 2),
    validation_data=(texts[:6], labels[:6]),
    verbose=0,
    callbacks=callbacks,
  )
  expected = classifier.predict(texts, verbose=0)
  loaded = tf.keras.models.load_model(path)
  assert loaded.dtype_policy.name == precision
  np.testing.assert_array_equal(loaded.predict(texts, verbose=0), expected)
  is_scaled = precision == "mixed_float16"
  assert hasattr(loaded.optimizer, "inner_optimizer") == is_scaled
  loaded.fit(texts, labels, verbose=0)
  clone = TextClassifier.from_config(loaded.get_config())
  assert clone.get_config() == loaded.get_config()
  assert tf.keras.mixed_precision.global_policy().name == "float32"


_TWO_DEVICES = """
import sys
import numpy as np
import tensorflow as tf
from official_albert import AdamW, distribution
from official_albert.text_classifier_test import LABELS, TEXTS, made
from official_albert.tokenization import WordPieceTokenizer
strategy = distribution.make_strategy("mirrored", 2)
def trained():
  classifier = made(
    WordPieceTokenizer(sys.argv[1]), classifier_dropout_prob=0.0
  )
  classifier.set_weights([np.sin(x * 7.0) for x in start])
  classifier.compile(AdamW(0.01))
  classifier.fit(TEXTS[:10], LABELS[:10], 4, verbose=0, shuffle=False)
  return classifier
start = made(WordPieceTokenizer(sys.argv[1])).get_weights()
one = trained()
with strategy.scope():
  two = trained()
  two.export(sys.argv[1] + ".export")
found, expected = (x.predict(TEXTS[:9], verbose=0) for x in (one, two))
np.testing.assert_allclose(found, expected, atol=1e-4)
model = tf.saved_model.load(sys.argv[1] + ".export")
answers = model.signatures["classify"](text=tf.constant(TEXTS[:9]))
np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-6)
"""


@pytest.mark.heavy
def test_two_devices(tmp_path):
  tokenizer = toy_models.wordpiece(tmp_path, *WORDS)
  subprocess.run(
    [sys.executable, "-c", _TWO_DEVICES, tokenizer.model_file],
    cwd=_ROOT,
    check=True,
  )


def test_a_regression_learns_numbers_of_any_scale(tokenizer, tmp_path):
  texts, numbers = ["Very good.", "bad bad", "good", "bad"] * 8, [70, 40] * 16
  classifier = made(tokenizer, None)
  classifier.compile(AdamW(0.01))
  rows = slices(texts, np.float32(numbers))
  history = classifier.fit(rows, epochs=12, batch_size=8, verbose=0)
  error = classifier.evaluate(texts, numbers, verbose=0)
  # A constant has 225. Keras shows the error in the scale of the labels.
  assert error < 9 < history.history["loss"][0] and error == pytest.approx(
    np.mean((classifier.predict(texts, verbose=0)[:, 0] - numbers) ** 2),
    rel=1e-3,
  )
  assert classifier.model.classifier.target_scale[0] == 55
  expected = classifier.predict(texts[:2], verbose=0)
  assert classifier.score(texts[:2]) == expected[:, 0].tolist()
  np.testing.assert_allclose(classifier.score(texts[0]), expected[0, 0], 1e-6)
  with pytest.raises(ValueError, match="no labels: use score"):
    classifier.classify("good")
  classifier.save(str(tmp_path / "a.keras"))
  _write_run(classifier, tmp_path / "run", "regression")
  tensors = checkpoints.read_checkpoint(str(tmp_path / "run")).tensors
  assert abs(tensors["output_bias"][0] - 55) < 30  # For formats without scale.
  read = TextClassifier.from_checkpoint(
    str(tmp_path / "run"), None, max_seq_length=24
  )
  loaded = tf.keras.models.load_model(str(tmp_path / "a.keras"))
  # A head that was read answers the same before it is trained on.
  read.compile(tf.keras.optimizers.SGD(0.0), run_eagerly=True)
  read.fit(texts, np.divide(numbers, 10), verbose=0)
  for model in (loaded, read):
    found = model.predict(texts[:2], verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
  assert float(read.model.classifier.target_std) == pytest.approx(1.5)


def test_the_scale_of_the_targets_changes_no_update(tokenizer):
  """The gradient is that of the error in standard deviations."""
  weights = []
  for scale in (1.0, 10.0):
    regression = made(tokenizer, None, classifier_dropout_prob=0.0)
    before = regression.model.albert.get_weights()
    regression.compile(tf.keras.optimizers.SGD(0.1), run_eagerly=True)
    y = scale * np.arange(8.0)
    regression.fit(TEXTS[:8], y, shuffle=False, verbose=0)
    weights.append(regression.model.albert.get_weights())
  for a, b in zip(*weights, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
  assert max(abs(a - b).max() for a, b in zip(before, weights[0])) > 1e-3


def _write_run(classifier, folder, head="classification", **record) -> None:
  data = {
    "head": head,
    "settings": {"labels": classifier.labels},
    "tokenizer": {"kind": "wordpiece", "lower_case": True, **record},
  }
  runs.write_run(str(folder), classifier.config, {}, data)
  (pathlib.Path(folder) / "vocab.txt").write_bytes(classifier.tokenizer.content)
  manager = training.CheckpointManager(str(folder), 1, model=classifier.model)
  manager.save(1)


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_a_checkpoint_with_the_same_classes_keeps_its_head(
  trained, tmp_path, sharing
):
  classifier, _ = trained
  if sharing == "none":
    config = dataclasses.replace(classifier.config, sharing="none")
    tokenizer = classifier.tokenizer
    classifier = TextClassifier(config, tokenizer, classifier.labels, 24)
  _write_run(classifier, tmp_path)
  expected = classifier.predict(["Very good."], verbose=0)
  for labels in (["neg", "pos"], ["pos", "neg"], ["a", "b"], [1, 2, 3], None):
    loaded = TextClassifier.from_checkpoint(
      str(tmp_path), labels, max_seq_length=24
    )
    report = loaded.load_report
    if labels and {*labels} == {"neg", "pos"}:
      order = [classifier.labels.index(label) for label in labels]
      found = loaded.predict(["Very good."], verbose=0)
      np.testing.assert_allclose(found, expected[:, order], atol=1e-6)
      assert not report.missing and "the head is kept" in report.notes[0]
    else:
      assert len(report.missing) == 2
    np.testing.assert_array_equal(
      loaded.model.albert.pooler.kernel, classifier.model.albert.pooler.kernel
    )


def test_a_random_pooler_is_named(tokenizer):
  source = str(toy_models.GOLDEN / "hf_one_group" / "question_answering")
  with pytest.warns(UserWarning, match="has no weights of the pooler"):
    read = TextClassifier.from_checkpoint(
      source, ["a", "b"], tokenizer, max_seq_length=24
    )
  assert "bert/pooler/dense/kernel" in read.load_report.missing


def test_checkpoints_bring_no_dropout(tokenizer, tmp_path):
  config = toy_models.config(tokenizer.vocab_size, 32, hidden_dropout_prob=0.1)
  classifier = TextClassifier(config, tokenizer, None, 24)
  _write_run(classifier, tmp_path / "changed", "regression", sha256="0" * 64)
  with pytest.raises(ValueError, match="is not the tokenizer that the model"):
    TextClassifier.from_checkpoint(str(tmp_path / "changed"), None)
  _write_run(classifier, tmp_path, "regression")
  (tmp_path / "vocab.txt").unlink()
  with pytest.raises(ValueError, match="there is no tokenizer beside"):
    TextClassifier.from_checkpoint(str(tmp_path), None, max_seq_length=24)
  loaded = TextClassifier.from_checkpoint(
    str(tmp_path), None, tokenizer, max_seq_length=24
  )
  assert "the head is kept, for a number" in loaded.load_report.notes[0]
  assert loaded.config.hidden_dropout_prob == 0.0
  assert loaded.model.classifier.dropout_prob == 0.1
  assert checkpoints.read_checkpoint(str(tmp_path)).head == "regression"
