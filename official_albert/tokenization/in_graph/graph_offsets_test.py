"""Tests of offsets in the graph against text_offsets."""

from __future__ import annotations

import random
import unicodedata

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


def test_without_spaces():
  letters = _letters([" 2 a' ", ".", "a_2"], keeps_spaces=False)
  assert letters.text_lengths.numpy().tolist() == [3, 0, 3]
  places = tf.range(6, dtype=tf.int64)
  got = letters.starts_at(places).numpy().tolist()
  assert got == [1, 1, 3, 0, 2, 2]
  got = letters.ends_at(places).numpy().tolist()
  assert got == [2, 2, 5, 1, 3, 3]


def test_empty_batches_and_texts():
  forms = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [])
  letters = graph_offsets.find_letters(forms, keeps_spaces=True)
  assert all(x.shape == [0] for x in letters)
  places = tf.zeros([0], tf.int64)
  assert letters.starts_at(places).shape == [0]


def test_bound():
  values = tf.constant([3, 5, 5, 9], tf.int64)
  asked = tf.constant([2, 3, 5, 9, 11], tf.int64)
  found = graph_offsets.bound(values, asked, after=False)
  assert found.numpy().tolist() == [0, 0, 1, 3, 4]
  found = graph_offsets.bound(values, asked, after=True)
  assert found.numpy().tolist() == [0, 1, 3, 4, 4]
  found = graph_offsets.bound(values[:0], asked, after=True)
  assert found.numpy().tolist() == [0] * 5


def test_character_table():
  values = np.zeros(graph_offsets.ALL_CHARACTERS, np.int64)
  values[[0x41, 0xFF, 0x100, 0x3042, 0x10FFFF]] = [7, -2, 3, 66, -1]
  table = graph_offsets.CharacterTable(values)
  codes = tf.constant([0x40, 0x41, 0xFF, 0x100, 0x3042, 0x10FFFF, 0xE0000])
  assert table(codes).numpy().tolist() == [0, 7, -2, 3, 66, -1, 0]
  # Four pages differ from the others.
  assert len(table._values) == 5 * 256


def test_utf8_sizes():
  texts = "\0A\x7f\x80é\u07ff\u0800国\uffff\U00010000\U0010ffff"
  got = graph_offsets.utf8_sizes(tf.constant([ord(c) for c in texts]))
  assert got.numpy().tolist() == [len(c.encode()) for c in texts]


def test_form_table():
  table = graph_offsets.form_table(
    lambda texts: tf.strings.regex_replace(texts, "É", "e'"),
    is_gone=lambda char: char == "\x01",
    is_space=str.isspace,
    is_mark=lambda char: unicodedata.combining(char) > 0,
  )
  chars = "a国É\x01\u3000\u0301\ufffd"
  got = table(tf.constant([ord(c) for c in chars])).numpy().tolist()
  assert got == [2, 6, 4, tokenization.GONE, tokenization.SPACE, 5, 6]


def test_changing_characters_are_assigned_or_stand_ins():
  changing = set(graph_offsets.changing_characters().tolist())
  assert {ord(c) for c in "AÉé½한\0\u0301 \u2028\ufffd\uffff"} <= changing
  assert not changing & {ord(c) for c in "aß国か🙂"}
  rest = changing - set(graph_offsets.assigned_characters().tolist())
  assert rest == {0xFFFF}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
