"""Starts a program: parses flags, shows help, reports errors.

Libraries raise `ValueError`, `OSError` or a TensorFlow error with one sentence
that states the problem and its solution. The user sees that sentence and an
exit code, and the traceback with `--verbosity=1`.

absl's `--help` lists only flags that the main module defines. Programs share
many flags with others, so here `--help` prints the docstring of the program and
absl's help for the flags of all its modules.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import select
import signal
import sys
import textwrap
import traceback
import warnings
from typing import Any, Callable, Iterator, NoReturn, Sequence, Union

from absl import app, flags
from absl import logging as absl_logging

from official_albert import machine, remote
from official_albert.tools.cli import child_programs, flag_names

# 128 plus SIGINT, SIGPIPE and SIGTERM, as shells report them.
_INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 130, 141, 143
# A TensorFlow error quotes whole records and tensors.
_TENSORFLOW_CHARACTERS = 500
# Replace absl's flags.
_HELP = {"--help", "-help", "--helpshort", "-helpshort", "-?"}
# Begins the names of modules of programs.
_TOOLS = "official_albert.tools."
_HELP_END = (
  "--verbosity=1 shows an error's traceback, --flagfile=FILE reads flags from\n"
  "a local file, --helpfull lists the flags of absl and other libraries too.\n"
)


# The arguments without flags, once `parse` has run.
_arguments: list[str] = []


@contextlib.contextmanager
def _errors_as_sentences() -> Iterator[None]:
  """Ends the process with a sentence and an exit code instead of an error."""
  try:
    yield
  except KeyboardInterrupt:
    _fail(_INTERRUPTED, "interrupted.")
  except Exception as error:
    if isinstance(error, BrokenPipeError) and _nobody_reads():
      # Python flushes once more at exit, which would fail.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      sys.exit(_BROKEN_PIPE)
    if not is_user_error(error):
      raise
    if flags.FLAGS["verbosity"].value >= 1:
      traceback.print_exc()
    _fail(1, f"error: {describe(error)}")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
  """Ends the block at Ctrl-C and SIGTERM by an exception.

  So temporary files are removed. It comes when Python's code goes on, which is
  after what TensorFlow computes. `training.PreemptionWatch` replaces this where
  a run is saved first.
  """
  handlers = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: lambda *unused: sys.exit(_TERMINATED),
  }
  handled = [x for x in handlers if signal.getsignal(x) != signal.SIG_IGN]
  for number in handled:
    signal.signal(number, handlers[number])
  try:
    yield
  finally:
    for number in handled:  # An exception would only be printed now.
      signal.signal(number, signal.SIG_DFL)


@_errors_as_sentences()
def parse(
  then: Callable[[], Any] = lambda: None,
  program: str = "__main__",
  max_arguments: int = 0,
) -> None:
  """Parses the flags of the program that was started, or shows its help.

  TensorFlow takes seconds to load, so a program calls this before it imports
  TensorFlow, and `run` after that. A process that uses no TPU leaves it to
  others here, too.

  Args:
    then: sets further flags, as a recipe does. Its ValueError is the user's.
    program: the module of the program.
    max_arguments: how many arguments other than flags are allowed.
  """
  machine.set_environment()
  app.define_help_flags()
  flag_names.add_other_names(_name())
  try:
    if _HELP & {*sys.argv}:
      print(_help_text(program), end="")
      sys.exit()
    arguments = flags.FLAGS(sys.argv)
    _check_numbers()
    if len(arguments) > 1 + max_arguments:
      raise ValueError(
        f"unexpected argument {arguments[1 + max_arguments]!r}: settings are "
        "given as --flag=value."
      )
  except SystemExit:
    # After --helpfull, absl would exit with 1.
    sys.stdout.flush()
    sys.exit(0)
  except (flags.Error, ValueError) as error:
    message = flag_names.explain(_name(), error).rstrip("?. ")
    _fail(2, f"error: {message}; --help lists the flags.")
  then()
  _arguments[:] = arguments
  # Programs without the flag do not train.
  trains = "distribution" in flags.FLAGS
  if not trains or flags.FLAGS["distribution"].value != "tpu":
    machine.leave_tpu()


@_errors_as_sentences()
def run(main: Callable[[Sequence[str]], None], max_arguments: int = 0) -> None:
  """Parses the flags unless `parse` has, runs `main(argv)` and exits.

  Exit codes: 0 after success and `--help`; with one sentence on stderr, 1 after
  an error of the user, 2 for an invalid command line, 130 after Ctrl-C. Without
  a message, 143 after SIGTERM, with temporary files removed; 141 if the reader
  of the output, such as `head`, has exited. Any other exception is a bug, and
  its traceback is shown.

  Args:
    main: the program; its argument is the command line without flags.
    max_arguments: how many arguments other than flags are allowed.
  """
  if not _arguments:
    parse(program=main.__module__, max_arguments=max_arguments)
  arguments = [*_arguments]
  _arguments.clear()

  def guarded(argv: Sequence[str]) -> None:
    if flags.FLAGS["verbosity"].value < 1:
      warnings.formatwarning = _format_warning  # type: ignore[assignment]
      # Hides what TensorFlow and Keras log about assets and untraced functions.
      # Exports reset absl's level to the value set here.
      absl_logging.set_verbosity(absl_logging.ERROR)
      logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with _ended_by_signals():
      main(argv)
      sys.stdout.flush()

  app.run(guarded, flags_parser=lambda unused: arguments)


def _name() -> str:
  """Returns the name of the program that was started."""
  return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def _format_warning(message: Union[Warning, str], *unused: Any) -> str:
  """Returns the line of a warning, without its place in the code."""
  return f"{_name()}: warning: {' '.join(str(message).split())}\n"


def _fail(code: int, message: str) -> NoReturn:
  """Prints one line on stderr and exits."""
  # The values of flags may have several lines.
  print(f"{_name()}: {' '.join(message.split())}", file=sys.stderr)
  sys.exit(code)


def _check_numbers() -> None:
  """Raises ValueError if a flag is NaN or needs more than TensorFlow's 32 bits.

  NaN is within any bounds of absl's.
  """
  for name in flags.FLAGS:
    flag = flags.FLAGS[name]
    bits, value = 63 if "seed" in name else 31, flag.value
    if isinstance(value, int) and not -(2**bits) <= value < 2**bits:
      raise ValueError(
        f"--{flag.name}={value!r:.40} must be from {-(2**bits):,} to "
        f"{2**bits - 1:,}"
      )
    if isinstance(value, float) and math.isnan(value):
      raise ValueError(f"--{flag.name}=nan is not a number")


def _nobody_reads() -> bool:
  """Returns whether the reader of standard output has closed the pipe."""
  # Writing again might succeed, as the failed data may have been dropped.
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  return any(events & select.POLLERR for _, events in poll.poll(0))


def is_user_error(error: BaseException) -> bool:
  """Returns whether the message of an error is written for the user."""
  tensorflow = sys.modules.get("tensorflow")  # Does not load it.
  return isinstance(error, (ValueError, OSError)) or (
    tensorflow is not None and isinstance(error, tensorflow.errors.OpError)
  )


def describe(error: BaseException) -> str:
  """Returns the message of `error` on one line, without TensorFlow's graph."""
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f"{error.filename}: {error.strerror}."
  if isinstance(error, OSError) and error.errno == errno.ENOSPC:
    # Python does not report the name of a file that is open.
    return "the disk is full: make room and give the same command again."
  message = getattr(error, "message", None) or str(error)
  address, reason = remote.explain(message)
  if address:
    return f"{address}: {reason}."
  if re.match(r"(corrupted|truncated) record", reason):
    # TensorFlow does not name the file.
    reason += ": the records are damaged; tools.inspect_tfrecords names them."
  if hasattr(error, "op"):
    reason = textwrap.shorten(reason, _TENSORFLOW_CHARACTERS, placeholder="...")
  return reason or type(error).__name__


def _help_text(program: str) -> str:
  """Returns the help of a program: its own flags, then other modules'.

  `program` is the module that was started, "__main__" or another.
  """
  # absl calls the main module by its file.
  own = sys.argv[0] if program == "__main__" else program
  parts = [_about(program), "Flags:" + _flags_of(own)]
  # Modules come before those that import them, and are more general.
  for name in reversed(flags.FLAGS.flags_by_module_dict()):
    if name.startswith(_TOOLS) and name != own:
      parts.append(_about(name).split("\n")[0] + _flags_of(name))
  return "\n\n".join([*parts, _HELP_END])


def _about(module: str) -> str:
  text = (sys.modules[module].__doc__ or module).strip()
  return text.replace("python -m tools.", child_programs.PREFIX)


def _flags_of(module: str) -> str:
  """Returns absl's help for the flags of a module, without its name."""
  return flags.FLAGS.module_help(module).partition(":")[2]
