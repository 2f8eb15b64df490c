"""The modules of this repository and what they import, read with `ast`.

Nothing is imported, so that reading takes a second and works without
TensorFlow. `tools.layering` judges the imports; `tools.update_build` writes
BUILD from them.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from typing import Iterator, Union

ROOMS = ("official_albert", "tfrecords", "tasks", "tools")


@dataclasses.dataclass(frozen=True)
class Import:
  """One imported name.

  Attributes:
    name: as written, "absl.flags" for `from absl import flags`.
    path: the file of this repository that it names; None for other people's.
    at_start: whether it happens when the module itself is imported; not so
      inside functions and `if TYPE_CHECKING`.
    relative: whether it is written with dots in front.
  """

  name: str
  path: Union[str, None]
  at_start: bool
  relative: bool = False


@dataclasses.dataclass(frozen=True)
class Module:
  """A Python file; `path` is relative to the root, with slashes."""

  path: str
  text: str
  tree: ast.Module
  imports: tuple[Import, ...]

  @property
  def is_test(self) -> bool:
    return self.path.endswith("_test.py") or self.path.endswith("conftest.py")

  @property
  def is_package(self) -> bool:
    return self.path.endswith("/__init__.py")

  @property
  def imported_paths(self) -> list[str]:
    """The files of this repository that it imports, sorted."""
    paths = {imported.path for imported in self.imports}
    return sorted(paths - {None, self.path})


def _import_nodes(node: ast.AST, at_start: bool) -> Iterator[tuple]:
  """Yields (import statement, whether it runs at start) below a node."""
  for child in ast.iter_child_nodes(node):
    if isinstance(child, (ast.Import, ast.ImportFrom)):
      yield child, at_start
    else:
      later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
        isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
      )
      yield from _import_nodes(child, at_start and not later)


def _find_imports(tree: ast.Module, paths: frozenset[str]) -> tuple:
  """The imports of a module; `paths` are the files of the repository."""

  def locate(name: str) -> Union[str, None]:
    stem = name.replace(".", "/")
    candidates = (f"{stem}.py", f"{stem}/__init__.py")
    return next((path for path in candidates if path in paths), None)

  found = []
  for node, at_start in _import_nodes(tree, True):
    if isinstance(node, ast.Import):
      for alias in node.names:
        found.append(Import(alias.name, locate(alias.name), at_start))
    else:
      base = node.module or ""
      for alias in node.names:
        name = f"{base}.{alias.name}"
        # `from package import name`: a module of it, or what it defines.
        path = locate(name) or locate(base)
        found.append(Import(name, path, at_start, node.level > 0))
  return tuple(found)


def read_tree(root: pathlib.Path) -> dict[str, Module]:
  """All modules below the rooms, by path, sorted."""
  files = {
    path.relative_to(root).as_posix(): path
    for room in ROOMS
    for path in (root / room).rglob("*.py")
    if not {"testdata", "__pycache__"} & set(path.parts)
  }
  modules = {}
  for name in sorted(files):
    text = files[name].read_text(encoding="utf-8")
    tree = ast.parse(text, name)
    imports = _find_imports(tree, frozenset(files))
    modules[name] = Module(name, text, tree, imports)
  return modules
