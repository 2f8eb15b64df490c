"""Adds to pyproject.toml where a wheel has the programs, and no tests.

`tasks`, `tfrecords` and `tools` go to `official_albert/_programs`, where they
hide no package of the user's that has such a name. official_albert/programs.py
finds them there.
"""

from __future__ import annotations

import setuptools
from setuptools.command import build_py

_PROGRAMS = {
  f"official_albert._programs.{name}": name
  for name in ("tasks", "tfrecords", "tools")
}


class _BuildWithoutTests(build_py.build_py):
  """Leaves out modules that only tests use."""

  def find_package_modules(self, package, package_dir):
    return [
      module
      for module in super().find_package_modules(package, package_dir)
      if not module[1].endswith("_test") and module[1] != "conftest"
    ]


def _packages(name: str, new_name: str) -> list[str]:
  found = setuptools.find_packages(
    include=[name, f"{name}.*"], exclude=["*.testing"]
  )
  return [new_name + package[len(name) :] for package in found]


setuptools.setup(
  packages=sum(
    (_packages(name, new_name) for new_name, name in _PROGRAMS.items()),
    _packages("official_albert", "official_albert"),
  ),
  package_dir=_PROGRAMS,
  package_data={
    "official_albert._programs.tools.benchmarks.peers": ["requirements/*.txt"]
  },
  cmdclass={"build_py": _BuildWithoutTests},
)
