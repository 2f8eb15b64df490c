"""Windows, batches by length, and the order of the rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.prediction.stream import Part


class Words:
  """A part for each word; says how many letters a row has."""

  def __init__(self):
    self.batches = []

  def parts(self, cells):
    if not cells["text"]:
      raise ValueError("nothing there.")
    return [Part(len(word), word) for word in cells["text"].split()]

  def run(self, inputs):
    if "bomb" in inputs:
      raise tf.errors.InvalidArgumentError(None, None, "boom\n\t [[{{node}}]]")
    self.batches.append(list(inputs))
    return [{"letters": len(word)} for word in inputs]

  def answer(self, cells, parts, outputs):
    assert [part.length for part in parts] == [o["letters"] for o in outputs]
    return {"sum": sum(output["letters"] for output in outputs)}


def rows(texts):
  for number, text in enumerate(texts):
    yield InputRow(f"a.tsv, line {number + 2}", str(number), {"text": text})


def test_answers_in_order_and_batches_by_length():
  rng = np.random.default_rng(1)
  texts = [
    " ".join("x" * n for n in rng.integers(1, 9, rng.integers(1, 4)))
    for _ in range(23)
  ]
  words = Words()
  said = list(prediction_stream.predict(words, rows(texts), 5, 2))
  assert [row.guid for row, _ in said] == [str(n) for n in range(23)]
  sums = [len(text.replace(" ", "")) for text in texts]
  assert [answer["sum"] for _, answer in said] == sums
  # Windows of ten, ten and three rows, each from the longest to the shortest.
  windows = [texts[:10], texts[10:20], texts[20:]]
  counts = [sum(len(t.split()) for t in window) for window in windows]
  assert sum(map(len, words.batches)) == sum(counts)
  assert len(words.batches) == sum(-(-count // 5) for count in counts)
  first = [
    len(w) for batch in words.batches[: -(-counts[0] // 5)] for w in batch
  ]
  assert first == sorted(first, reverse=True) and len(first) == counts[0]


def test_no_more_is_read_than_a_window():
  read = []
  endless = (read.append(row) or row for row in rows(itertools.repeat("ab")))
  said = prediction_stream.predict(Words(), endless, 3, 2)
  next(said)
  assert len(read) == 6
  for _ in range(6):
    next(said)
  assert len(read) == 12


def test_a_bad_row_is_named():
  with pytest.raises(ValueError, match="^a.tsv, line 4: boom$"):
    list(prediction_stream.predict(Words(), rows(["a", "bc", "bomb", "d"]), 3))
  with pytest.raises(ValueError, match="^a.tsv, line 3: nothing there.$"):
    list(prediction_stream.predict(Words(), rows(["a", "", "b"]), 3))
  with pytest.raises(ValueError, match="eval_batch_size is 0"):
    list(prediction_stream.predict(Words(), rows(["a"]), 0))


def test_what_is_too_much_at_once_goes_one_by_one():
  class Small(Words):
    def run(self, inputs):
      if len(inputs) > 1 and max(map(len, inputs)) > 2:
        raise tf.errors.InvalidArgumentError(None, None, "too much")
      return super().run(inputs)

  small = Small()
  said = prediction_stream.predict(small, rows(["a", "xxxx", "bb", "c"]), 2)
  assert [answer["sum"] for _, answer in said] == [1, 4, 2, 1]
  assert small.batches == [["xxxx"], ["bb"], ["a", "c"]]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
