"""Compares losses and predictions with the original's numbers."""

from __future__ import annotations

import io
import itertools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, distribution
from official_albert import training as training_lib
from official_albert.tasks import common
from official_albert.tasks.classification import task as task_lib
from official_albert.tasks.common import TextExample
from official_albert.testing import toy_models, toy_task

_LENGTH = 29
_LABELS = ("dry", "wet", "windy")
_CONFIG = toy_models.config(23, _LENGTH)
_NO_DROPOUT = {"recipe": {"classifier_dropout": 0.0}}


def example(number, labels):
  """Returns a text of 3 to 28 tokens, whose last word is the class."""
  words = ["w9"] * (3 * number % 26) + [f"w{10 + number % 3}"]
  label = labels[number % 3] if labels else str(number / 8)
  return TextExample(f"id{number}", " ".join(words), None, label)


class Weather(task_lib.TextTask):
  """Classes or numbers of given examples, the same in each split."""

  def __init__(self, labels, examples, options):
    self.labels, self._given = labels, examples
    super().__init__("weather", options)

  def sources(self, split):
    return []

  def read(self, split):
    return self._given


def options(folder, size=_CONFIG.vocab_size, **changes):
  words = (f"w{number}" for number in range(5, size))
  return common.TaskOptions(
    cache_dir=str(folder),
    tokenizer=toy_models.wordpiece(folder, *words),
    max_seq_length=_LENGTH,
    **{"note": lambda text: None, **changes},
  )


def make(
  folder, config=_CONFIG, labels=_LABELS, splits=("dev",), seed=5, **changes
):
  examples = [example(number, labels) for number in range(19)]
  settings = options(folder, config.vocab_size, **{**_NO_DROPOUT, **changes})
  task = Weather(labels, examples, settings)
  return task.with_records(splits, config, seed)


def golden(folder, group, kind, labels):
  task = make(folder, toy_models.golden_config(group), labels)
  model = task.build_model()
  testdata = toy_models.GOLDEN / group
  path = str(testdata / f"{kind}.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
  expected = dict(np.load(testdata / f"{kind}_outputs.npz"))
  batch = toy_models.golden_inputs(group)
  rows = len(batch["input_ids"])
  batch["label_ids"] = expected["labels"]
  batch["example_id"] = np.arange(rows, dtype=np.int32)
  batch["example_weight"] = np.ones(rows, np.float32)
  return task, model, {k: tf.constant(v) for k, v in batch.items()}, expected


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
@pytest.mark.parametrize(
  "kind, labels", [("classifier", _LABELS), ("regression", None)]
)
def test_numbers_equal_the_original(tmp_path, group, kind, labels):
  task, model, batch, expected = golden(tmp_path, group, kind, labels)
  for training in (True, False):
    totals, _ = task.forward(model, batch, training, tf.constant([1, 2]))
    loss = totals["weather"] / task.loss_weights(batch)["weather"]
    # The logits agree to 1e-5; the largest error of a regression is 4.7.
    np.testing.assert_allclose(loss, expected["loss"], rtol=1e-5, atol=1e-5)
  assert list(totals) == ["weather"]
  # Padding rows have weight 0.
  weight = np.ones(len(expected["labels"]), np.float32)
  weight[1] = 0
  totals, _ = task.forward(
    model, {**batch, "example_weight": weight}, True, None
  )
  np.testing.assert_allclose(
    totals["weather"],
    np.delete(expected["per_example_loss"], 1).sum(),
    rtol=1e-5,
    atol=1e-5,
  )
  rows = task.predict(model, batch)
  ratios = task.forward(model, batch, True, None)[1]
  assert task.forward(model, batch, False, None)[1] == {}
  if kind == "regression":
    np.testing.assert_allclose(rows["values"], expected["logits"], atol=1e-5)
    assert ratios == {}
    return
  np.testing.assert_allclose(
    rows["values"], expected["probabilities"], atol=1e-5
  )
  right = expected["logits"].argmax(1) == expected["labels"]
  assert ratios.keys() == {"weather_accuracy"}
  correct, count = map(float, ratios["weather_accuracy"])
  assert (correct, count) == (right.sum(), len(right))


def test_settings_reach_the_model(tmp_path):
  recipe = {"albert_dropout": 0.1, "classifier_dropout": 0.3}
  changes = {"recipe": recipe, "recompute_activations": True}
  model = make(tmp_path, **changes).build_model()
  assert model.config.hidden_dropout_prob == 0.1
  assert model.classifier.dropout_prob == 0.3
  assert model.get_config()["recompute_activations"]
  assert model.classifier.output_weights.shape == [3, 10]
  numbers = make(tmp_path, labels=None).build_model()
  assert numbers.classifier.output_weights.shape == [1, 10]


def test_training_data_resumes(tmp_path):
  def ids(start, count, seed=3):
    task = make(tmp_path, splits=["train"], seed=seed)
    batches = itertools.islice(task.train_dataset(4, 4 * start), count)
    return [batch["example_id"].numpy().tolist() for batch in batches]

  stream = ids(0, 25)
  assert ids(13, 12) == stream[13:]
  epoch = sum(stream[:4], [])
  assert len({*epoch}) == 16 and sorted(epoch) != epoch
  assert ids(0, 25, seed=4) != stream


@pytest.mark.parametrize("length_bucketing", [True, False])
def test_evaluation_and_prediction_count_each_example_once(
  tmp_path, length_bucketing
):
  task = make(tmp_path, labels=None, length_bucketing=length_bucketing)
  model, strategy = task.build_model(), distribution.make_strategy("one_device")
  data = task.eval_dataset(4)
  lengths = {batch["input_ids"].shape[1] for batch in data}
  assert lengths == ({16, 24, _LENGTH} if length_bucketing else {_LENGTH})
  (whole,) = task.dataset("dev", 19)
  rows = task.predict(model, whole)
  numbers = rows["values"].numpy()[np.argsort(rows["example_id"])]
  evaluation = training_lib.Evaluation(task, model, strategy)
  for is_labeled in (False, True):
    found = evaluation.predict(task.dataset("dev", 8), is_labeled)["values"]
    np.testing.assert_allclose(found, numbers, atol=1e-5)
  expected = task.metrics("dev", numbers)
  losses = dict.fromkeys(
    ("loss", "weather_loss"), expected["mean_squared_error"]
  )
  values = evaluation(data)
  assert values == pytest.approx({**expected, **losses}, rel=1e-4)


def test_tokens_per_example(tmp_path, monkeypatch):
  mean = round(np.mean([3 + 3 * n % 26 for n in range(19)]))
  for bucketing, sequences, tokens in (
    (True, 1, mean),
    (False, 3, 3 * _LENGTH),
  ):
    monkeypatch.setattr(Weather, "sequences_per_example", sequences)
    task = make(tmp_path, splits=["train"], length_bucketing=bucketing)
    assert task.tokens_per_example == tokens
    flops = sequences * _CONFIG.forward_flops(tokens // sequences)
    assert task.flops_per_example == 3 * flops


def test_describe_does_not_depend_on_the_location(tmp_path):
  task = make(tmp_path, splits=["train", "dev", "test"])
  description = task.describe()
  assert description == json.loads(json.dumps(description))
  assert description["records"] == {
    split: os.path.basename(task.records[split]) for split in ("train", "dev")
  }
  assert description["max_seq_length"] == _LENGTH
  assert description["settings"]["labels"] == [*_LABELS]
  (tmp_path / "other").mkdir()
  other = make(tmp_path / "other", splits=["train", "dev"])
  assert other.describe() == description


def test_a_trainer_is_for_one_model(tmp_path):
  """It would compute with the first one's dropout."""
  first, same = (make(tmp_path, splits=["train", "dev"]) for _ in range(2))
  recipe = {"classifier_dropout": 0.2}
  other = make(tmp_path, splits=["train", "dev"], recipe=recipe)
  settings = toy_task.config(tmp_path)
  with training_lib.Reporter(str(tmp_path), io.StringIO()) as report:
    strategy = distribution.make_strategy("one_device")
    trainer = training_lib.Trainer([first], settings, strategy, report)
    trainer.reset([same], settings, report)
    with pytest.raises(ValueError, match="another task, model or data"):
      trainer.reset([other], settings, report)


class Standardized(task_lib.OwnTask):
  """A table of numbers, those of its training data with mean 55."""

  def sources(self, split):
    return []

  def read(self, split):
    if split == "train":
      return [TextExample("", "w9", None, x) for x in ("40", "70", "70", "40")]
    return [example(number, None) for number in range(19)]


def test_targets_are_standardized(tmp_path):
  plain = make(tmp_path, labels=None)
  task = Standardized("text_regression", options(tmp_path, **_NO_DROPOUT))
  task = task.with_records(["train", "dev"], _CONFIG)
  losses, values = [], []
  for each in (plain, task):
    tf.keras.utils.set_random_seed(3)
    model = each.build_model()
    batch = dict(next(iter(each.dataset("dev", 19))))
    batch["label_ids"] = tf.fill([19], 70.0)
    values.append(each.predict(model, batch)["values"].numpy())
    sums, _ = each.forward(model, batch, False, None)
    losses.append(float(sums[each.name]))
  np.testing.assert_allclose(values[1], 55 + 15 * values[0], rtol=1e-5)
  # 70 is one standard deviation above the mean.
  assert losses[1] == pytest.approx(np.sum((values[0] - 1) ** 2), rel=1e-4)
  assert losses[0] == pytest.approx(np.sum((values[0] - 70) ** 2), rel=1e-4)


_WORDS = "a b c d e".split()
_TEXTS = [
  TextExample("0", "a b", None, "no"),
  TextExample("1", "c", "d e a", "yes"),
  TextExample("2", "e", "b", "no"),
  TextExample("3", "d d", None, None),
  TextExample("4", "", "a", "maybe"),
]


def features(folder, labels, texts, length):
  """Returns those of texts and pairs of single letters."""
  settings = common.TaskOptions(
    tokenizer=toy_models.wordpiece(folder, *_WORDS), max_seq_length=length
  )
  return list(Weather(labels, texts, settings).features("dev"))


def ids_of(text):
  specials = {"(": 2, ")": 3}
  return [specials.get(char) or 5 + _WORDS.index(char) for char in text]


def test_features(tmp_path):
  found = features(tmp_path, ("no", "maybe", "yes"), _TEXTS, 9)
  texts = ["(ab)", "(c)dea)", "(e)b)", "(dd)", "()a)"]
  assert [f["input_ids"] for f in found] == [ids_of(text) for text in texts]
  assert [f["segment_ids"] for f in found] == [
    [0, 0, 0, 0],
    [0, 0, 0, 1, 1, 1, 1],
    [0, 0, 0, 1, 1],
    [0, 0, 0, 0],
    [0, 0, 1, 1],
  ]
  assert [f["label_ids"] for f in found] == [0, 2, 0, 0, 1]
  # The longer text of a pair is truncated; regression labels are numbers.
  rows = [TextExample("0", "a b", "c d e a", "1.5"), TextExample("1", "b")]
  pair, text = features(tmp_path, None, rows, 7)
  assert pair["input_ids"] == ids_of("(ab)cd)")
  assert [f["label_ids"] for f in (pair, text)] == [1.5, 0]


def test_classes():
  labels = np.array([1, 1, 1, 0, 0, 0, 0], np.uint8)
  predictions = np.array([1, 1, 0, 1, 0, 0, 0], np.int32)
  names = ("accuracy", "f1", "macro_f1", "matthews")
  # TP 2, FP 1, FN 1, TN 3; of class 0 TP 3, FP 1, FN 1.
  expected = [5 / 7, 2 / 3, (2 / 3 + 3 / 4) / 2, (2 * 3 - 1 * 1) / 12]
  found = task_lib.scores(names, predictions, labels)
  assert found == pytest.approx(dict(zip(names, expected)))


def test_numbers():
  predictions = np.array([1.0, 2.0, 4.0])
  found = task_lib.scores(
    ("pearson", "mean_squared_error"), predictions, np.array([1.0, 3.0, 2.0])
  )
  # Deviations -4/3, -1/3, 5/3 and -1, 1, 0.
  assert found["pearson"] == pytest.approx(1 / np.sqrt(42 / 9 * 2), rel=1e-12)
  assert found["mean_squared_error"] == pytest.approx(5 / 3)
  # Equal numbers share the mean of their ranks: 1.5, 1.5, 3 and 1, 2, 3.
  found = task_lib.scores(("spearman",), [7.0, 7.0, 9.0], [1.0, 2.0, 6.0])
  assert found["spearman"] == pytest.approx(1.5 / np.sqrt(1.5 * 2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1, 10])
def test_constants_have_no_correlation(size):
  # The computed mean of ten values of 0.1 is not 0.1.
  constant = np.full(size, 0.1)
  varied = np.arange(size, dtype=np.float32)
  for a, b in ((constant, varied), (varied, constant), (constant, constant)):
    found = task_lib.scores(("pearson", "spearman"), a, b)
    assert found == {"pearson": 0.0, "spearman": 0.0}
  ones, classes = np.ones(size, int), np.arange(size) % 2
  for a, b in ((ones, classes), (1 - ones, classes), (classes, ones)):
    assert task_lib.scores(("matthews",), a, b) == {"matthews": 0.0}
  assert task_lib.scores(("f1",), 1 - ones, 1 - ones) == {"f1": 0.0}
