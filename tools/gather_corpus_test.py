"""Tests of the corpus, also of that of the real installation."""

from __future__ import annotations

import ast
import gzip
import importlib.util

import pytest

from official_albert.tools import gather_corpus
from official_albert.tools.testing import many_commands

_GOOGLE = """Pours the water into a glass.

  The glass has to be empty, because
  nothing stops the water at the `rim`.

  Args:
    glass_size (int): The size of the glass in litres. It may
      not be zero, e.g. By D. E. Knuth.
    *others: Bottles to use after the first is empty.
  - The first of the items, if there is one.
  1. The second of the items.

  Returns:
    The bottle with what is left in it.
  """
_NUMPY = """
  Count the birds on a wire.

  Parameters
  ----------
  wire, other_wire : array_like, shape the same as that of the poles
      The wires on which they sit.

  >>> count("this is only the source of a test")
  this is only its output

  Call it as in this example::

      this_is_code in the_block

  .. [1] A. Author, "Where all the birds go in the winter", 1997.
  """


def test_docstrings_of_both_styles():
  assert gather_corpus.sentences_of(_GOOGLE) == [
    "Pours the water into a glass.",
    "The glass has to be empty, because nothing stops the water at the rim.",
    "The size of the glass in litres.",
    "It may not be zero, e.g. By D. E. Knuth.",
    "Bottles to use after the first is empty.",
    "The first of the items, if there is one.",
    "The second of the items.",
    "The bottle with what is left in it.",
  ]
  assert gather_corpus.sentences_of(_NUMPY) == [
    "Count the birds on a wire.",
    "The wires on which they sit.",
  ]


@pytest.mark.parametrize(
  "sentence, accepted",
  [
    ("The size of the batch has to be even.", True),
    ("If batch_size is None, the batch holds all that is left.", True),
    ('A value of "mean" takes the mean over the batch.', True),
    ("Too few words.", False),
    ("Tensor shape dtype name value output input graph session.", False),
    ("It is a_b, or c.d, or e(f) of gH.", False),
    ("The value of it is a = b + c.", False),
    ("It can be found at https://example.org/x for all.", False),
    ("The (first of these is not closed.", False),
    ("It is in the \u03b1 and the \u03b2 of it.", False),
    ("this does not begin with a capital of its own.", False),
    ("This is not the end of the", False),
    ("The " + " ".join(["the"] * 80) + ".", False),
  ],
)
def test_prose(sentence, accepted):
  assert gather_corpus.is_prose(sentence) == accepted


def test_docstrings_of_all_statements():
  source = """
if x:
  def f(): "a"
else:
  def f(): "b"
try:
  with y:
    class C:
      def f(): "c"
except E:
  for z in y:
    async def f(): "d"
finally:
  match y:
    case 1:
      add_newdoc("place", "name", "e")
x = lambda: "no docstring"
"""
  # The first ones are those of the module and of the class.
  found = gather_corpus.docstrings(ast.parse(source))
  assert [text for text in found if text] == [*"abcde"]


_FILES = {
  "sea.py": '''"""Two of these are not new. All about the sea and its water.

One walks along where the sea ends. All of this is dropped."""
class Wave:
  """A wave is what the wind makes. It ends as foam on the sand."""
  async def break_(self):
    """It breaks when the ground is near. It breaks when the ground is near.

    All of this is kept. It is wet. Waves that do not break are swell."""
  def count(self):
    1
''',
  "coast/__init__.py": "",
  "coast/shore.py": '''"""ALL ABOUT the sea, and its water!

One walks along where the sea ends. One runs where the sand is firm."""
add_newdoc("shore", "swim", """
    One swims where the sea is calm. Beware of all that is below.
    There is more than one thinks.
    """)
x = """This is a string, but it is not a docstring."""
''',
  "coast/broken.py": "def (:",
  "coast/null.py": "\0",
  "pydoc_data/topics.py": """topics = {
  'sand': 'There is a lot of it here. Castles of it do not last.\\n\\n'
      'It is what stones are in the end.',
  'one': 'This is the only sentence in it.',
}
""",
  "test/cases.py": '"""This is not to be read. It is a test of it."""',
  "_api/shim.py": '"""This is not to be read. It is a shim of it."""',
  "sea_test.py": '"""This is not to be read. It is a test of it."""',
  "latin.py": "# -*- coding: latin-1 -*-\nx = '\\xe9'",
}


def test_documents_are_sorted_and_sentences_unique(
  tmp_path, monkeypatch, capsys
):
  library = tmp_path / "standard"
  for name, text in _FILES.items():
    (library / name).parent.mkdir(parents=True, exist_ok=True)
    (library / name).write_text(text)
  # A package is found without importing it.
  (tmp_path / "lib" / "toy_shells").mkdir(parents=True)
  (tmp_path / "lib" / "toy_shells" / "__init__.py").write_text(
    '"""What is in a shell can be heard. It is the sea. It is not."""\n'
    'def open(): """All of this is dropped. It ends as foam on the sand. '
    'It is the shortest one of all."""\nraise 1\n'
  )
  monkeypatch.syspath_prepend(tmp_path / "lib")
  packages = ["no_such_package", "toy_shells"]
  # Of a docstring with fewer than three new sentences, "It is wet." being too
  # short, nothing is kept, so its sentences are new to those after it.
  assert gather_corpus.gather(library, packages) == [
    (
      "coast.shore",
      [
        "ALL ABOUT the sea, and its water!",
        "One walks along where the sea ends.",
        "One runs where the sand is firm.",
      ],
    ),
    (
      "coast.shore",
      [
        "One swims where the sea is calm.",
        "Beware of all that is below.",
        "There is more than one thinks.",
      ],
    ),
    (
      "pydoc_data.topics.sand",
      [
        "There is a lot of it here.",
        "Castles of it do not last.",
        "It is what stones are in the end.",
      ],
    ),
    (
      "sea",
      [
        "It breaks when the ground is near.",
        "All of this is kept.",
        "Waves that do not break are swell.",
      ],
    ),
    (
      "toy_shells",
      [
        "All of this is dropped.",
        "It ends as foam on the sand.",
        "It is the shortest one of all.",
      ],
    ),
  ]
  assert "no_such_package is not installed" in capsys.readouterr().out


_DUMP = """<mediawiki><siteinfo /><page><title>Sea</title><ns>0</ns><revision>
<text>{}</text></revision></page><page><title>Sand</title><ns>0</ns><revision>
<text>{}</text></revision></page></mediawiki>"""


def test_a_wikipedia(tmp_path):
  pytest.importorskip("mwparserfromhell")
  texts = [
    f"The {name} is older than [[all]] of us. It has no end. " * 5
    for name in ("sea", "sand")
  ]
  (tmp_path / "wiki.xml").write_text(_DUMP.format(*texts))
  (tmp_path / "empty.xml").write_text(_DUMP.format("One.", ""))
  outputs = [tmp_path / name for name in ("a.txt", "b.txt.gz", "c.gz")]

  def line(output, dump="wiki"):
    return [
      f"--output_file={output}",
      f"--wikipedia_dump={tmp_path}/{dump}.xml",
    ]

  done = many_commands.run("gather_corpus", [line(path) for path in outputs])
  assert [result.err for result in done] == [""] * 3
  text, packed, again = (path.read_bytes() for path in outputs)
  lines = "The {0} is older than all of us.\nIt has no end.\n" * 5
  assert text.decode() == f"{lines.format('sea')}\n{lines.format('sand')}"
  assert gzip.decompress(packed) == text and packed == again
  assert f"{outputs[0]}: 2 documents, 20 sentences, 0.00 MB" in done[0].out
  named = "empty.xml has no article with two sentences"
  many_commands.check_refusals(
    "gather_corpus", [(line(tmp_path / "d.txt", "empty"), named)]
  )
  assert not [path for path in tmp_path.iterdir() if "d.txt" in path.name]


def test_a_wikipedia_needs_its_parser(tmp_path, monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  (tmp_path / "wiki.xml").write_text(_DUMP)
  with pytest.raises(ValueError, match="python -m pip install mwparserfromh"):
    next(gather_corpus.wikipedia.articles([str(tmp_path / "wiki.xml")]))
