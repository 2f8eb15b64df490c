"""The targets of a made-up tree."""

from __future__ import annotations

import pathlib

import pytest

from tools import import_graph, update_build

_PROGRAM = 'if __name__ == "__main__":\n  run()\n'
_FILES = {
  "official_albert/__init__.py": "from official_albert import config",
  "official_albert/config.py": "",
  "official_albert/layers/__init__.py": '"""A docstring is not worth it."""',
  "official_albert/layers/shapes.py": "import tensorflow",
  "official_albert/conftest.py": "",
  "official_albert/layers/shapes_test.py": "DATA = 'testdata'",
  "tasks/x/model.py": "from official_albert import AlbertConfig\n"
  "from official_albert.layers import shapes",
  "tools/__init__.py": "import os",
  "tools/run.py": "def f():\n  from tasks.x import model\n"
  "NAMES = ['-m', 'see', 'conftest', 'run']\n" + _PROGRAM,
  "tools/look.py": "x = 1\n" + _PROGRAM,
  "tools/see.py": "x = 1\n" + _PROGRAM,
  "tools/conftest.py": "",
  "tools/run_test.py": "COMMAND = ['-m', 'tools.look', 'tools.none', 'see']",
  "tools/see_test.py": "NAMES = ['tools.look', 'run']",
}


def read(root: pathlib.Path, files: dict[str, str]) -> dict:
  for name, text in files.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
  return import_graph.read_tree(root)


def test_targets(tmp_path):
  text = update_build.render(read(tmp_path, _FILES))
  header, targets = text.split("# official_albert/", 1)
  assert 'load("@rules_python//python:defs.bzl"' in header
  assert (
    targets
    == """: the model and what trains, loads and reads it

py_library(
    name = "official_albert",
    srcs = ["official_albert/__init__.py"],
    deps = [":config"],
)

py_library(
    name = "config",
    srcs = ["official_albert/config.py"],
)

py_library(
    name = "official_albert_conftest",
    testonly = True,
    srcs = ["official_albert/conftest.py"],
)

py_library(
    name = "shapes",
    srcs = ["official_albert/layers/shapes.py"],
)

py_test(
    name = "shapes_test",
    srcs = ["official_albert/layers/shapes_test.py"],
    data = [":testdata"],
    main = "official_albert/layers/shapes_test.py",
    deps = [
        ":official_albert_conftest",
        ":shapes",
    ],
)

# tasks/: objectives

py_library(
    name = "x_model",
    srcs = ["tasks/x/model.py"],
    deps = [
        ":official_albert",
        ":shapes",
    ],
)

# tools/: programs, `bazel run //:NAME -- --help`

py_library(
    name = "tools",
    srcs = ["tools/__init__.py"],
)

py_library(
    name = "tools_conftest",
    testonly = True,
    srcs = ["tools/conftest.py"],
    deps = [":tools"],
)

py_binary(
    name = "look",
    srcs = ["tools/look.py"],
    main = "tools/look.py",
    deps = [":tools"],
)

py_binary(
    name = "run",
    srcs = ["tools/run.py"],
    main = "tools/run.py",
    deps = [
        ":see",
        ":tools",
        ":x_model",
    ],
)

py_test(
    name = "run_test",
    srcs = ["tools/run_test.py"],
    main = "tools/run_test.py",
    deps = [
        ":look",
        ":run",
        ":see",
        ":tools",
        ":tools_conftest",
    ],
)

py_binary(
    name = "see",
    srcs = ["tools/see.py"],
    main = "tools/see.py",
    deps = [":tools"],
)

py_test(
    name = "see_test",
    srcs = ["tools/see_test.py"],
    main = "tools/see_test.py",
    deps = [
        ":see",
        ":tools",
        ":tools_conftest",
    ],
)
"""
  )


@pytest.mark.parametrize(
  "path, name",
  [
    ("official_albert/model.py", "model"),
    ("official_albert/layers/dropout_test.py", "dropout_test"),
    ("tasks/squad/model.py", "squad_model"),
    ("tasks/squad/__init__.py", "squad"),
    ("tasks/__init__.py", "tasks"),
    ("tfrecords/reader.py", "tfrecords_reader"),
    ("tools/predict.py", "predict"),
  ],
)
def test_names(path, name):
  assert update_build.target_name(path) == name


def test_two_targets_of_one_name_are_refused(tmp_path):
  files = {"official_albert/model.py": "", "tools/model.py": ""}
  with pytest.raises(ValueError, match="tools/model.py and official_albert/mo"):
    update_build.render(read(tmp_path, files))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
