"""Tests of layout, sentence ends and prose, on made-up docstrings."""

from __future__ import annotations

import pytest

from tools.records import docstring_prose


def test_google_style_keeps_the_sentences_of_arguments():
  text = """Pours the water into a glass.

  The glass has to be empty, because
  nothing stops the water at the rim.

  Args:
    water: What is to be poured, as a bottle.
    glass_size (int): The size of the glass in litres. It may
      not be zero.
    *others: Bottles to use after the first is empty.

  Returns:
    The bottle with what is left in it.
  """
  assert docstring_prose.prose_sentences(text) == [
    "Pours the water into a glass.",
    "The glass has to be empty, because nothing stops the water at the rim.",
    "What is to be poured, as a bottle.",
    "The size of the glass in litres.",
    "It may not be zero.",
    "Bottles to use after the first is empty.",
    "The bottle with what is left in it.",
  ]


def test_numpydoc_drops_types_headings_and_lists_of_names():
  text = """
  Count the birds on a wire.

  Parameters
  ----------
  wire, other_wire : array_like, shape the same as that of the poles
      The wires on which they sit.

  See Also
  --------
  count_cats : Count the cats that are under the wire.

  Notes
  -----
  Birds that only fly past are not counted [1]_.

  References
  ----------
  .. [1] A. Author, "Where all the birds go in the winter", 1997.
  """
  assert docstring_prose.prose_sentences(text) == [
    "Count the birds on a wire.",
    "The wires on which they sit.",
    "Birds that only fly past are not counted.",
  ]


@pytest.mark.parametrize(
  "block",
  [
    ">>> print('this is only the source of a test')\nthis is only its output",
    "```\nthis is code that is inside of a fence\n```",
    ".. code-block:: python\n\n    this is code that is in a block",
    ".. math:: this is a formula that is not for the reader",
    "| this is one | cell of a table |",
    "rule ::= this | that and not the other",
    "with open(path) as f:\n    return the_words_of(f)",
    "import this\nfrom that import the_other",
    "This is the heading of a part\n-----------------------------",
    "# This is the heading of a part",
    "name     this is the text of a cell in a table",
  ],
)
def test_blocks_that_are_not_prose_are_dropped(block):
  text = f"This stands before the block.\n\n{block}\n\nThis stands after it."
  assert docstring_prose.prose_sentences(text) == [
    "This stands before the block.",
    "This stands after it.",
  ]


def test_literal_blocks_are_dropped():
  text = """Call it as in this example::

      this_is_code in the_block

  It comes back at once."""
  assert docstring_prose.prose_sentences(text) == [
    "Call it as in this example:",
    "It comes back at once.",
  ]


def test_list_items_are_paragraphs():
  text = """Choose one of these:
  - the first of them
  * the second,
    if there is
  1. it"""
  assert docstring_prose.paragraphs(text) == [
    "Choose one of these:",
    "the first of them",
    "the second, if there is",
    "it",
  ]


@pytest.mark.parametrize(
  "marked, plain",
  [
    ("Use ``x`` or `y` of :class:`~a.B`.", "Use x or y of a.B."),
    ("See [the *guide*](http://a.b/c) first.", "See the guide first."),
    ("See `the guide <http://a.b>`_ first.", "See the guide first."),
    ("It is **very** _strange_ indeed.", "It is very strange indeed."),
    ("Multiply a * b * c of __init__.", "Multiply a * b * c of __init__."),
    ("\u201cIt\u2019s\u201d old\u2014very old.", '"It\'s" old - very old.'),
  ],
)
def test_markup_is_removed(marked, plain):
  assert docstring_prose.paragraphs(marked) == [plain]


@pytest.mark.parametrize(
  "paragraph, sentences",
  [
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    ("Use it, e.g. Keras. Do.", ["Use it, e.g. Keras.", "Do."]),
    ("By D. E. Knuth. Read it.", ["By D. E. Knuth.", "Read it."]),
    ("Cats, dogs, etc. They bite.", ["Cats, dogs, etc.", "They bite."]),
    ("Version 2.x. See there.", ["Version 2.x.", "See there."]),
    ("It is 1.5 or so. fine", ["It is 1.5 or so. fine"]),
    ('He said "no." "Yes," I said.', ['He said "no."', '"Yes," I said.']),
  ],
)
def test_sentence_ends(paragraph, sentences):
  assert docstring_prose.split_sentences(paragraph) == sentences


@pytest.mark.parametrize(
  "sentence",
  [
    "The size of the batch has to be even.",
    "If batch_size is None, the batch holds all that is left.",
    'A value of "mean" takes the mean over the batch.',
    "TensorFlow and NumPy do not agree.",
  ],
)
def test_prose_is_accepted(sentence):
  assert docstring_prose.is_prose(sentence)


@pytest.mark.parametrize(
  "sentence",
  [
    "Too few words.",
    "Tensor shape dtype name value output input graph session",
    "It is one of float32, float64, int32, int64.",
    "The value of it is a = b + c.",
    "It can be found at https://example.org for all.",
    "The (first of these is not closed.",
    "It is in the \u03b1 and the \u03b2 of it.",
    "TODO: this has to be done by someone.",
    "-- this is what is left of a table",
    "{the} one that is for the template",
    " ".join(["the"] * 81),
  ],
)
def test_other_text_is_rejected(sentence):
  assert not docstring_prose.is_prose(sentence)


def test_equal_sentences_are_recognized():
  assert docstring_prose.normalized(
    "The 2-D input, of Type 1."
  ) == docstring_prose.normalized("the 3-d input of type 2")
  assert docstring_prose.normalized("one") != docstring_prose.normalized("two")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
