"""What `--help` prints: about the tool, then all flags that it can be given.

absl lists only those that the program's own file defines; most of a tool's
flags may be those of modules that it shares with others.
"""

from __future__ import annotations

import sys

from absl import flags

_MORE = (
  "--verbosity=1 shows an error's traceback, --flagfile=FILE reads flags from\n"
  "a file, --helpfull lists the flags of absl and other libraries too.\n"
)


class _HelpFlag(flags.BooleanFlag):
  def __init__(self, name: str, short_name: str, program: str):
    super().__init__(
      name, False, "show this help", short_name, allow_override=True
    )
    self._program = program

  def parse(self, argument):
    if self._parse(argument):
      print(text(self._program), end="")
      sys.exit(0)


def define(program: str) -> None:
  """Puts a `--help` in the place of absl's.

  Args:
    program: the name of the module that was started, "__main__" or another.
  """
  for name, short_name in (("help", "?"), ("helpshort", None)):
    flag = _HelpFlag(name, short_name, program)
    flags.DEFINE_flag(flag, module_name="absl.app")


def text(program: str) -> str:
  """The help of a program: its own flags, then those of other modules.

  Args:
    program: see `define`.
  """
  # absl calls the main module by its file.
  own = sys.argv[0] if program == "__main__" else program
  # In the order of their import, but for the program's own.
  others = [name for name in flags.FLAGS.flags_by_module_dict() if name != own]
  parts = [_about(program), _listed(own, "Flags:")]
  for name in others:
    if name.startswith("tools."):
      parts.append(_listed(name, _about(name).split("\n")[0]))
  return "\n\n".join([*filter(None, parts), _MORE])


def _about(module: str) -> str:
  return (sys.modules[module].__doc__ or module).strip()


def _listed(module: str, heading: str) -> str:
  """A module's flags under another heading than its name; "" if none."""
  _, _, lines = flags.FLAGS.module_help(module).strip().partition("\n")
  return lines and f"{heading}\n\n{lines}"
