"""Writes BUILD: one target a module, its deps from what it really imports.

    python -m tools.update_build           # after adding or moving a module
    python -m tools.update_build --check   # exit code 1 if BUILD is stale

`tools/layering_test.py` makes the same check, so that BUILD is never stale.
"""

from __future__ import annotations

import ast
import os
import pathlib
from typing import Mapping, Sequence

from absl import flags

from tools import command_line, import_graph

_CHECK = flags.DEFINE_bool(
  "check", False, "Only say whether BUILD is up to date; write nothing."
)

_HEADER = '''\
"""Targets of official_albert, one for each module.

Written by `python -m tools.update_build` from the imports in the sources:
change those, not this file. `//:model` is official_albert/model.py,
`//:pretraining_model` is tasks/pretraining/model.py. TensorFlow and the other
packages of requirements.txt come from the Python that is first on the PATH.
"""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

filegroup(
    name = "testdata",
    srcs = glob(
        [
            "official_albert/**/testdata/**",
            "tasks/**/testdata/**",
            "tfrecords/**/testdata/**",
            "tools/**/testdata/**",
        ],
        allow_empty = True,
    ),
)

filegroup(
    name = "sources",
    srcs = [
        "BUILD",
        "requirements.txt",
        "requirements-beam.txt",
        "requirements-dev.txt",
        "requirements-tpu.txt",
        "requirements-tpu-compile.txt",
    ] + glob(
        [
            "*.md",
            "docs/*",
            "official_albert/**/*.py",
            "tasks/**/*.py",
            "tfrecords/**/*.py",
            "tools/**/*.py",
            "tools/peers/*.txt",
        ],
        allow_empty = True,
    ),
)
'''

# What a section of BUILD tells first about the room it lists.
_ROOM_TITLES = {
  "official_albert": "the model and what trains, loads and reads it",
  "tfrecords": "the record files: schema, writer, reader",
  "tasks": "objectives",
  "tools": "programs, `bazel run //:NAME -- --help`",
}
# What a test reads besides the testdata folders.
_DATA = {
  "tools/documents_test.py": [":sources"],
  "tools/layering_test.py": [":sources"],
  "tools/requirements_test.py": [":sources"],
  "tools/make_venv_test.py": ["tools/make_venv.sh"],
  "tools/peer_venvs_test.py": [":sources"],
}


def target_name(path: str) -> str:
  """The name of a file's target.

  A module of official_albert or tools goes by its own name; the rooms where
  names repeat put the folder in front: `pretraining_model`,
  `tfrecords_reader`, and so does every conftest. A package goes by its folder.
  """
  parts = pathlib.PurePosixPath(path).with_suffix("").parts
  if parts[-1] == "__init__":
    return parts[-2]
  if parts[0] in ("tasks", "tfrecords") or parts[-1] == "conftest":
    return "_".join(parts[-2:])
  return parts[-1]


def _has_target(module: import_graph.Module) -> bool:
  """False for a package that holds no more than a docstring.

  Bazel makes an empty __init__.py where a target brings none.
  """
  text_only = len(module.tree.body) <= bool(ast.get_docstring(module.tree))
  return not (module.is_package and text_only)


def _is_program(module: import_graph.Module) -> bool:
  """True for what becomes a py_binary."""
  return (
    module.path.startswith("tools/")
    and not module.is_test
    and '\nif __name__ == "__main__":' in module.text
  )


def _programs_run(
  module: import_graph.Module, modules: Mapping[str, import_graph.Module]
) -> set[str]:
  """The programs that a file of tools may run with `python -m`.

  Where "-m" is among its strings, those are the strings that could name a
  program: "tools.gather_corpus", or "gather_corpus" for f"tools.{name}".
  """
  strings = {
    node.value
    for node in ast.walk(module.tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
  }
  if "-m" not in strings or not module.path.startswith("tools/"):
    return set()
  paths = {f"tools/{string.split('tools.')[-1]}.py" for string in strings}
  return {path for path in paths & set(modules) if _is_program(modules[path])}


def dependencies(
  module: import_graph.Module, modules: Mapping[str, import_graph.Module]
) -> list[str]:
  """The paths that the target of a module depends on, sorted.

  These are its imports; its package, where that imports nothing of the
  repository itself (else it would depend on what depends on it); for a test,
  the module beside it and conftest.py of its folder and those above; and the
  programs that it runs.
  """
  paths = set(module.imported_paths)
  folders = [str(f) for f in pathlib.PurePosixPath(module.path).parents][:-1]
  if not module.is_package:
    package = modules.get(f"{folders[0]}/__init__.py")
    if package and not package.imported_paths:
      paths.add(package.path)
  if module.is_test:
    tested = module.path.replace("_test.py", ".py")
    paths |= {tested, *(f"{f}/conftest.py" for f in folders)} & set(modules)
  paths |= _programs_run(module, modules)
  paths.discard(module.path)
  return sorted(path for path in paths if _has_target(modules[path]))


def _data(module: import_graph.Module) -> list[str]:
  testdata = [":testdata"] if "testdata" in module.text else []
  return testdata + _DATA.get(module.path, [])


def _render_list(name: str, items: Sequence[str]) -> list[str]:
  """An attribute as buildifier writes it: one item stays on the line."""
  if not items:
    return []
  if len(items) == 1:
    return [f'    {name} = ["{items[0]}"],']
  return [f"    {name} = [", *(f'        "{i}",' for i in items), "    ],"]


def render_target(
  module: import_graph.Module, modules: Mapping[str, import_graph.Module]
) -> str:
  """The rule of one module."""
  rule = "py_library"
  if module.path.endswith("_test.py"):
    rule = "py_test"
  elif _is_program(module):
    rule = "py_binary"
  lines = [f"{rule}(", f'    name = "{target_name(module.path)}",']
  if rule == "py_library" and module.is_test:
    lines += ["    testonly = True,"]
  lines += _render_list("srcs", [module.path])
  if rule == "py_test":
    lines += _render_list("data", _data(module))
  if rule != "py_library":
    lines += [f'    main = "{module.path}",']
  deps = [f":{target_name(path)}" for path in dependencies(module, modules)]
  lines += _render_list("deps", sorted(deps))
  return "\n".join([*lines, ")"]) + "\n"


def render(modules: Mapping[str, import_graph.Module]) -> str:
  """The text of BUILD.

  Raises:
    ValueError: two modules would get the same target name.
  """
  sections = [_HEADER]
  owners: dict[str, str] = {"testdata": "BUILD", "sources": "BUILD"}
  for room in import_graph.ROOMS:
    inside = [
      module
      for module in modules.values()
      if module.path.split("/")[0] == room and _has_target(module)
    ]
    if inside:
      sections.append(f"# {room}/: {_ROOM_TITLES[room]}\n")
    for module in inside:
      name = target_name(module.path)
      if name in owners:
        raise ValueError(
          f"{module.path} and {owners[name]} would both be the BUILD target "
          f"{name!r}: rename one of them."
        )
      owners[name] = module.path
      sections.append(render_target(module, modules))
  return "\n".join(sections)


def main(argv: Sequence[str]) -> None:
  del argv
  root = pathlib.Path(__file__).absolute().parents[1]
  build = root / "BUILD"
  text = render(import_graph.read_tree(root))
  if build.exists() and build.read_text(encoding="utf-8") == text:
    print("BUILD is up to date.")
  elif _CHECK.value:
    raise ValueError("BUILD is stale: run `python -m tools.update_build`.")
  else:
    temporary = root / f".BUILD.tmp{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, build)
    print("BUILD written.")


if __name__ == "__main__":
  command_line.run(main)
