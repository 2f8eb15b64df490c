"""Reading imports of every shape, on a small made-up tree."""

from __future__ import annotations

import pathlib

import pytest

from tools import import_graph
from tools.import_graph import Import


def make_tree(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
  for name, text in files.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
  return root


SOURCE = """
from __future__ import annotations
import os, tfrecords.schemas
import tensorflow as tf
from typing import TYPE_CHECKING
from absl import flags
from tasks.x import (
  model as model_lib,
  Thing,
)
from . import near
if TYPE_CHECKING:
  from tasks import y
try:
  import fast
except ImportError:
  def f():
    from tasks.x.model import Model
"""


def test_imports(tmp_path):
  make_tree(
    tmp_path,
    {
      "tasks/__init__.py": "",
      "tasks/x/__init__.py": "",
      "tasks/x/model.py": "",
      "tasks/y.py": "",
      "tasks/x/main.py": SOURCE,
      "tfrecords/schemas.py": "",
      "elsewhere/other.py": "import tasks",
      "tasks/testdata/not_ours.py": "this is not Python",
    },
  )
  modules = import_graph.read_tree(tmp_path)
  assert list(modules) == [
    "tasks/__init__.py",
    "tasks/x/__init__.py",
    "tasks/x/main.py",
    "tasks/x/model.py",
    "tasks/y.py",
    "tfrecords/schemas.py",
  ]
  main = modules["tasks/x/main.py"]
  assert main.imports == (
    Import("__future__.annotations", None, True),
    Import("os", None, True),
    Import("tfrecords.schemas", "tfrecords/schemas.py", True),
    Import("tensorflow", None, True),
    Import("typing.TYPE_CHECKING", None, True),
    Import("absl.flags", None, True),
    Import("tasks.x.model", "tasks/x/model.py", True),
    Import("tasks.x.Thing", "tasks/x/__init__.py", True),
    Import(".near", None, True, relative=True),
    Import("tasks.y", "tasks/y.py", False),
    Import("fast", None, True),
    Import("tasks.x.model.Model", "tasks/x/model.py", False),
  )
  assert main.imported_paths == [
    "tasks/x/__init__.py",
    "tasks/x/model.py",
    "tasks/y.py",
    "tfrecords/schemas.py",
  ]


def test_kinds_of_files(tmp_path):
  make_tree(
    tmp_path,
    {
      "tools/__init__.py": "",
      "tools/conftest.py": "",
      "tools/run.py": "",
      "tools/run_test.py": "from tools import run_test",
    },
  )
  modules = import_graph.read_tree(tmp_path)
  assert [m.is_package for m in modules.values()] == [True, False, False, False]
  assert [m.is_test for m in modules.values()] == [False, True, False, True]
  assert modules["tools/run_test.py"].imported_paths == []


def test_a_file_that_does_not_parse_is_named(tmp_path):
  make_tree(tmp_path, {"tools/broken.py": "def (:"})
  with pytest.raises(SyntaxError) as error:
    import_graph.read_tree(tmp_path)
  assert error.value.filename == "tools/broken.py"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
