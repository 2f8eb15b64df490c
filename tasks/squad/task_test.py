"""Compares losses and heads with the original's; tests written answers."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, distribution
from official_albert import training as training_lib
from official_albert.tasks import common
from official_albert.tasks.squad import examples as examples_lib
from official_albert.tasks.squad import model as model_lib
from official_albert.tasks.squad import task as task_lib
from official_albert.testing import toy_models

_GOLDEN = pathlib.Path(__file__).parent / "testdata"
_LENGTH = 27
_CONFIG = toy_models.config(23, _LENGTH)
_RECIPE = {"doc_stride": 7, "classifier_dropout": 0.0}
_CONTEXT = "W10  " + " ".join(f"w{5 + i % 9}" for i in range(33)) + " w20 w21"


def question(name, text, context=_CONTEXT):
  """Returns a question with the answer `text`, or without an answer."""
  answers = ((text, context.index(text)),) if text else ()
  asked = f"w{5 + len(name)} w{5 + len(text)}?"  # No two are alike.
  return examples_lib.SquadExample(name, asked, context, answers, not text)


_QUESTIONS = (
  question("short", "w8 w9", "w7 w8 w9"),
  question("first", "W10  w5"),
  question("middle", "w10 w11 w12"),
  question("last", "w20 w21"),
  question("tiny", "w6", "w5 w6 w7"),
  question("none", ""),
)


class Quiz(task_lib.SquadTask):
  """The questions above: all in dev, and two of them in test."""

  def sources(self, split):
    return []

  def read(self, split):
    dev = [q for q in _QUESTIONS if self.has_impossible or q.answers]
    return dev[:2] if split == "test" else dev


def make(
  folder, has_impossible, config=_CONFIG, length=_LENGTH, recipe=None, **changes
):
  words = (f"w{number}" for number in range(5, config.vocab_size - 1))
  options = common.TaskOptions(
    cache_dir=str(folder),
    tokenizer=toy_models.wordpiece(folder, *words, "?"),
    max_seq_length=length,
    recipe={**_RECIPE, **(recipe or {})},
    note=lambda text: None,
    **changes,
  )
  task = Quiz("squad_v2" if has_impossible else "squad_v1", options)
  return task.with_records(["dev", "test"], config)


def golden(folder, group, kind, has_impossible):
  config = toy_models.golden_config(group)
  recipe = {"start_n_top": 3, "end_n_top": 2}
  task = make(folder, has_impossible, config, length=19, recipe=recipe)
  model = task.build_model()
  path = str(_GOLDEN / group / f"{kind}.ckpt")
  assert not checkpoints.load_tf1_checkpoint(model, path).missing
  batch = toy_models.golden_inputs(group)
  positions = np.load(_GOLDEN / group / "squad_v2_training_outputs.npz")
  rows = len(batch["input_ids"])
  batch.update(
    {
      name: positions[name]
      for name in ("start_positions", "end_positions", "is_impossible")
    },
    example_id=np.arange(rows, dtype=np.int32),
    example_weight=np.ones(rows, np.float32),
  )
  return task, model, batch


def cross_entropy(logits, labels, mask):
  """Returns the float64 loss of each row, over positions with mask 1."""
  logits = np.where(mask, np.float64(logits), -np.inf)
  largest = logits.max(1, keepdims=True)
  total = np.log(np.exp(logits - largest).sum(1)) + largest[:, 0]
  return total - logits[np.arange(len(labels)), labels]


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_v1_equals_the_original(tmp_path, group):
  """The loss leaves out the padding."""
  task, model, batch = golden(tmp_path, group, "squad_v1", False)
  logits = np.load(_GOLDEN / group / "squad_v1_outputs.npz")

  def losses(mask):
    parts = [
      cross_entropy(logits[f"{n}_logits"], batch[f"{n}_positions"], mask)
      for n in ("start", "end")
    ]
    return np.mean(parts, axis=0)

  def total(training, **changes):
    changed = tf.nest.map_structure(tf.constant, {**batch, **changes})
    totals, ratios = task.forward(model, changed, training, None)
    assert totals.keys() == {task.name}
    assert ratios.keys() == {"start_accuracy", "end_accuracy"}
    return totals[task.name]

  expected = losses(batch["input_mask"] == 1).sum()
  for training in (True, False):
    np.testing.assert_allclose(total(training), expected, rtol=1e-5)
  whole = batch["input_mask"].all(axis=1)
  assert whole.any()
  np.testing.assert_allclose(
    total(True, example_weight=np.float32(whole)),
    losses(True)[whole].sum(),
    rtol=1e-5,
  )
  # Predictions are padded to one length.
  rows = task.predict(model, tf.nest.map_structure(tf.constant, batch))
  assert rows.keys() == {"example_id", "start_logits", "end_logits"}
  for name in logits.files:
    count, length = logits[name].shape
    assert rows[name].shape == [count, 19]
    found = rows[name][:, :length]
    is_token = batch["input_mask"] == 1
    np.testing.assert_allclose(
      found[is_token], logits[name][is_token], atol=1e-5
    )
    assert np.ptp(found[~is_token]) == 0  # It is not computed.


@pytest.mark.golden
@pytest.mark.parametrize("group", toy_models.GROUPS)
def test_v2_equals_the_original(tmp_path, group):
  task, model, batch = golden(tmp_path, group, "squad_v2", True)
  inference = np.load(_GOLDEN / group / "squad_v2_inference_outputs.npz")
  batch["p_mask"] = inference["p_mask"]
  expected = np.load(_GOLDEN / group / "squad_v2_training_outputs.npz")
  batch = tf.nest.map_structure(tf.constant, batch)
  for training in (True, False):
    totals, ratios = task.forward(model, batch, training, tf.constant([1, 2]))
    loss = totals[task.name] / task.loss_weights(batch)[task.name]
    np.testing.assert_allclose(loss, expected["total_loss"], rtol=1e-5)
  outputs = model(batch)
  for name in ("start_log_probs", "end_log_probs", "cls_logits"):
    # Impossible positions have log-probabilities of -1e30.
    np.testing.assert_allclose(
      outputs[name], expected[name], rtol=1e-6, atol=1e-5
    )
  for name in ("start", "end"):
    best = expected[f"{name}_log_probs"].argmax(1)
    right = best == batch[f"{name}_positions"].numpy()
    assert float(ratios[f"{name}_accuracy"].total) == right.sum()
    np.testing.assert_array_equal(
      outputs[f"{name}_top_index"], inference[f"{name}_top_index"]
    )
  for name in ("start_top_log_probs", "end_top_log_probs", "cls_logits"):
    np.testing.assert_allclose(outputs[name], inference[name], atol=1e-5)
  # A functional Keras model identifies outputs by their order.
  assert list(model(batch, training=True)) == list(outputs)


def test_settings_reach_the_model(tmp_path):
  recipe = {"start_n_top": 4, "end_n_top": 3}
  recipe |= {"albert_dropout": 0.1, "classifier_dropout": 0.3}
  task = make(tmp_path, True, recipe=recipe, recompute_activations=True)
  model = task.build_model()
  assert model.config.hidden_dropout_prob == 0.1
  assert model.classifier_dropout_prob == 0.3
  assert (model.start_n_top, model.end_n_top) == (4, 3)
  # Later predictions use them; no answer is one of six.
  settings = task.describe()["settings"]
  assert (settings["doc_stride"], settings["start_n_top"]) == (7, 4)
  assert task.majority("dev")["exact"] == pytest.approx(100 / 6)
  fixed = make(tmp_path, True, null_score_diff_threshold=1.5)
  assert (task.best_metric, fixed.best_metric) == ("best_f1", "f1")
  again = type(model).from_config(model.get_config())
  assert again.get_config() == model.get_config()
  assert again.get_config()["recompute_activations"]


def test_beam_wider_than_the_sequence():
  model = model_lib.AlbertForSpansOrNone(_CONFIG, 5, 7)
  ids = tf.ones([2, 3], tf.int32)
  outputs = model({"input_ids": ids, "p_mask": tf.zeros([2, 3])})
  assert outputs["start_top_index"].shape == [2, 3]
  assert outputs["end_top_index"].shape == [2, 9]


def test_answers_are_in_the_context_or_nowhere():
  # [CLS] question [SEP] context [SEP], padding; and an empty context.
  features = {
    "input_mask": tf.constant([[1, 1, 1, 1, 1, 1, 1, 0, 0], [1] * 4 + [0] * 5]),
    "segment_ids": tf.constant(
      [[0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1] + [0] * 5]
    ),
  }
  features["input_ids"] = features["input_mask"]
  outputs = model_lib.AlbertForSpansOrNone(_CONFIG)(features)
  possible = outputs["start_log_probs"].numpy() > -1e20
  assert [row.nonzero()[0].tolist() for row in possible] == [[0, 4, 5], [0]]


class Oracle(tf.keras.Model):
  """Predicts the correct answers, and the last token as second best."""

  def __init__(self, has_impossible):
    super().__init__()
    self.has_impossible = has_impossible
    kind = model_lib.AlbertForSpans
    if has_impossible:
      kind = model_lib.AlbertForSpansOrNone
    self.scores = kind.scores

  def call(self, batch, training=None, dropout_seed=None, num_layers=None):
    length = tf.shape(batch["input_ids"])[1]
    certain = 9.0 * (1 - tf.cast(batch["is_impossible"], tf.float32))[:, None]
    last = tf.one_hot(tf.reduce_sum(batch["input_mask"], axis=1) - 2, length)
    start, end = (
      certain * tf.one_hot(batch[f"{name}_positions"], length) + last
      for name in ("start", "end")
    )
    if not self.has_impossible:
      return {"start_logits": start, "end_logits": end}
    starts, ends = tf.nn.top_k(start, 2), tf.nn.top_k(end, 1)
    both = [tf.repeat(x, 2, axis=1) for x in ends]
    return {
      "start_log_probs": tf.nn.log_softmax(start),
      "end_log_probs": tf.nn.log_softmax(end),
      "start_top_log_probs": starts.values,
      "start_top_index": starts.indices,
      "end_top_log_probs": both[0],
      "end_top_index": both[1],
      "cls_logits": 8.0 * tf.cast(batch["is_impossible"], tf.float32) - 3,
    }


def oracle_rows(task, split, batch_size=3):
  model = Oracle(task.has_impossible)
  evaluation = training_lib.Evaluation(
    task, model, distribution.make_strategy("one_device")
  )
  return evaluation.predict(task.dataset(split, batch_size))


@pytest.mark.parametrize("has_impossible", [False, True])
def test_from_records_to_answers(tmp_path, has_impossible):
  """An oracle's answers are those of the contexts."""
  task = make(tmp_path, has_impossible)
  rows = oracle_rows(task, "dev")
  assert len(rows["example_id"]) == len(task.windows("dev")) > 9
  found = task.answers("dev", rows)
  texts = {name: answer.text() for name, answer in found.items()}
  expected = {q.question_id: q.answers[0][0] for q in _QUESTIONS if q.answers}
  assert {name: texts[name] for name in expected} == expected
  values = task.score_answers("dev", task.answers("dev", rows))
  if not has_impossible:
    assert values == {"exact_match": 100, "f1": 100}
    return
  assert found["none"].null_odds == 5 and found["last"].null_odds == -3
  assert values["exact"] == values["f1"] == 100.0
  assert values["NoAns_f1"] == 100.0 and values["HasAns_total"] == 5
  assert values["best_null_score_diff_threshold"] == -3
  names = ("exact", "f1", "best_exact", "best_f1")
  assert task.score(rows) == dict.fromkeys(names, 100.0)


def read_texts(folder):
  return json.loads((folder / "predictions.json").read_text())


def test_settings_of_decoding(tmp_path):
  recipe = {"n_best_size": 2, "max_answer_length": 2}
  task = make(tmp_path, False, recipe=recipe)
  found = task.answers("dev", oracle_rows(task, "dev"))
  assert all(len(answer.n_best) <= 2 for answer in found.values())
  assert found["middle"].text() != "w10 w11 w12"


def test_predictions_use_the_threshold_of_the_evaluation(tmp_path):
  task = make(tmp_path, True)
  rows, test = oracle_rows(task, "dev"), oracle_rows(task, "test")

  def written(split, rows):
    task.write_answers(split, task.answers(split, rows), tmp_path)
    return read_texts(tmp_path / split)

  def scored(split, rows):
    return task.score_answers(split, task.answers(split, rows))

  # Without an evaluation there is no threshold: every question is answered.
  assert written("dev", rows)["none"]
  scored("dev", rows)
  test["cls_logits"] = np.float32(
    [-3.5, *[-2.5] * (len(test["cls_logits"]) - 1)]
  )
  # Labeled test data is scored by it, too.
  assert scored("test", test)["null_score_diff_threshold"] == -3
  assert written("test", test) == {"short": "w8 w9", "first": ""}
  assert written("dev", rows)["none"] == ""
  # Each evaluation searches for its own, and reports the given one, or 0.
  later = {**rows, "cls_logits": rows["cls_logits"] + 4}
  values = scored("dev", later)
  assert values["null_score_diff_threshold"] == 0
  assert values["exact"] == values["f1"] == pytest.approx(100 / 6)
  assert values["best_exact"] == values["best_f1"] == 100
  assert values["best_null_score_diff_threshold"] == 1
  assert set(written("dev", later).values()) == {""}
  # Test data chooses nothing, and gets the threshold of the dev file.
  values = scored("test", test)
  assert values["null_score_diff_threshold"] == 1
  assert "best_null_score_diff_threshold" not in values


@pytest.mark.parametrize("threshold, right", [(-5.0, 1), (0.0, 6), (9.0, 5)])
def test_given_threshold(tmp_path, threshold, right):
  task = make(tmp_path, True, null_score_diff_threshold=threshold)
  rows = oracle_rows(task, "dev")
  values = task.score_answers("dev", task.answers("dev", rows))
  # One of six questions has no answer.
  assert values["exact"] == pytest.approx(100 * right / 6)
  task.write_answers("dev", task.answers("dev", rows), tmp_path)
  empty = [text for text in read_texts(tmp_path / "dev").values() if not text]
  assert len(empty) == {1: 6, 6: 1, 5: 0}[right]
