"""Rows to sequences, as in the training data."""

from __future__ import annotations

import pytest

from tasks import race
from tools.prediction import ids as prediction_ids
from tools.testing import toy_encoder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
  return toy_encoder.write_tokenizer(str(tmp_path_factory.mktemp("ids")))


def test_single_and_pair(tokenizer):
  a, b = tokenizer.encode("the old tree"), tokenizer.encode("a cold day at sea")
  single = prediction_ids.Ids(tokenizer, 50, ("text",))
  part = single.part({"text": "The  old tree"})
  assert part == (len(a) + 2, ([2, *a, 3], [0] * (len(a) + 2)))
  pair = prediction_ids.Ids(tokenizer, 50, ("text_a", "text_b"))
  both = pair.part({"text_a": "the old tree", "text_b": "a cold day at sea"})
  assert both.inputs[0] == [2, *a, 3, *b, 3]
  assert both.inputs[1] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
  batch = pair.batch([both.inputs, part.inputs])
  length = len(a) + len(b) + 3
  assert batch["input_ids"].shape == (2, length) == batch["segment_ids"].shape
  assert batch["input_mask"].sum(1).tolist() == [length, len(a) + 2]
  assert batch["input_ids"][1].tolist() == [2, *a, 3] + [0] * (len(b) + 1)
  cut = prediction_ids.Ids(tokenizer, 5, ("text",), fixed_length=True)
  assert cut.part({"text": "the old tree by the sea"}).length == 5
  assert cut.batch([([2, 3], [0, 0])])["input_ids"].tolist() == [
    [2, 3, 0, 0, 0]
  ]


def test_options(tokenizer):
  cells = {
    "passage": "the day was cold " * 5,
    "question": "the day was _ .",
    "options": ["warm", "cold", "a tree", "by the sea"],
  }
  ids = prediction_ids.Ids(tokenizer, 19, tuple(cells), 7)
  part = ids.part(cells)
  example = race.RaceExample(
    "", cells["passage"], cells["question"], tuple(cells["options"]), None, ""
  )
  expected = race.make_inputs(example, tokenizer, 19, 7)
  assert part == (19, expected)
  batch = ids.batch([expected] * 3)
  assert batch["input_ids"].shape == (3, 4, 19)
  assert batch["segment_ids"][2, 1].tolist() == expected[1][1]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
