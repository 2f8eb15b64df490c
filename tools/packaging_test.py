"""Tests the wheel: its files, its requirements, and the command `albert`."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import official_albert
from official_albert.tools.testing import toy_data

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_MOVED = ("tasks", "tfrecords", "tools")
_FOLDERS = ("official_albert", *_MOVED)


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> pathlib.Path:
  """A copy of what the wheel is made of."""
  sources = tmp_path_factory.mktemp("sources")
  for name in ("pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(_ROOT / name, sources)
  ignored = shutil.ignore_patterns("__pycache__")
  for name in _FOLDERS:
    shutil.copytree(_ROOT / name, sources / name, symlinks=True, ignore=ignored)
  return sources


def _install(*arguments: str) -> None:
  """Installs without the packages that are needed."""
  subprocess.run(
    [
      *(sys.executable, "-m", "pip", "--disable-pip-version-check"),
      *("install", "--quiet", "--no-index", "--no-build-isolation"),
      *("--no-deps", *arguments),
    ],
    check=True,
  )


@pytest.fixture(scope="module")
def site(sources, tmp_path_factory) -> pathlib.Path:
  """A folder with the wheel."""
  folder = tmp_path_factory.mktemp("site")
  _install(f"--target={folder}", str(sources))
  return folder


@pytest.fixture
def python(site, tmp_path):
  """Runs Python where packages named like those of the clone come first."""
  for name in _MOVED:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('mine')")

  def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
      [sys.executable, *arguments],
      cwd=tmp_path,
      env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{site}"},
      capture_output=True,
      text=True,
    )

  return run


@pytest.fixture
def albert(site, python):
  """Runs `albert` with `python`."""

  def run(*arguments: str, options=()) -> subprocess.CompletedProcess:
    return python(*options, str(site / "bin" / "albert"), *arguments)

  return run


def test_a_wheel_has_the_bytes_of_the_clone_without_tests(site):
  names = {path.name for path in site.iterdir()}
  version = official_albert.__version__
  assert names == {
    *("bin", "official_albert", f"official_albert-{version}.dist-info")
  }
  installed = {
    str(path.relative_to(site / "official_albert")): path.read_bytes()
    for path in (site / "official_albert").rglob("*.py*")
    if path.suffix != ".pyc"
  }
  expected = {
    str(path.relative_to(_ROOT)).removeprefix("official_albert/"): (
      path.read_bytes()
    )
    for folder in _FOLDERS
    for path in (_ROOT / folder).rglob("*.py*")
    if path.suffix != ".pyc"
    and not path.name.endswith("_test.py")
    and path.name != "conftest.py"
    and not {"testing", "testdata"} & {*path.parts}
  }
  assert len(expected) > 150
  assert installed == expected


def test_a_users_packages_and_ours_share_a_process(python, tmp_path):
  for name in _MOVED:
    (tmp_path / name / "__init__.py").write_text("mine = True")
  done = python(
    "-c",
    "import sys, tools, official_albert\n"
    "for name in official_albert.__all__: getattr(official_albert, name)\n"
    "from official_albert.tasks.pretraining import model\n"
    "from official_albert import tfrecords as ours\n"
    "import tasks, tfrecords\n"
    "assert tasks.mine and tfrecords.mine and tools.mine\n"
    "assert ours.MANIFEST_FILE\n"
    "package = official_albert.__path__[0]\n"
    "assert not [x for x in sys.path if x.startswith(package)], sys.path",
  )
  assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
  "others, advice",
  [
    ("sys.modules['tf_keras'] = None", "but tf_keras is not installed"),
    (
      "import types; sys.modules['tf_keras'] = types.ModuleType('tf_keras');"
      "sys.modules['tf_keras'].__spec__ = object();"
      "keras = types.SimpleNamespace(__version__='3.10.0');"
      "sys.modules['tensorflow'] = types.SimpleNamespace(keras=keras)",
      "import official_albert before the first use of tf.keras",
    ),
  ],
)
def test_without_keras_2_the_import_says_what_to_do(tmp_path, others, advice):
  (tmp_path / "keras.py").write_text('"""Keras."""\n__version__ = "3.10.0"\n')
  code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {others};"
  result = subprocess.run(
    [sys.executable, "-c", f"{code} import official_albert"],
    capture_output=True,
    text=True,
    cwd=_ROOT,
    check=False,
  )
  assert result.returncode == 1
  assert advice in result.stderr.splitlines()[-1]


def test_an_editable_installation_is_the_clone(sources, tmp_path):
  installed = {x.name for x in metadata.distributions()}
  # Otherwise pip removes the clone from the environment that runs this test.
  keep = "--ignore-installed"
  _install(f"--prefix={tmp_path}", keep, "--editable", str(sources))
  assert {x.name for x in metadata.distributions()} == installed
  (folder,) = tmp_path.glob("lib/python*/site-packages")
  script = (
    # The environment of `make` names this clone, too.
    f"import sys; sys.path[:] = [x for x in sys.path if x != {str(_ROOT)!r}]\n"
    f"import site; site.addsitedir({str(folder)!r})\n"
    "from official_albert import tasks, tools\n"
    "print(tasks.__file__, tools.__file__)"
  )
  done = subprocess.run(
    [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
  )
  assert done.stdout.split() == [
    str(sources / "official_albert" / name / "__init__.py")
    for name in ("tasks", "tools")
  ], done.stderr


def test_the_version_is_the_same_everywhere():
  version = official_albert.__version__
  for name, text in (
    ("MODULE.bazel", f'version = "{version}"'),
    ("docs/data.md", f"dist/official_albert-{version}-py3"),
    ("docs/install.md", f"dist/official_albert-{version}-py3"),
  ):
    assert text in (_ROOT / name).read_text(encoding="utf-8"), name


def test_no_program_needs_what_only_tests_have():
  for folder in _FOLDERS:
    for path in (_ROOT / folder).rglob("*.py"):
      if "test" not in str(path.relative_to(_ROOT)):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"(official_albert|tools)[. ](import )?testing", text)
        assert not found or path.name == "conftest.py", path


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_pins_lie_in_the_ranges(site, python):
  versions = {"python_version": python, "python_full_version": f"{python}.0"}

  def applying(lines) -> list[Requirement]:
    parsed = [Requirement(x) for x in lines if x.strip() and x[0] not in " #"]
    return [
      x
      for x in parsed
      if not x.marker or x.marker.evaluate({**versions, "extra": ""})
    ]

  pins = {
    canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
    for pin in applying((_ROOT / "requirements.txt").read_text().splitlines())
  }
  (folder,) = site.glob("official_albert-*.dist-info")
  found = metadata.Distribution.at(folder)
  assert found.version == official_albert.__version__
  ranges = applying(found.requires)
  assert len(ranges) > 12
  for range_ in ranges:
    assert {x.operator for x in range_.specifier} <= {">=", "<"}, range_
    assert pins[canonicalize_name(range_.name)] in range_.specifier, range_


def test_albert_lists_the_programs(albert):
  shown = albert()
  assert (shown.returncode, shown.stderr) == (0, "")
  imported = albert(options=["-X", "importtime"]).stderr
  assert "official_albert.programs" in imported
  for slow in ("tensorflow", "absl", "importlib.metadata"):
    assert slow not in imported
  assert albert("--help").stdout == shown.stdout
  programs = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (_ROOT / "tools").glob("*.py")
    if "\n  command_line.run(main" in path.read_text(encoding="utf-8")
  }
  listed = re.findall(r"^  (\w+) +(.+)$", shown.stdout, re.MULTILINE)
  assert [name for name, _ in listed] == sorted(programs)
  for name, summary in listed:
    assert f'"""{summary}\n' in programs[name]


@pytest.mark.parametrize("name", ["../predict", "cli.command_line"])
def test_an_unknown_program_is_one_sentence(albert, name):
  done = albert(name)
  assert (done.returncode, done.stdout) == (2, "")
  assert done.stderr.startswith("albert: error: there is no program")
  assert "`albert` lists" in done.stderr and done.stderr.count("\n") == 1


def test_programs_run_from_a_wheel(albert, tmp_path):
  done = albert("inspect_model", "--preset=albert_base_v2")
  assert done.returncode == 0, done.stderr
  assert "11,683,584" in done.stdout
  shown = albert("predict", "--help").stdout
  assert "    albert predict --model_dir=RUN" in shown
  assert "python -m" not in shown and ".py" not in shown
  # It starts another program.
  toy_data.write_corpus(str(tmp_path / "corpus.txt"))
  done = albert("quickstart", "--input_files=corpus.txt", "--vocab_size=44000")
  assert done.returncode == 1
  assert "\n$ albert train_vocabulary --input_files=corpus.txt" in done.stdout
  assert re.search(r"^train_vocabulary: error: .*44000", done.stderr, re.M)
