"""Windows, batches by length, and the order of the rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow


class Letters:
  """Counts the letters of each row."""

  about = "letters is a toy"

  def __init__(self):
    self.batches = []

  def lengths(self, rows):
    return [len(row["text"]) for row in rows]

  def __call__(self, rows):
    texts = [row["text"] for row in rows]
    if "bomb" in texts:
      raise tf.errors.InvalidArgumentError(
        None, None, "{{node x}} boom\n\t [[{{node}}]]"
      )
    self.batches.append(texts)
    return [{"letters": len(text)} for text in texts]


def rows(texts):
  for number, text in enumerate(texts):
    yield InputRow(f"a.tsv, line {number + 2}", str(number), {"text": text})


def test_answers_in_order_and_batches_by_length():
  rng = np.random.default_rng(1)
  texts = ["x" * n for n in rng.integers(1, 99, 23)]
  model = Letters()
  answers = list(prediction_stream.predict(model, rows(texts), 5, 2))
  assert [row.guid for row, _ in answers] == [str(n) for n in range(23)]
  assert [answer["letters"] for _, answer in answers] == list(map(len, texts))
  # Windows of ten, ten and three rows, each from the longest to the shortest.
  assert [len(batch) for batch in model.batches] == [5, 5, 5, 5, 3]
  for first, window in ((0, texts[:10]), (2, texts[10:20]), (4, texts[20:])):
    found = sum(model.batches[first : first + 2], [])
    assert found == sorted(window, key=len, reverse=True)


def test_no_more_is_read_than_a_window():
  read = []
  endless = (read.append(row) or row for row in rows(itertools.repeat("ab")))
  answers = prediction_stream.predict(Letters(), endless, 3, 2)
  next(answers)
  assert len(read) == 6
  for _ in range(6):
    next(answers)
  assert len(read) == 12


def test_a_bad_row_is_named():
  with pytest.raises(
    ValueError, match=r"^a.tsv, line 4: boom \(letters is a toy\)$"
  ):
    texts = ["a", "bc", "bomb", "d"]
    list(prediction_stream.predict(Letters(), rows(texts), 3))
  with pytest.raises(ValueError, match="eval_batch_size is 0"):
    list(prediction_stream.predict(Letters(), rows(["a"]), 0))


def test_rows_that_are_too_much_together_go_one_by_one():
  class Small(Letters):
    def __call__(self, rows):
      if len(rows) > 1 and max(self.lengths(rows)) > 2:
        raise tf.errors.InvalidArgumentError(None, None, "too much")
      return super().__call__(rows)

  small = Small()
  texts = ["a", "xxxx", "bb", "c"]
  answers = prediction_stream.predict(small, rows(texts), 2)
  assert [answer["letters"] for _, answer in answers] == [1, 4, 2, 1]
  assert small.batches == [["xxxx"], ["bb"], ["a", "c"]]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
