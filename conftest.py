"""Runs tests with the settings of programs, many files in one process."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from absl import flags

from official_albert import files, machine

# The numbers of tests and documents are those of the programs.
machine.set_environment()

# Links to folders beside the package, whose tests would be run once more.
collect_ignore = [
  f"official_albert/{name}" for name in ("tasks", "tfrecords", "tools")
]

# Of the fuzzer (tools/testing/fuzz.py): the same few inputs in each run of the
# tests, new ones with --hypothesis-profile=fuzz.
_profile = hypothesis.settings(
  database=None,
  deadline=datetime.timedelta(seconds=20),
  suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile(
  "tests", _profile, max_examples=30, derandomize=True
)
hypothesis.settings.register_profile("fuzz", _profile, max_examples=200)
hypothesis.settings.load_profile("tests")


# The flags of programs by the modules that define them.
_defined: dict[str, list[flags.Flag]] = {}


def pytest_collectstart(collector) -> None:
  """Forgets the flags of programs before a test file imports others.

  Programs may give their flags the same names, which absl refuses within one
  process. So each test file starts without those of the files before it; a test
  that parses some restores them by `own_flags`.
  """
  del collector
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    if module.startswith("official_albert.tools."):
      _defined.setdefault(module, []).extend(defined)
      for flag in list(defined):
        delattr(flags.FLAGS, flag.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Begins with the slowest file: at the end, it would run alone."""
  items.sort(key=lambda item: item.path.name != "learning_test.py")


@pytest.fixture
def own_flags(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
  """Restores the flags of modules, with values that are not given."""

  def restore(*modules) -> None:
    kept = flags.FLAGS.flags_by_module_dict()  # Of the last test file.
    for name in (module.__name__ for module in modules):
      for flag in (*_defined.get(name, ()), *kept.get(name, ())):
        monkeypatch.setitem(flags.FLAGS._flags(), flag.name, flag)

  return restore


@pytest.fixture
def peer_python() -> Callable[[str], str]:
  """Returns the interpreter of an environment with another library.

  The test is skipped without it. `tools.benchmark peers` makes some, as
  `official_albert_huggingface`; PEERS_DIR names their folder.
  """

  def find(name: str) -> str:
    folder = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
    path = os.path.expanduser(f"{folder}/official_albert_{name}/bin/python")
    if not files.exists(path):
      pytest.skip(f"there is no {path}")
    return path

  return find


@pytest.fixture(scope="module", autouse=True)
def free_graphs() -> Iterator[None]:
  """Frees the graphs that a test file has traced.

  Whenever TensorFlow traces a `tf.custom_gradient`, it registers the gradient,
  which refers to the graph, for the rest of the process.
  """
  yield
  if ops := sys.modules.get("tensorflow.python.framework.ops"):
    gradients = ops.gradient_registry._registry
    for name in list(gradients):
      if name.startswith("CustomGradient-"):
        del gradients[name]
