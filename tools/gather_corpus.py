"""Gathers a corpus: a Wikipedia, or documentation.

    python -m tools.gather_corpus --output_file=corpus.txt
    python -m tools.gather_corpus --output_file=wikipedia.txt.gz \\
        --wikipedia_dump=enwiki-latest-pages-articles.xml.bz2

The output has one sentence per line and a blank line between documents, as
tools.create_pretraining_data expects. The same input gives the same output.

--wikipedia_dump reads the articles of a dump from dumps.wikimedia.org on all
processors: paragraphs without tables, lists, headings, references and
templates. Redirects, pages that are no articles, and articles of one sentence
or fewer than 200 characters are left out. It needs mwparserfromhell.

By default, the program reads the docstrings of the Python standard library,
TensorFlow, Keras, NumPy, SciPy, scikit-learn and Matplotlib, and
`pydoc_data.topics` (the language reference): several megabytes of English. The
modules are parsed by `ast`, not imported. A document is a docstring or a topic
of the language reference: the order of a module's docstrings says little. Only
the first copy of a sentence is kept, so held-out documents do not repeat
training documents.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib.util
import inspect
import os
import pathlib
import re
import sysconfig
import time
import warnings
from typing import Any, Iterable, Iterator, Sequence

from absl import flags

from official_albert import files, text_files
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.corpus import wikipedia

_OUTPUT_FILE = path_flags.define(
  "output_file", None, "The text file to write; .gz is compressed."
)
_WIKIPEDIA_DUMP = path_flags.define(
  "wikipedia_dump",
  "",
  "Dump to read: pages-articles.xml.bz2, or .xml, or comma-separated parts or "
  "globs of them.",
)
_PACKAGES = ("keras", "matplotlib", "numpy", "scipy", "sklearn", "tensorflow")
# A document of two sentences can be cut at one place only, and the first one is
# often a short summary, so lengths would tell the order of segments.
_LEAST_SENTENCES = 3
# Tests have little prose. `_api` and `api` only import other modules under
# public names. The site-packages below the standard library are no part of it.
_SKIPPED_FOLDERS = frozenset(
  "site-packages dist-packages test tests idle_test include _api api "
  "__pycache__".split()
)

# "- item", "1. item", "name: text", "*args: text", "name (int): text".
_ITEM = re.compile(
  r"[-*•] +|\d+[.)] +|[*`]*\w[\w.]*`*(?: ?\([^()]*\))?: +(?=\S)"
)
_SENTENCE_END = re.compile(
  r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\b[A-Z]\.)\s+(?=[A-Z\"(])"
)
# Code and markup contain other characters, or many words like `_CODE`.
_PLAIN = re.compile(r"[A-Z\"(][\w ,;:'\"().!?-]*[.!?][\")]?", re.ASCII)
_CODE = re.compile(r"\w_|_\w|\w\(|\w\.\w|[a-z][A-Z]")
_FUNCTION_WORDS = frozenset(
  """a after all an and any are as at be been before but by can do does each for
  from given has have how if in into is it its may more must no not of on one
  only or other same should so such than that the their then there these they
  this to until up used was when where which will with within without you
  """.split()
)


def sentences_of(text: str) -> list[str]:
  """Returns the sentences of a docstring that are plain English prose."""
  paragraphs: list[list[str]] = [[]]
  for line in inspect.cleandoc(text).replace("`", "").splitlines():
    line = line.strip()
    item = _ITEM.match(line)
    # Paragraphs also end at underlines of headings, "name : type" and "Args:".
    if not line.strip("=-~") or " : " in line or line.endswith(":"):
      paragraphs.append([])
    elif item:
      paragraphs.append([line[item.end() :]])
    else:
      paragraphs[-1].append(line)
  return [
    sentence
    for paragraph in paragraphs
    for sentence in _SENTENCE_END.split(" ".join(" ".join(paragraph).split()))
    if is_prose(sentence)
  ]


def is_prose(sentence: str) -> bool:
  """Returns whether a sentence has mostly English words and little code."""
  words = sentence.split()
  if not 4 <= len(words) <= 80 or not _PLAIN.fullmatch(sentence):
    return False
  words = [word.strip(".,;:!?\"'()") for word in words]
  return (
    sentence.count("(") == sentence.count(")")
    and sentence.count('"') % 2 == 0
    # In English prose nearly half of the words are function words.
    and 8 * sum(word.lower() in _FUNCTION_WORDS for word in words) >= len(words)
    and 4 * sum(bool(_CODE.search(word)) for word in words) <= len(words)
  )


def parsed_modules(
  folder: pathlib.Path, prefix: str
) -> Iterator[tuple[str, ast.Module]]:
  """Yields (qualified name, tree) of the Python files of a folder."""
  for parent, subfolders, names in os.walk(folder):
    subfolders[:] = set(subfolders) - _SKIPPED_FOLDERS
    for name in names:
      if not name.endswith(".py") or name.endswith("_test.py"):
        continue
      path = pathlib.Path(parent, name)
      parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
      module = ".".join(part for part in parts if part not in ("", "__init__"))
      # Some need another version of Python, or have invalid escape sequences.
      with (
        warnings.catch_warnings(),
        contextlib.suppress(SyntaxError, ValueError),
      ):
        warnings.simplefilter("ignore")
        yield module, ast.parse(path.read_bytes())


def docstrings(tree: ast.Module) -> list[str]:
  """Returns the docstrings of a module in source order.

  Includes the docstrings that NumPy adds to C functions by
  `add_newdoc(place, name, text)`.
  """
  found = []
  nodes: list[Any] = [tree]
  for node in nodes:  # Statements only: most nodes are in their expressions.
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
      nodes += getattr(node, name, ())
    if isinstance(
      node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    ):
      found.append((getattr(node, "lineno", 0), ast.get_docstring(node) or ""))
    elif isinstance(call := getattr(node, "value", None), ast.Call):
      name = getattr(call.func, "id", getattr(call.func, "attr", ""))
      if name == "add_newdoc":
        found.extend(
          (constant.lineno, constant.value)
          for argument in call.args[2:]
          for constant in ast.walk(argument)
          if isinstance(constant, ast.Constant)
          and isinstance(constant.value, str)
        )
  return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def gather(
  standard_library: pathlib.Path, packages: Sequence[str] = _PACKAGES
) -> list[tuple[str, list[str]]]:
  """Returns documents: the name of the module and the sentences, by name.

  The packages are found without importing them.
  """
  folders = [(standard_library, "")]
  for name in packages:
    if spec := importlib.util.find_spec(name):
      folders.append((pathlib.Path(str(spec.origin)).parent, name))
    else:
      print(f"{name} is not installed: skipping its documentation.")
  texts: list[tuple[str, list[str]]] = []
  for folder, prefix in folders:
    for name, tree in parsed_modules(folder, prefix):
      if name == "pydoc_data.topics":
        # It assigns a dict to `topics`.
        values = (getattr(node, "value", None) for node in tree.body)
        for value in (x for x in values if isinstance(x, ast.Dict)):
          found = ast.literal_eval(value).items()
          texts += [(f"{name}.{topic}", [text]) for topic, text in found]
      else:
        texts.append((name, docstrings(tree)))
  documents = []
  seen: set[str] = set()
  for name, strings in sorted(texts):
    for text in strings:
      new: dict[str, str] = {}
      for sentence in sentences_of(text):
        key = re.sub("[^a-z]+", " ", sentence.lower()).strip()
        if key not in seen:
          new.setdefault(key, sentence)
      if len(new) >= _LEAST_SENTENCES:
        seen.update(new)
        documents.append((name, [*new.values()]))
  return documents


def write(
  path: str, documents: Iterable[Sequence[str]], nothing: str
) -> tuple[int, int, int]:
  """Writes documents; returns their number, that of sentences and bytes.

  Raises ValueError with the message `nothing` if there is no document.
  """
  count = sentences = size = 0
  with files.replacing(path) as temporary, open(temporary, "wb") as raw:
    file: Any = raw
    if path.endswith(".gz"):
      # Neither a name nor a time, so that the same text gives the same bytes.
      file = gzip.GzipFile("", "wb", 6, raw, mtime=0)
    for lines in documents:
      text = "\n" * bool(count) + "\n".join(lines) + "\n"
      size += file.write(text.encode("utf-8"))
      count, sentences = count + 1, sentences + len(lines)
    if not count:
      raise ValueError(nothing)
    file.close()
  return count, sentences, size


def main(_) -> None:
  start = time.monotonic()
  path, dump = _OUTPUT_FILE.value, _WIKIPEDIA_DUMP.value
  files.make_folder(os.path.dirname(path) or ".")
  files.check_file(path)
  if path.endswith(text_files.ENDINGS) and not path.endswith(".gz"):
    raise ValueError(
      f"--output_file={path} can be compressed by gzip only: end it in .gz."
    )
  documents: Iterable[Sequence[str]]
  if dump:
    documents = wikipedia.articles(
      [*data.find_files(dump, takes_weights=False)]
    )
    nothing = f"{dump} has no article with two sentences: give another dump."
  else:
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    documents = [sentences for _, sentences in gather(library)]
    nothing = "This Python has no docstrings: use your own text instead."
  count, sentences, size = write(path, documents, nothing)
  print(
    f"{path}: {count:,} documents, {sentences:,} sentences, "
    f"{size / 1e6:.2f} MB in {time.monotonic() - start:.0f} s"
  )


if __name__ == "__main__":
  flags.mark_flag_as_required("output_file")
  command_line.run(main)
