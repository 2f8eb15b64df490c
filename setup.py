"""Adds to pyproject.toml what a wheel has: the programs, and no tests.

In a wheel, `tasks`, `tfrecords` and `tools` are `official_albert.tasks` and so
on, because a user may have packages of these names. The sources have the short
names, which are changed in the copies for the wheel. An editable installation
is the clone, with the clone's names.
"""

from __future__ import annotations

import pathlib
import re

import setuptools
from setuptools.command import build_py, editable_wheel

_MOVED = ("tasks", "tfrecords", "tools")
_ANY = "|".join(_MOVED)
_PROGRAM = "|".join(path.stem for path in pathlib.Path("tools").glob("*.py"))
# The sources have one style of imports, and ruff checks it. Examples in
# docstrings have it too, after `>>> `.
_CHANGES = (
  (rf"^((?:>>>| )*)import ({_ANY})$", r"\1from official_albert import \2"),
  (rf"^((?:>>>| )*from )((?:{_ANY})[\w.]* import )", r"\1official_albert.\2"),
  # A string that is the name of a module and nothing else.
  (rf'"((?:{_ANY})\.[\w.{{}}]*[\w}}])"', r'"official_albert.\1"'),
  # A program in a text.
  (r"python -m tools\.", "albert "),
  (rf"(?<![\w.])tools\.(?=(?:{_PROGRAM})\b|{{)", "albert "),
)


class _BuildWheel(build_py.build_py):
  """Leaves out modules that only tests use; changes names in the others."""

  def find_package_modules(self, package, package_dir):
    return [
      module
      for module in super().find_package_modules(package, package_dir)
      if not module[1].endswith("_test") and module[1] != "conftest"
    ]

  def build_module(self, module, module_file, package):
    built = super().build_module(module, module_file, package)
    path = pathlib.Path(built[0])
    text = path.read_text(encoding="utf-8")
    for old, new in _CHANGES:
      text = re.sub(old, new, text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")
    return built


class _BuildEditable(editable_wheel.editable_wheel):
  """Installs the packages of the clone under their names."""

  def finalize_options(self):
    self.distribution.packages = _packages("official_albert", *_MOVED)
    self.distribution.package_dir = {}
    super().finalize_options()


def _packages(*names: str) -> list[str]:
  return setuptools.find_packages(
    include=[*names, *(f"{name}.*" for name in names)], exclude=["*.testing"]
  )


setuptools.setup(
  packages=_packages("official_albert")
  + [f"official_albert.{name}" for name in _packages(*_MOVED)],
  package_data={"": ["*.pyi", "py.typed"]},
  package_dir={f"official_albert.{name}": name for name in _MOVED},
  cmdclass={"build_py": _BuildWheel, "editable_wheel": _BuildEditable},
)
