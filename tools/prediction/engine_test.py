"""Batches and refusals of rows; loaded_model_test.py compares the answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import inference
from official_albert.inference import engine
from official_albert.tasks import common
from official_albert.tools.testing import toy_runs


def input_rows(rows):
  for i, cells in enumerate(rows):
    yield common.Record(f"a.tsv, line {i + 2}", {"id": str(i), **cells})


def test_refused_exports(tmp_path):
  run, folder = str(tmp_path / "run"), tmp_path / "export"
  toy_runs.write_finetuned(run, "text_classification", ["no", "yes"])
  toy_runs.write_export(str(folder), run, "text")
  model = inference.open_model(str(folder))
  for signature in ("x", "examples"):
    with pytest.raises(ValueError, match=f"'{signature}' .* it has classify, "):
      model.backend(signature)
  toy_runs.write_export(str(tmp_path / "ids"), run, "ids")
  with pytest.raises(ValueError, match="no signature .* of texts: it has none"):
    inference.open_model(str(tmp_path / "ids")).backend()
  # TensorFlow has another class of error for each.
  for name, kept in (
    ("variables/variables.data-00000-of-00001", 9),
    ("variables/variables.index", 9),
    ("saved_model.pb", 0),
    ("saved_model.pb", 99),
  ):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:kept])
    with pytest.raises(OSError, match=f"^{folder} is damaged .*: copy it aga"):
      inference.open_model(str(folder))
    (folder / name).write_bytes(content)
  (folder / "assets" / "export.json").write_text("{")
  with pytest.raises(ValueError, match="export.json is not valid JSON .*: exp"):
    inference.open_model(str(folder))


def test_rows_are_sorted_by_their_tokens(tmp_path):
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  backend = inference.open_model(run).backend("encode_pair")
  # SentencePiece's time grows with the square of unknown characters.
  unknown = "東" * 30_000
  texts = ["", "a day", unknown, unknown + " a day" * 9, "東" + " a day" * 9]
  rows = input_rows({"text_a": text, "text_b": "a day"} for text in texts)
  none, day, cut, longer, whole = backend.lengths([*rows])
  assert 2 * none == day < whole and none < cut == longer < whole


class Letters:
  """A backend that counts the letters of each row, and its batches."""

  about, roles = "letters is a toy", ("text",)

  def __init__(self, longest_shared=99):
    self.batches = []
    self._longest_shared = longest_shared

  def lengths(self, rows):
    return [len(row.cells["text"]) for row in rows]

  def __call__(self, rows):
    texts = [row["text"] for row in rows]
    if "bomb" in texts:
      raise tf.errors.InvalidArgumentError(
        None, None, "{{node x}} boom\n\t [[{{node}}]]"
      )
    if len(rows) > 1 and max(map(len, texts)) > self._longest_shared:
      raise tf.errors.InvalidArgumentError(None, None, "too much")
    self.batches.append(texts)
    return [{"letters": len(text)} for text in texts]


def count_letters(model, texts, batch_size):
  rows = input_rows({"text": text} for text in texts)
  for row, answer in engine.predict(model, rows, batch_size):
    yield row.cells["id"], answer["letters"]


@pytest.fixture
def small_windows(monkeypatch):
  """Sorts only two batches together."""
  monkeypatch.setattr(engine, "_WINDOW_BATCHES", 2)


@pytest.mark.usefixtures("small_windows")
def test_answers_in_order_and_batches_by_length():
  rng = np.random.default_rng(1)
  texts = ["x" * n for n in rng.integers(1, 99, 23)]
  model = Letters()
  found = list(count_letters(model, texts, 5))
  assert found == [(str(i), len(text)) for i, text in enumerate(texts)]
  # Windows of ten, ten and three rows, each from the longest to the shortest.
  assert [len(batch) for batch in model.batches] == [5, 5, 5, 5, 3]
  for first, window in ((0, texts[:10]), (2, texts[10:20])):
    batches = sum(model.batches[first : first + 2], [])
    assert batches == sorted(window, key=len, reverse=True)
  # A single batch keeps its order.
  assert model.batches[4] == texts[20:]


@pytest.mark.usefixtures("small_windows")
def test_no_more_is_read_than_a_window():
  read = []
  endless = (read.append(text) or text for text in itertools.repeat("ab"))
  answers = count_letters(Letters(), endless, 3)
  for _ in range(7):
    next(answers)
  assert len(read) == 12


def test_rows_that_the_model_refuses():
  with pytest.raises(ValueError) as caught:
    list(count_letters(Letters(), ["a", "bc", "bomb", "d"], 3))
  assert str(caught.value) == "a.tsv, line 4: boom (letters is a toy)"
  with pytest.raises(ValueError, match="eval_batch_size is 0"):
    list(count_letters(Letters(), ["a"], 0))
  # Rows that are too much together are answered in smaller batches.
  small = Letters(longest_shared=2)
  found = count_letters(small, ["a", "xxxx", "bb", "c"], 2)
  assert [letters for _, letters in found] == [1, 4, 2, 1]
  assert small.batches == [["xxxx"], ["bb"], ["a", "c"]]


def keep_refused(texts, batch_size):
  model = Letters()
  rows = input_rows({"text": text} for text in texts)
  found = engine.predict(model, rows, batch_size, keep_refused=True)
  return model, [
    answer.get("letters", answer.get("error")) for _, answer in found
  ]


@pytest.mark.usefixtures("small_windows")
def test_refused_rows_leave_the_others_their_answers():
  texts = ["bomb", "bc", "bc", "bomb", "bc", "a", "d"]
  model, found = keep_refused(texts, 7)
  assert found == ["boom", 2, 2, "boom", 2, 1, 1]
  # The refused batch is halved, and so are its halves that are refused.
  assert model.batches == [["bc", "bc"], ["bc"], ["a", "d"]]
  # A model that refuses all of the first window would refuse the rest too.
  with pytest.raises(ValueError) as caught:
    keep_refused(["bomb"] * 4 + ["a"], 2)
  assert str(caught.value) == "a.tsv, line 2: boom (letters is a toy)"
  _, found = keep_refused(["a"] + ["bomb"] * 4, 2)
  assert found == [1] + ["boom"] * 4


def test_an_answer_that_is_not_a_number_is_refused():
  def diverged(text):
    return {"scores": tf.fill([tf.size(text), 2], np.float32("nan"))}

  backend = engine.Backend(("text",), diverged, "a model", None)
  with pytest.raises(ValueError, match="scores is not a number.*a model"):
    list(engine.predict(backend, input_rows([{"text": "x"}]), 3))
