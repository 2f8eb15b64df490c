"""Tests of offsets in the graph against text_offsets."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.tokenization.in_graph import graph_offsets

_FORMS = {
  ".": tokenization.GONE,
  " ": tokenization.SPACE,
  "_": tokenization.SPACE,
  "'": tokenization.visible_form(0, True),
  '"': tokenization.visible_form(1, True),
  "2": tokenization.visible_form(2, False),
  "0": tokenization.visible_form(0, False),
  "a": tokenization.visible_form(1, False),
}


def _random_texts(count: int) -> list[str]:
  rng = random.Random(5)
  texts = [
    "".join(rng.choices([*_FORMS], k=rng.randrange(9))) for _ in range(count)
  ]
  return ["", " ", *texts, "..", ""]


def _letters(texts, keeps_spaces):
  forms = tf.ragged.constant(
    [[_FORMS[char] for char in text] for text in texts], tf.int32, 1
  )
  return graph_offsets.find_letters(forms, keeps_spaces)


@pytest.mark.parametrize("count", [0, 3, 1500])
def test_letters_equal_those_of_python(count):
  texts = _random_texts(count)
  table = tokenization.FormTable(_FORMS.__getitem__)
  expected = [tokenization.character_spans(text, table) for text in texts]
  letters = _letters(texts, keeps_spaces=True)
  lengths = [len(spans.starts) for spans in expected]
  assert letters.text_lengths.numpy().tolist() == lengths
  begins = np.cumsum([0, *lengths[:-1]])
  assert letters.text_begins.numpy().tolist() == begins.tolist()
  places = tf.range(sum(lengths), dtype=tf.int64)
  starts, ends = (np.concatenate(x) for x in zip(*expected))
  got = letters.starts_at(places)
  assert got.numpy().tolist() == starts.tolist()
  got = letters.ends_at(places)
  assert got.numpy().tolist() == ends.tolist()


def test_character_table():
  values = np.zeros(graph_offsets.ALL_CHARACTERS, np.int64)
  values[[0x41, 0xFF, 0x100, 0x3042, 0x10FFFF]] = [7, -2, 3, 66, -1]
  table = graph_offsets.CharacterTable(values)
  codes = tf.constant([0x40, 0x41, 0xFF, 0x100, 0x3042, 0x10FFFF, 0xE0000])
  assert table(codes).numpy().tolist() == [0, 7, -2, 3, 66, -1, 0]
  # Four pages differ from the others.
  assert len(table._values) == 5 * 256


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
