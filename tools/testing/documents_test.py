"""Tests that documents, lists of packages and code agree."""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import inspect
import itertools
import os
import pathlib
import pydoc
import re
import subprocess
import sys
from importlib import metadata

import pytest
from packaging import requirements

import official_albert
from official_albert import runs, tfrecords

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# TensorFlow on a TPU VM, by the oldest Python of the lane: that of an image, or
# the package without files.
_TPU_BUILDS = {"3.10": ("2.15.0", "2.15.1"), "3.12": ("2.20.0+tpu",)}
_THIS_LANE = "3.10" if sys.version_info < (3, 12) else "3.12"
_DOCUMENTS = [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")]


def _text(path):
  return path.read_text(encoding="utf-8")


def _anchors(path):
  """Returns the anchors that GitHub gives to the headings."""
  headings = re.findall(r"^#+ +(.+)$", _text(path), re.MULTILINE)
  kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
  return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_links_exist(path):
  for link in re.findall(r"\]\(([^)\s]+)\)", _text(path)):
    if re.match(r"https?:|mailto:", link):
      continue
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    assert target.exists(), link
    if anchor:
      assert anchor in _anchors(target), link


def test_pages_that_code_names_exist():
  found = set()
  folders = ("official_albert", "tasks", "tfrecords", "tools")
  for path in itertools.chain(*((_ROOT / x).rglob("*.py") for x in folders)):
    # Of comments and docstrings on several lines.
    text = re.sub(r"\s+#?\s*", " ", _text(path))
    found |= {*re.findall(r'\b(docs/\w[\w/]*\.\w+)(?:, "([^"]+)")?', text)}
  # It is of another project.
  found.remove(("docs/models_metadata.md", ""))
  assert len(found) > 20
  for name, section in sorted(found):
    page = _ROOT / name
    assert page.exists(), name
    assert not section or f"# {section}\n" in _text(page), (name, section)


def test_tables_and_pictures_are_those_of_the_numbers():
  done = subprocess.run(
    [sys.executable, "docs/draw.py", "--check"],
    cwd=_ROOT,
    env={**os.environ, "PYTHONPATH": str(_ROOT)},
    capture_output=True,
    text=True,
  )
  assert not done.returncode, done.stdout + done.stderr
  pages = "".join(map(_text, _DOCUMENTS))
  assert pages.count("\n<!-- table: ") > 1


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_named_modules_exist(path):
  for name in re.findall(r"`([a-z_]+/[a-z0-9_/]+\.py)`", _text(path)):
    places = (_ROOT, _ROOT / "official_albert")
    assert any((place / name).is_file() for place in places), name


def test_the_reference_lists_each_program_and_public_name():
  programs = {}
  for path in (_ROOT / "tools").rglob("*.py"):
    if "\n  command_line.run(main" in (text := _text(path)):
      name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
      programs[name] = ast.get_docstring(ast.parse(text)).split("\n")[0]
  reference = _ROOT / "docs" / "reference"
  row = r"(?m)^\| \[?`([\w.]+)`\S* \| (.+) \|$"
  assert dict(re.findall(row, _text(reference / "flags.md"))) == programs
  names = dict(re.findall(row, _text(reference / "python.md")))
  public = {f"official_albert.{name}" for name in official_albert.__all__}
  assert public <= names.keys()
  for name, meaning in names.items():
    assert inspect.getdoc(pydoc.locate(name)).split("\n")[0] == meaning, name


def test_one_update_is_short_to_read():
  text = _text(_ROOT / "ARCHITECTURE.md").partition("One update of pretr")[2]
  files = re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
  assert files[0] == "tools/run_pretraining.py" and 8 < len(files) <= 12
  code = "".join(_text(_ROOT / name) for name in files)
  without_examples = re.sub(r"^ *>>> (.+\n)+\n", "", code, flags=re.MULTILINE)
  assert len(without_examples.splitlines()) <= 2500


def test_every_deviation_is_listed_and_marked():
  marked = {
    str(source.relative_to(_ROOT)): _text(source).count("Deviation:")
    for folder in ("official_albert", "tasks", "tfrecords", "tools")
    for source in (_ROOT / folder).rglob("*.py")
    if not source.name.endswith("_test.py")
  }
  table = _text(_ROOT / "docs/deviations.md")
  files = re.findall(r"`([\w/]+\.py)`", table.partition("| what |")[2])
  assert collections.Counter(files) == +collections.Counter(marked)


def test_no_package_replaces_the_tensorflow_of_a_tpu():
  asking = set()
  text = _text(_ROOT / "requirements-tpu.txt")
  for name in {*re.findall(r"^([\w-]+)==", text, re.MULTILINE)}:
    # Those of TPUs, or of other versions of Python, are not installed here.
    with contextlib.suppress(metadata.PackageNotFoundError):
      for line in metadata.requires(name) or ():
        wanted = requirements.Requirement(line)
        if wanted.name == "tensorflow" and "extra" not in str(wanted.marker):
          asking.add(name)
          for build in _TPU_BUILDS[_THIS_LANE]:
            assert wanted.specifier.contains(build), (name, line)
  assert asking == {"tensorflow-text", "tf-keras"}


def _messages():
  """Yields a pattern for each message in the code, with any values."""
  for source in _ROOT.glob("[ot]*/**/*.py"):
    for node in ast.walk(ast.parse(_text(source))):
      if isinstance(node, (ast.JoinedStr, ast.Constant)):
        parts = getattr(node, "values", [node])
        fixed = [str(getattr(x, "value", "")) for x in parts]
        is_value = [isinstance(x, ast.FormattedValue) for x in parts]
        if sum(len(x) for x, y in zip(fixed, is_value) if not y) > 30:
          yield "".join(
            "(.+)" if y else re.escape(x) for x, y in zip(fixed, is_value)
          )
  script = _text(_ROOT / "Makefile").replace("\\\n", "")
  for text in re.findall(r"\$\(error (.*)\)$", script, re.MULTILINE):
    yield "(.+)".join(map(re.escape, re.split(r"\$\(\w+\)", text)))


def test_quoted_messages_are_those_of_the_code():
  page = _text(_ROOT / "docs/troubleshooting.md")
  quoted = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
  assert len(quoted) > 2
  patterns = [re.compile(x) for x in _messages()]
  for message in quoted:
    assert any(x.search(message) for x in patterns), message


def test_the_formats_are_those_of_the_code():
  page = _text(_ROOT / "docs/formats.md")
  rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([SP1]) \|", page, re.MULTILINE)
  sizes = {"S": (7,), "P": (3,), "1": (1,)}
  assert tuple(
    tfrecords.Feature(name, dtype, sizes[size]) for name, dtype, size in rows
  ) == tfrecords.pretraining_schema(7, 3)
  names = {"format_version", "unigram_entropy_nats", "truncated_share"}
  for kind in ("Manifest", "Feature", "Shard", "TokenizerInfo", "Split"):
    fields = dataclasses.fields(getattr(tfrecords, kind))
    names |= {field.name for field in fields}
  names |= {feature.name for feature in tfrecords.finetuning_schema([7])}
  names |= {"label_ids", "start_positions", "end_positions", "is_impossible"}
  names |= {*runs.RunRecord.__annotations__, runs.RECORD_FILE}
  assert not {name for name in names if name not in page}
