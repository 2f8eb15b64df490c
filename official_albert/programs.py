"""Starts programs: `albert NAME`, or `python -m official_albert.programs NAME`.

NAME stands for the module `official_albert.tools.NAME`, which `python -m
tools.NAME` runs in a clone.
"""

from __future__ import annotations

import ast
import pathlib
import runpy
import signal
import sys

from official_albert import __version__

_TOOLS = pathlib.Path(__file__).absolute().parent / "tools"


def main() -> None:
  """Runs the program that the first argument names, or lists all."""
  if len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h"):
    # `albert | head` ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(_listing())
    return
  if sys.argv[1] == "--version":
    print(f"albert {__version__}")
    return
  name = sys.argv.pop(1)
  path = _TOOLS / f"{name.replace('.', '/')}.py"  # testing.fuzz is one, too.
  if "/" in name or not _is_program(path):
    message = f"there is no program {name!r}: `albert` lists all."
    print(f"albert: error: {message}", file=sys.stderr)
    sys.exit(2)
  sys.argv[0] = "-m"  # As for `python -m`; see tools/__init__.py.
  module = f"official_albert.tools.{name}"
  runpy.run_module(module, run_name="__main__", alter_sys=True)


def _is_program(path: pathlib.Path) -> bool:
  """Returns whether a file exists, and does something when it is started."""
  start = '\nif __name__ == "__main__":'
  return path.is_file() and start in path.read_text(encoding="utf-8")


def _names() -> list[str]:
  """Returns the names of the programs, in alphabetical order."""
  return sorted(path.stem for path in _TOOLS.glob("*.py") if _is_program(path))


def _listing() -> str:
  """Returns what the programs do, from their docstrings: imports take long."""
  lines = [
    f"The programs of official_albert {__version__}:",
    "`albert NAME --flag=value` starts one, `albert NAME --help` lists its",
    "flags. Documents call them tools.NAME.",
    "",
  ]
  for name in _names():
    text = (_TOOLS / f"{name}.py").read_text(encoding="utf-8")
    summary = ast.get_docstring(ast.parse(text)).splitlines()[0]
    lines.append(f"  {name:<24} {summary}")
  return "\n".join(lines)


if __name__ == "__main__":
  main()
