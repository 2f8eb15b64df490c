"""Holds this repository to its import law, and the checks to made-up trees."""

from __future__ import annotations

import pathlib

import pytest

from tools import import_graph, layering, update_build

_ROOT = pathlib.Path(__file__).absolute().parents[1]
_REQUIREMENTS = """\
-r requirements.txt
absl-py==2.3.1
apache-beam==2.77.0
tensorflow==2.15.1  # a comment
tensorflow-text==2.15.0
tensorflow-addons==0.23.0
sentencepiece==0.2.2
matplotlib==3.9.4
pytest==8.4.2
"""


def test_this_repository_keeps_the_law():
  assert layering.check_all(_ROOT) == []


def test_build_depends_on_what_is_imported():
  modules = import_graph.read_tree(_ROOT)
  build = (_ROOT / "BUILD").read_text(encoding="utf-8")
  assert build == update_build.render(modules), (
    "BUILD is stale: run `python -m tools.update_build`."
  )


def tree(root: pathlib.Path, files: dict[str, str]) -> dict:
  for name, text in files.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
  return import_graph.read_tree(root)


# Files that each of the trees below may import.
_FILES = {
  "official_albert/__init__.py": "from official_albert import config",
  "official_albert/config.py": "import json",
  "official_albert/layers/shapes.py": "",
  "official_albert/model.py": "from official_albert.layers import shapes",
  "official_albert/optimization.py": "import tensorflow_addons",
  "official_albert/tokenization.py": "import sentencepiece",
  "official_albert/training.py": "from official_albert import optimization",
  "tfrecords/schemas.py": "",
  "tfrecords/reader.py": "from tfrecords import schemas",
  "tfrecords/writer.py": "from tfrecords import schemas",
  "tasks/__init__.py": "from tasks.a import task\nfrom tasks.b import model",
  "tasks/a/masking.py": "",
  "tasks/a/documents.py": "from tasks.a import masking",
  "tasks/a/examples.py": "from tasks.a import documents, masking",
  "tasks/a/model.py": "from official_albert import model",
  "tasks/a/task.py": "from tasks.a import model\nimport tfrecords.reader",
  "tasks/b/model.py": "from official_albert import model",
  "tools/show.py": "from absl import flags\nfrom tools import tell",
  "tools/tell.py": "import tasks\nimport matplotlib.pyplot",
}


def problems_of(root: pathlib.Path, files: dict[str, str]) -> list[str]:
  modules = tree(root, {**_FILES, **files})
  return [
    *layering.check_levels(modules),
    *layering.check_order_in_rooms(modules),
    *layering.check_no_cycles(modules),
    *layering.check_third_parties(modules, _REQUIREMENTS),
  ]


@pytest.mark.parametrize(
  "files",
  [
    {},
    # Tests may look further in their room, and at other people's packages.
    {"official_albert/training_test.py": "from official_albert import model"},
    {"tfrecords/reader_test.py": "import sentencepiece, pytest, tensorflow"},
    {"tasks/a/beam_steps.py": "import apache_beam.options"},
    {"tasks/tasks_test.py": "import tasks\nfrom tasks.a import task"},
    # What several tasks need stands beside them.
    {
      "tasks/text.py": "from tasks import text_rows",
      "tasks/text_rows.py": "",
      "tasks/a/model_test.py": "from tasks import text",
      "tasks/a/examples.py": "from tasks import text, text_rows",
    },
    # At start nothing of TensorFlow is loaded.
    {"official_albert/__init__.py": "def f():\n  import official_albert.model"},
    {"official_albert/run.py": "from official_albert.layers import shapes"},
  ],
)
def test_lawful_trees(tmp_path, files):
  assert problems_of(tmp_path, files) == []


@pytest.mark.parametrize(
  "path, text, problem",
  [
    (
      "official_albert/model.py",
      "from tfrecords import schemas",
      "imports tfrecords/schemas.py: official_albert may import",
    ),
    (
      "tfrecords/reader_test.py",
      "from official_albert import config",
      "tfrecords may import tfrecords only",
    ),
    (
      "official_albert/model.py",
      "def f():\n  import tasks.a.model",
      "official_albert may import official_albert only",
    ),
    ("tasks/a/task.py", "from tools import tell", "tasks may import"),
    ("tasks/a/task.py", "from tasks.b import model", "never imports another"),
    ("tasks/a/task_test.py", "from tasks.b import model", "never imports"),
    ("tasks/a/task.py", "import tasks", "never imports another"),
    ("tasks/text.py", "from tasks.a import task", "knows none of them"),
    ("tasks/a/task.py", "from . import model", "by a relative name"),
    (
      "official_albert/config.py",
      "from official_albert.layers import shapes",
      "may import nothing of this repository",
    ),
    (
      "official_albert/layers/shapes.py",
      "from official_albert import training",
      "it may import official_albert/config.py, official_albert/fused_ops.py,",
    ),
    (
      "official_albert/model.py",
      "from official_albert import training",
      "model.py imports official_albert/training.py",
    ),
    (
      "official_albert/training.py",
      "from official_albert import tokenization",
      "imports official_albert/tokenization.py, which it may not know",
    ),
    (
      "official_albert/optimization.py",
      "from official_albert import training",
      "imports official_albert/training.py, which it may not know",
    ),
    (
      "tfrecords/schemas.py",
      "from tfrecords import reader",
      "may import nothing",
    ),
    (
      "tfrecords/reader.py",
      "from tfrecords import writer",
      "imports tfrecords/writer.py, which it may not know",
    ),
    ("tasks/a/model.py", "from tasks.a import task", "stands above it"),
    ("tasks/a/examples.py", "from tasks.a import model", "stands above it"),
    (
      "tools/tell.py",
      "from tools import show",
      "tools/show.py -> tools/tell.py -> tools/show.py",
    ),
    (
      "official_albert/model.py",
      "from absl import flags",
      "imports absl.flags, which belongs to tools/*.",
    ),
    ("tasks/a/task.py", "from absl.app import run", "belongs to tools/*"),
    ("tasks/a/task.py", "import sentencepiece as sp", "belongs to official_a"),
    ("tasks/a/task.py", "import tensorflow_addons.metrics", "text_metrics.py"),
    ("tasks/a/task.py", "from tensorflow_text import x", "text_layers.py"),
    ("tasks/a/task.py", "import matplotlib", "belongs to tools/*"),
    ("tasks/a/task.py", "import apache_beam as beam", "tasks/*/beam_*.py"),
    ("tasks/a/task.py", "import pandas", "in no requirements file"),
    (
      "official_albert/config.py",
      "import tensorflow as tf",
      "official_albert/config.py has to work without TensorFlow",
    ),
    # By way of documents.py; and by way of the package that config.py is in.
    (
      "tasks/a/masking.py",
      "from official_albert import optimization",
      "tasks/a/examples.py has to work without TensorFlow, but official_alb",
    ),
    (
      "official_albert/__init__.py",
      "from official_albert import optimization",
      "official_albert/config.py has to work without TensorFlow, but official",
    ),
  ],
)
def test_breaches(tmp_path, path, text, problem):
  found = problems_of(tmp_path, {path: text})
  assert any(problem in sentence for sentence in found), found


def test_only_the_guilty_are_named(tmp_path):
  assert problems_of(tmp_path, {"tasks/a/task.py": "import tasks.b.model"}) == [
    "tasks/a/task.py imports tasks/b/model.py: a task never imports another; "
    "what both need belongs to tasks/ or official_albert."
  ]


_RUN = "pytest.main([__file__])\n"


@pytest.mark.parametrize(
  "path, text, problem",
  [
    ("tools/show_test.py", "", "Bazel would run none"),
    ("tools/show_test.py", "\n" * 600 + _RUN, "has 601 lines"),
    ("tools/utils.py", "", "named after the story"),
  ],
)
def test_what_a_file_comes_with(tmp_path, path, text, problem):
  files = {
    "tools/__init__.py": "",
    "tools/conftest.py": "",
    "tools/show.py": "\n" * 600,
    "tools/show_test.py": _RUN,
  }
  assert layering.check_files(tree(tmp_path, files)) == []
  found = layering.check_files(tree(tmp_path, {**files, path: text}))
  assert any(problem in sentence for sentence in found), found


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
