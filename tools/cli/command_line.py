"""How every tool starts, shows its help, and tells the user what is wrong.

Libraries raise `ValueError`, `OSError` or a TensorFlow error with one sentence
that says what is wrong and what to do. A person at a terminal wants that
sentence and an exit code, not a traceback; `--verbosity=1` shows both.

absl's `--help` lists only the flags that the program's own file defines. Most
flags of a tool may be those of modules that it shares with others, so `--help`
prints what the tool is for and then the flags of all its modules.
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
  """True for errors whose message is written for the user."""
  if isinstance(error, (ValueError, OSError)):
    return True
  # Tools that never load TensorFlow must not pay for its import here.
  tensorflow = sys.modules.get("tensorflow")
  return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def describe(error: BaseException) -> str:
  """The message of `error` on one line, without TensorFlow's graph dump."""
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f"{error.filename}: {error.strerror}."
  if isinstance(error, OSError) and error.errno == errno.ENOSPC:
    # Of a file that was open already, Python does not say the name.
    return "the disk is full: make room and give the same command again."
  message = getattr(error, "message", None) or str(error)
  message = message.split("\n\t [[")[0].split("[Op:")[0]
  return " ".join(message.split()) or type(error).__name__


def _nobody_reads() -> bool:
  """Whether the standard output is a pipe that was closed at its other end."""
  # Not by writing again: what could not be written may be forgotten by now.
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  return any(events & select.POLLERR for _, events in poll.poll(0))


def _end_unread() -> NoReturn:
  # Python flushes once more at its end, and would complain.
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  sys.exit(_BROKEN_PIPE)


def _wrong_flag(error: flags.Error) -> str:
  """What is wrong, on one line and without a full stop."""
  if isinstance(error, flags.UnrecognizedFlagError):
    import difflib  # Here, as hardly any start needs it.

    near = difflib.get_close_matches(error.flagname, list(flags.FLAGS), n=1)
    hint = f", perhaps --{near[0]} is meant" if near else ""
    return f"there is no flag --{error.flagname}{hint}"
  # absl has a line for each flag that is missing, and names it twice.
  lines = [line.rstrip(". ") for line in str(error).splitlines()]
  return "; ".join(re.sub(r"^flags? \S+: (?=Flag --)", "", x) for x in lines)


def _parse(program: str, argv: Sequence[str]) -> list[str]:
  """The arguments that are not flags; ends the program as `run` says."""
  try:
    try:
      return flags.FLAGS(argv)
    except SystemExit:
      # Only a help ends here, and absl's would end with 1.
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

  Args:
    main: the program; gets the arguments that are not flags.
    max_arguments: how many of those it takes.

  Exits with 0 on success and after `--help`; with one sentence on stderr: 1
  after a user error, 2 for a command line that cannot be parsed (an unknown or
  missing flag, a value that a flag cannot have, a stray argument), 130 after
  Ctrl-C; and with 141 without a word if its reader, such as `head`, has had
  enough. Any other exception is a bug of ours and keeps its traceback.
  """
  program = os.path.splitext(os.path.basename(sys.argv[0]))[0]

  def guarded(argv: Sequence[str]) -> None:
    # TensorFlow and Keras talk about assets and untraced functions; what
    # they must not be silent about are errors. The export sets absl's level
    # back to what its own function was last told, which is why it is asked.
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
