"""Starts a program: parses flags, shows help, reports errors.

Libraries raise `ValueError`, `OSError` or a TensorFlow error with one sentence
that says what is wrong and what to do. The user sees that sentence and an exit
code, and the traceback with `--verbosity=1`.

absl's `--help` lists only flags that the main module defines. Programs share
many flags with others, so here `--help` prints the docstring of the program and
the flags of all its modules.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import select
import sys
import traceback
from typing import Callable, NoReturn, Sequence

from absl import app, flags
from absl import logging as absl_logging

# 128 + SIGINT and 128 + SIGPIPE, as shells report them.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


def _is_user_error(error: BaseException) -> bool:
  """Returns whether the message of an error is written for the user."""
  if isinstance(error, (ValueError, OSError)):
    return True
  # Does not load TensorFlow.
  tensorflow = sys.modules.get("tensorflow")
  return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def describe(error: BaseException) -> str:
  """Returns the message of `error` on one line, without a graph dump."""
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f"{error.filename}: {error.strerror}."
  if isinstance(error, OSError) and error.errno == errno.ENOSPC:
    # Python does not report the name of a file that is open.
    return "the disk is full: make room and give the same command again."
  message = getattr(error, "message", None) or str(error)
  message = message.split("\n\t [[")[0].split("[Op:")[0]
  return " ".join(message.split()) or type(error).__name__


def _nobody_reads() -> bool:
  """Returns whether the reader of standard output has closed the pipe."""
  # Writing again might succeed, as the failed data may have been dropped.
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  return any(events & select.POLLERR for _, events in poll.poll(0))


def _end_unread() -> NoReturn:
  # Python flushes once more at exit, which would fail.
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  sys.exit(_BROKEN_PIPE)


def _wrong_flag(error: flags.Error) -> str:
  """Returns the message of an error in the flags, without a full stop."""
  if isinstance(error, flags.UnrecognizedFlagError):
    import difflib

    near = difflib.get_close_matches(error.flagname, list(flags.FLAGS), n=1)
    hint = f", perhaps --{near[0]} is meant" if near else ""
    return f"there is no flag --{error.flagname}{hint}"
  # absl writes a line for each missing flag, and names it twice.
  lines = [line.rstrip(". ") for line in str(error).splitlines()]
  return "; ".join(re.sub(r"^flags? \S+: (?=Flag --)", "", x) for x in lines)


def _parse(program: str, argv: Sequence[str]) -> list[str]:
  """The arguments that are not flags; ends the program as `run` says."""
  try:
    try:
      return flags.FLAGS(argv)
    except SystemExit:
      # Only --help exits here; absl would exit with 1.
      sys.stdout.flush()
      sys.exit(0)
  except flags.Error as error:
    print(
      f"{program}: error: {_wrong_flag(error)}; --help lists the flags.",
      file=sys.stderr,
    )
    sys.exit(2)
  except BrokenPipeError:
    _end_unread()


_HELP_END = (
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
      print(help_text(self._program), end="")
      sys.exit(0)


def _define_help(program: str) -> None:
  """Replaces absl's `--help`.

  Args:
    program: the name of the module that was started, "__main__" or another.
  """
  for name, short_name in (("help", "?"), ("helpshort", None)):
    flag = _HelpFlag(name, short_name, program)
    flags.DEFINE_flag(flag, module_name="absl.app")


def help_text(program: str) -> str:
  """Returns the help of a program: its own flags, then other modules'.

  Args:
    program: see `_define_help`.
  """
  # absl calls the main module by its file.
  own = sys.argv[0] if program == "__main__" else program
  # In the order of their import, but for the program's own.
  others = [name for name in flags.FLAGS.flags_by_module_dict() if name != own]
  required, optional = [], []
  for entry in _entries(own):
    (required if _is_required(entry) else optional).append(entry)
  sections = {"Required flags:": required, "Flags:": optional}
  for name in others:
    if name.startswith("tools."):
      sections[_about(name).split("\n")[0]] = _entries(name)
  return "\n\n".join(
    [
      _about(program),
      *(
        heading + "\n\n" + "\n".join(entries)
        for heading, entries in sections.items()
        if entries
      ),
      _HELP_END,
    ]
  )


def _about(module: str) -> str:
  return (sys.modules[module].__doc__ or module).strip()


def _entries(module: str) -> list[str]:
  """Returns the help of each flag of a module, in alphabetical order."""
  _, _, text = flags.FLAGS.module_help(module).strip().partition("\n")
  return [entry for entry in re.split(r"\n(?=  -)", text) if entry.strip()]


def _is_required(entry: str) -> bool:
  """Returns whether a program refuses to start without a flag."""
  name = re.search(r"--(?:\[no\])?(\w+)", entry)[1]
  message = f"Flag --{name} must have a value other than None."
  return any(v.message == message for v in flags.FLAGS[name].validators)


def run(main: Callable[[Sequence[str]], None], max_arguments: int = 0) -> None:
  """Parses the flags, runs `main(argv)` and exits.

  Exit codes: 0 after success and `--help`; with one sentence on stderr, 1 after
  an error of the user, 2 for an invalid command line, 130 after Ctrl-C; 141
  without a message if the reader of the output, such as `head`, has exited. Any
  other exception is a bug, and its traceback is shown.

  Args:
    main: the program; its argument is the command line without flags.
    max_arguments: how many arguments other than flags are allowed.
  """
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]

  def guarded(argv: Sequence[str]) -> None:
    # TensorFlow and Keras log assets and untraced functions, but errors have to
    # be shown. Exports reset absl's level to the value set here.
    shows_traceback = flags.FLAGS["verbosity"].value >= 1
    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if len(argv) > 1 + max_arguments:
      print(
        f"{program}: error: unexpected argument {argv[-1]!r}: settings are "
        "given as --flag=value; --help lists them.",
        file=sys.stderr,
      )
      sys.exit(2)
    try:
      main(argv)
      sys.stdout.flush()
    except KeyboardInterrupt:
      print(f"{program}: interrupted.", file=sys.stderr)
      sys.exit(_INTERRUPTED)
    except Exception as error:
      if isinstance(error, BrokenPipeError) and _nobody_reads():
        _end_unread()
      if not _is_user_error(error):
        raise
      if shows_traceback:
        traceback.print_exc()
      print(f"{program}: error: {describe(error)}", file=sys.stderr)
      sys.exit(1)

  def parse(argv: Sequence[str]) -> list[str]:
    _define_help(main.__module__)
    return _parse(program, argv)

  app.run(guarded, flags_parser=parse)
