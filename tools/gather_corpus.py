"""Gathers an English corpus from the documentation of installed packages.

    python -m tools.gather_corpus --output_file=corpus.txt

Reads the docstrings of the Python standard library, TensorFlow, Keras and
NumPy, and `pydoc_data.topics` (the language reference): several megabytes. They
are parsed by `ast`, not imported. The output has one sentence per line and a
blank line between documents, as tools.create_pretraining_data expects. A
document is a module, or a topic of the language reference. Repeated sentences
are kept only once, so that held-out documents are not copies of training
documents.

The same installed packages give the same bytes.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import pathlib
import sysconfig
import time
import warnings
from typing import Iterator, Optional, Sequence

from official_albert import files
from tools import records
from tools.cli import command_line, path_flags

_OUTPUT_FILE = path_flags.define(
  "output_file", None, "Text file to write, one sentence a line.", required=True
)

_PACKAGES = ("keras", "numpy", "tensorflow")
# Tests have little prose; `_api` and `api` only import other modules under
# public names; site-packages below the standard library has other sources.
_SKIPPED_FOLDERS = frozenset(
  "site-packages dist-packages test tests idle_test include _api api "
  "__pycache__".split()
)
# A pair of segments needs two sentences.
_MIN_SENTENCES = 2


@dataclasses.dataclass(frozen=True)
class Document:
  """The sentences of one module in source order."""

  name: str
  source: str
  sentences: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Corpus:
  """The result of `gather`.

  Attributes:
    documents: sorted by name.
    missing_packages: names of packages that are not installed.
    unreadable_files: number of files that Python cannot parse.
  """

  documents: tuple[Document, ...]
  missing_packages: tuple[str, ...]
  unreadable_files: int

  def megabytes_by_source(self) -> dict[str, float]:
    """Returns the megabytes (10^6 bytes) of UTF-8 text by source."""
    sizes: dict[str, float] = {}
    for document in self.documents:
      size = sum(len(line.encode()) + 1 for line in document.sentences)
      sizes[document.source] = sizes.get(document.source, 0) + size / 1e6
    return dict(sorted(sizes.items()))


def package_folder(name: str) -> Optional[pathlib.Path]:
  """Returns the folder of an installed package, without importing it."""
  spec = importlib.util.find_spec(name)
  if spec is None or not spec.submodule_search_locations:
    return None
  return pathlib.Path(next(iter(spec.submodule_search_locations)))


def source_files(folder: pathlib.Path, prefix: str) -> Iterator[tuple]:
  """Yields (qualified module name, path) of the Python files of a folder."""
  for parent, subfolders, names in os.walk(folder):
    subfolders[:] = sorted(set(subfolders) - _SKIPPED_FOLDERS)
    for name in sorted(names):
      if name.endswith(".py") and not name.endswith("_test.py"):
        path = pathlib.Path(parent, name)
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[-1] == "__init__":
          parts = parts[:-1]
        yield ".".join((prefix, *parts) if prefix else parts), path


def docstrings(tree: ast.Module) -> list[str]:
  """Returns the docstrings of a module in source order.

  Includes those that NumPy gives to C functions, `add_newdoc(place, name,
  text)`.
  """
  found = []
  for node in ast.walk(tree):
    if isinstance(
      node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    ):
      text = ast.get_docstring(node, clean=False)
      if text:
        found.append((getattr(node, "lineno", 0), text))
    elif isinstance(node, ast.Call):
      name = getattr(node.func, "id", getattr(node.func, "attr", ""))
      if name == "add_newdoc":
        found.extend(
          (constant.lineno, constant.value)
          for argument in node.args[2:]
          for constant in ast.walk(argument)
          if isinstance(constant, ast.Constant)
          and isinstance(constant.value, str)
        )
  return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def read_module(path: pathlib.Path) -> ast.Module:
  """Parses a file.

  Raises:
    ValueError, SyntaxError: it is not Python of this version.
  """
  with warnings.catch_warnings():
    # Ignores invalid escape sequences in other packages.
    warnings.simplefilter("ignore")
    return ast.parse(path.read_bytes())


def topics(tree: ast.Module) -> dict[str, str]:
  """Returns the dict that `pydoc_data/topics.py` assigns to `topics`."""
  for node in tree.body:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
      return ast.literal_eval(node.value)
  return {}


def gather(
  standard_library: Optional[pathlib.Path] = None,
  packages: Sequence[str] = _PACKAGES,
) -> Corpus:
  """Reads all sources.

  Args:
    standard_library: its folder; default: the running Python's.
    packages: names of additional packages.
  """
  standard_library = standard_library or pathlib.Path(
    sysconfig.get_path("stdlib")
  )
  folders = {"Python": (standard_library, "")}
  missing = []
  for name in packages:
    folder = package_folder(name)
    if folder is None:
      missing.append(name)
    else:
      folders[name] = (folder, name)

  texts: list[tuple[str, str, list[str]]] = []
  unreadable = 0
  for source, (folder, prefix) in folders.items():
    for name, path in source_files(folder, prefix):
      try:
        tree = read_module(path)
      except (SyntaxError, ValueError):
        unreadable += 1
        continue
      if name == "pydoc_data.topics":
        for topic, text in topics(tree).items():
          texts.append((f"{name}.{topic}", "pydoc_data.topics", [text]))
      else:
        texts.append((name, source, docstrings(tree)))

  documents = []
  seen: set[str] = set()
  for name, source, strings in sorted(texts):
    sentences = []
    for text in strings:
      for sentence in records.docstring_prose.prose_sentences(text):
        key = records.docstring_prose.normalized(sentence)
        if key not in seen:
          seen.add(key)
          sentences.append(sentence)
    if len(sentences) >= _MIN_SENTENCES:
      documents.append(Document(name, source, tuple(sentences)))
  return Corpus(tuple(documents), tuple(missing), unreadable)


def prepare_output(output_file: str) -> None:
  """Creates the folder of the output file.

  Raises:
    OSError: the folder cannot be made.
    ValueError: the file is a folder.
  """
  path = pathlib.Path(output_file)
  if path.is_dir():
    raise ValueError(f"{output_file} is a folder: name a file in it.")
  path.parent.mkdir(parents=True, exist_ok=True)


def write_corpus(corpus: Corpus, output_file: str) -> None:
  """Writes one sentence per line and a blank line between documents."""
  text = "\n\n".join("\n".join(d.sentences) for d in corpus.documents) + "\n"
  files.write_text(output_file, text)


def main(argv: Sequence[str]) -> None:
  del argv
  start = time.monotonic()
  prepare_output(_OUTPUT_FILE.value)
  corpus = gather()
  if not corpus.documents:
    raise ValueError(
      "No documentation was found in this Python installation (it may be "
      "stripped of docstrings): use your own text instead."
    )
  write_corpus(corpus, _OUTPUT_FILE.value)
  for name in corpus.missing_packages:
    print(f"{name} is not installed: skipping its documentation.")
  if corpus.unreadable_files:
    print(f"{corpus.unreadable_files} files skipped: not valid Python.")
  sizes = corpus.megabytes_by_source()
  for source, size in sizes.items():
    print(f"  {source:<18} {size:6.2f} MB")
  sentences = sum(len(document.sentences) for document in corpus.documents)
  print(
    f"{_OUTPUT_FILE.value}: {len(corpus.documents):,} documents, "
    f"{sentences:,} sentences, {sum(sizes.values()):.2f} MB in "
    f"{time.monotonic() - start:.0f} s"
  )


if __name__ == "__main__":
  command_line.run(main)
