"""The corpus of a made-up standard library, and a look at the real one."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

from tools import gather_corpus

_ROOT = pathlib.Path(__file__).resolve().parents[1]

_SEA = '''"""All about the sea and its water. It is wet."""
class Wave:
  """A wave is what the wind makes."""
  def break_(self):
    """It breaks when the ground is near."""
'''
_SHORE = '''"""ALL ABOUT the sea, and its water!"""
def walk():
  """One walks along where the sea ends."""
add_newdoc("shore", "run", """
    One runs where the sand is firm.
    """)
x = """This is a string, but it is not a docstring."""
'''
_TOPICS = """topics = {
  'sand': 'There is a lot of it here.\\n\\nIt is what stones are in the end.',
  'one': 'This is the only sentence in it.',
}
"""


@pytest.fixture
def library(tmp_path: pathlib.Path) -> pathlib.Path:
  for name, text in {
    "sea.py": _SEA,
    "coast/__init__.py": "",
    "coast/shore.py": _SHORE,
    "coast/broken.py": "def (:",
    "coast/null.py": "\0",
    "pydoc_data/topics.py": _TOPICS,
    "test/cases.py": '"""This is not to be read. It is a test."""',
    "_api/shim.py": '"""This is not to be read. It is a shim."""',
    "sea_test.py": '"""This is not to be read. It is a test."""',
    "latin.py": "# -*- coding: latin-1 -*-\nx = '\\xe9'",
  }.items():
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
  return tmp_path


def test_gathers_documents_sorted_deduplicated_in_source_order(library):
  corpus = gather_corpus.gather(library, packages=["no_such_package"])
  assert corpus.documents == (
    gather_corpus.Document(
      "coast.shore",
      "Python",
      (
        "ALL ABOUT the sea, and its water!",
        "One walks along where the sea ends.",
        "One runs where the sand is firm.",
      ),
    ),
    gather_corpus.Document(
      "pydoc_data.topics.sand",
      "pydoc_data.topics",
      ("There is a lot of it here.", "It is what stones are in the end."),
    ),
    # "It is wet." is too short, and the first sentence stands in coast.shore.
    gather_corpus.Document(
      "sea",
      "Python",
      (
        "A wave is what the wind makes.",
        "It breaks when the ground is near.",
      ),
    ),
  )
  assert corpus.missing_packages == ("no_such_package",)
  assert corpus.unreadable_files == 2
  assert corpus.megabytes_by_source() == {
    "Python": pytest.approx(169e-6),
    "pydoc_data.topics": pytest.approx(61e-6),
  }


def test_file_format(library, tmp_path):
  corpus = gather_corpus.gather(library, packages=[])
  output = tmp_path / "new" / "corpus.txt"
  gather_corpus.prepare_output(str(output))
  gather_corpus.write_corpus(corpus, str(output))
  assert output.read_bytes() == (
    b"ALL ABOUT the sea, and its water!\n"
    b"One walks along where the sea ends.\n"
    b"One runs where the sand is firm.\n"
    b"\n"
    b"There is a lot of it here.\n"
    b"It is what stones are in the end.\n"
    b"\n"
    b"A wave is what the wind makes.\n"
    b"It breaks when the ground is near.\n"
  )
  assert [path.name for path in output.parent.iterdir()] == ["corpus.txt"]


def test_docstrings_of_async_functions_and_numbers_are_handled():
  tree = ast.parse('async def f():\n  "first"\ndef g():\n  1\nh = 2\n')
  assert gather_corpus.docstrings(tree) == ["first"]


def test_real_packages_are_found_without_importing_them():
  script = (
    "import sys\n"
    "from tools import gather_corpus\n"
    "names = ['keras', 'numpy', 'tensorflow']\n"
    "assert all(gather_corpus.package_folder(n).is_dir() for n in names)\n"
    "assert gather_corpus.package_folder('no_such_package') is None\n"
    "assert not set(names) & set(sys.modules), 'imported'\n"
  )
  subprocess.run([sys.executable, "-c", script], cwd=_ROOT, check=True)


@pytest.mark.heavy
def test_the_real_library_gives_megabytes_of_sentences():
  # Over 1.2 MB with Python 3.10 and 3.11; far less means that a rule of
  # docstring_prose has become too strict, far more that one is gone.
  corpus = gather_corpus.gather(packages=[])
  sizes = corpus.megabytes_by_source()
  assert 1.0 < sizes["Python"] < 1.7
  assert 0.15 < sizes["pydoc_data.topics"] < 0.4
  names = [document.name for document in corpus.documents]
  assert names == sorted(set(names))
  assert {"argparse", "pydoc_data.topics.compound", "asyncio.streams"} <= set(
    names
  )
  lines = [line for d in corpus.documents for line in d.sentences]
  assert all(line == line.strip() and "\n" not in line for line in lines)
  assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
  "output_file, sentence",
  [
    ("file/corpus.txt", "File exists."),
    (".", "is a folder: name a file in it."),
  ],
)
def test_unwritable_output_is_refused_at_once(tmp_path, output_file, sentence):
  (tmp_path / "file").write_text("")
  path = tmp_path / output_file
  run = subprocess.run(
    [sys.executable, "-m", "tools.gather_corpus", f"--output_file={path}"],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert run.returncode == 1
  assert run.stderr.startswith("gather_corpus: error: ")
  assert run.stderr.endswith(f"{sentence}\n")
  assert run.stderr.count("\n") == 1


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
