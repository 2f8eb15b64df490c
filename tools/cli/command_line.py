"""Starts a program: parses flags, shows help, reports errors.

Libraries raise `ValueError`, `OSError` or a TensorFlow error with one sentence
that states the problem and its solution. The user sees that sentence and an
exit code, and the traceback with `--verbosity=1`.

absl's `--help` lists only flags that the main module defines. Programs share
many flags with others, so here `--help` prints the docstring of the program and
the flags of all its modules, below a heading for each. A module may divide its
flags with a table: `HEADINGS = {"Checkpoints:": "name_of_flag another", ...}`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import platform
import re
import select
import shutil
import signal
import sys
import textwrap
import threading
import traceback
import types
import warnings
from typing import (
  Any,
  Callable,
  Iterator,
  Mapping,
  NoReturn,
  Optional,
  Sequence,
  Union,
)

from absl import app, flags
from absl import logging as absl_logging

from official_albert import files, machine, remote
from official_albert.tools.cli import child_programs, flag_names

# 128 plus SIGINT, SIGPIPE and SIGTERM, as shells report them.
_INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 130, 141, 143
# What a call of TensorFlow may take after SIGTERM. Schedulers wait for about
# 30 s before they send SIGKILL.
_GRACE_SECONDS = 5.0
# It quotes whole records and tensors.
_TENSORFLOW_CHARACTERS = 300
# The longest list of a flag's choices that an error shows.
_CHOICES_CHARACTERS = 150
# A path has at most 4,096 bytes, so none is cut.
_LONG_WORDS = (
  re.compile(r"(?<!\S)([^\s/]{40})[^\s/]{100,}([^\s/]{30})(?!\S)"),
  re.compile(r"(?<!\S)(\S{50})\S{4000,}(\S{50})(?!\S)"),
)
# Replace absl's flags.
_HELP = {"--help", "-help", "--helpshort", "-helpshort", "-?"}
# Begins the names of modules of programs.
_TOOLS = "official_albert.tools."
_NO_VALUE = " must have a value other than None"
_HELP_END = (
  "--verbosity=1 shows an error's traceback, --flagfile=FILE reads flags from\n"
  "a local file, --helpfull lists the flags of absl and other libraries too.\n"
)


# The arguments without flags, once `parse` has run.
_arguments: list[str] = []


@contextlib.contextmanager
def _while_read() -> Iterator[None]:
  """Ends the process if nobody reads its output any more, as with `head`."""
  try:
    yield
  except BrokenPipeError as error:
    if not _nobody_reads(error):
      raise
    # Python flushes once more at exit, which would fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_BROKEN_PIPE)


@_while_read()
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
  set_environment()
  name = _name()
  app.define_help_flags()
  flag_names.add_other_names(name)
  argv = sys.argv
  try:
    if _HELP & {*argv}:
      print(_help_text(program), end="")
      sys.exit(0)
    arguments = flags.FLAGS(argv)
    _check_numbers()
  except SystemExit:
    # After --helpfull, absl would exit with 1.
    sys.stdout.flush()
    sys.exit(0)
  except flags.UnrecognizedFlagError as error:
    unknown = flag_names.explain_unknown(name, argv, error.flagname)
    _fail(2, f"error: {unknown}; --help lists the flags.")
  except (flags.Error, ValueError) as error:  # ValueError: --noflag=value.
    _fail(2, f"error: {_describe_flag(error)}; --help lists the flags.")
  except OSError as error:  # The machine cannot do what a flag asks for.
    _fail(1, f"error: {error}")
  if len(arguments) > 1 + max_arguments:
    _fail(
      2,
      f"error: unexpected argument {arguments[1 + max_arguments]!r}: settings "
      "are given as --flag=value; --help lists them.",
    )
  try:
    then()
  except (flags.Error, ValueError, OSError) as error:
    _fail(1, f"error: {describe(error)}")
  _arguments[:] = arguments
  # Programs without the flag do not train.
  trains = "distribution" in flags.FLAGS
  if not trains or flags.FLAGS["distribution"].value != "tpu":
    machine.leave_tpu()


@_while_read()
def run(main: Callable[[Sequence[str]], None], max_arguments: int = 0) -> None:
  """Parses the flags unless `parse` has, runs `main(argv)` and exits.

  Exit codes: 0 after success and `--help`; with one sentence on stderr, 1 after
  an error of the user, 2 for an invalid command line, 130 after Ctrl-C. Without
  a message, 143 after SIGTERM, with temporary files removed unless TensorFlow
  computes for seconds; 141 if the reader of the output, such as `head`, has
  exited. Any other exception is a bug, and its traceback is shown.

  Args:
    main: the program; its argument is the command line without flags.
    max_arguments: how many arguments other than flags are allowed.
  """
  if not _arguments:
    parse(program=main.__module__, max_arguments=max_arguments)
  arguments = [*_arguments]
  _arguments.clear()

  def guarded(argv: Sequence[str]) -> None:
    # Hides what TensorFlow and Keras log about assets and untraced functions.
    # Exports reset absl's level to the value set here.
    shows_traceback = flags.FLAGS["verbosity"].value >= 1
    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if not shows_traceback:
      warnings.formatwarning = _format_warning  # type: ignore[assignment]
    interruptions = []
    is_ending = threading.Event()

    def interrupt(*unused: Any) -> None:
      interruptions.append(True)
      raise KeyboardInterrupt

    def terminate(number: int, frame: Optional[types.FrameType]) -> None:
      if _is_importing(frame):  # Modules suppress exceptions; try again later.
        _send_soon(number)
      else:
        is_ending.set()
        sys.exit(_TERMINATED)

    handlers = {signal.SIGTERM: terminate, signal.SIGINT: interrupt}
    for number, handler in handlers.items():
      if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)
    if "save_checkpoints_steps" in flags.FLAGS:  # The program trains.
      _end_in_time(is_ending)
    sys.unraisablehook = _end_in_callbacks
    try:
      main(argv)
      sys.stdout.flush()
    except KeyboardInterrupt:
      _fail(_INTERRUPTED, "interrupted.")
    except Exception as error:
      if interruptions:  # A module that was imported has changed the error.
        _fail(_INTERRUPTED, "interrupted.")
      if not is_user_error(error) or _nobody_reads(error):
        raise
      if shows_traceback:
        traceback.print_exc()
      _fail(1, f"error: {describe(error)}")
    finally:  # While Python ends, an exception would only be printed.
      sys.unraisablehook = sys.__unraisablehook__
      for number in handlers:
        if signal.getsignal(number) != signal.SIG_IGN:
          signal.signal(number, signal.SIG_DFL)

  app.run(guarded, flags_parser=lambda unused: arguments)


def _name() -> str:
  """Returns the name of the program that was started."""
  return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def _format_warning(message: Union[Warning, str], *unused: Any) -> str:
  """Returns the line of a warning, without its place in the code."""
  return f"{_name()}: warning: {' '.join(str(message).split())}\n"


def _fail(code: int, message: str) -> NoReturn:
  """Prints one line on stderr and exits."""
  # The values of flags may be long, and may have several lines.
  message = " ".join(message.split())
  for long_word in _LONG_WORDS:
    message = long_word.sub(r"\1...\2", message)
  print(f"{_name()}: {message}", file=sys.stderr)
  sys.exit(code)


def set_environment() -> None:
  """Sets what TensorFlow reads at its start, unless the user has set it.

  `parse` calls it, so that no import changes the process of a user. Child
  processes inherit the variables.
  """
  if "tensorflow" in sys.modules:
    return
  # Hides start-up messages. At level 2, the pip wheel still reports that three
  # CUDA libraries are registered twice. Failures that matter raise exceptions.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  # Flushing a file in a bucket uploads what is new, not the whole file again.
  os.environ.setdefault("GCS_APPEND_MODE", "compose")
  # Each open reader allocates a block and fills it with zeros: 64 MiB and 36 ms
  # of CPU time with TensorFlow's default. Training opens a few dozen shards.
  os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "8")
  # TensorFlow's own default on x86 CPUs is to use oneDNN with AVX-512 VNNI or
  # later only. With AVX2, it makes a step of albert_base_v2 1.2 times as fast.
  if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def read_settings(path: str) -> dict[str, Any]:
  """Returns the settings of a folder of results; {} if there is no such file.

  Raises:
    ValueError: the file was not written by this program.
  """
  try:
    return files.read_json(
      path, dict[str, Any], "give another --output_dir, or remove the folder"
    )
  except FileNotFoundError:
    return {}


def check_settings(path: str, settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns `settings` and those of earlier results, in the file at `path`.

  Raises:
    ValueError: a setting has changed.
  """
  before = read_settings(path)
  for name, value in settings.items():
    if before.get(name, value) != value:
      raise ValueError(
        f"{os.path.dirname(path)} was made with {name} {before[name]!r}, not "
        f"{value!r}: set another --output_dir."
      )
  return {**settings, **before}


def _end_in_time(is_ending: threading.Event) -> None:
  """Starts a thread that ends the process if `is_ending` stays unset.

  After SIGTERM, Python calls its handler when TensorFlow returns, which may be
  after a restore of minutes. `training.PreemptionWatch` replaces this thread
  where a run is saved before it ends.
  """
  read, write = os.pipe()
  os.set_blocking(write, False)

  def wait() -> None:
    while signal.SIGTERM not in os.read(read, 64):
      pass
    if not is_ending.wait(_GRACE_SECONDS):
      os._exit(_TERMINATED)

  threading.Thread(target=wait, daemon=True).start()
  signal.set_wakeup_fd(write, warn_on_full_buffer=False)


def _send_soon(number: int) -> None:
  timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
  timer.daemon = True
  timer.start()


def _end_in_callbacks(unraisable: Any) -> None:
  """Sends a signal again whose exception a destructor or callback has lost."""
  if unraisable.exc_type is KeyboardInterrupt:
    _send_soon(signal.SIGINT)
  elif unraisable.exc_type is SystemExit:
    _send_soon(signal.SIGTERM)
  else:
    sys.__unraisablehook__(unraisable)


def _is_importing(frame: Optional[types.FrameType]) -> bool:
  """Returns whether a frame is called by an import."""
  while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
    frame = frame.f_back
  return frame is not None


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


def _nobody_reads(error: BaseException) -> bool:
  """Returns whether the reader of standard output has closed the pipe."""
  if not isinstance(error, BrokenPipeError):
    return False
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
  """Returns the message of `error` on one line.

  That of a TensorFlow error is without the graph, and at most 300 characters
  besides a path.
  """
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
  path = max(re.findall(r"(?<!\S)/\S+", reason), key=len, default="")
  most = _TENSORFLOW_CHARACTERS + len(path)
  if hasattr(error, "op") and len(reason) > most:
    reason = f"{reason[: most - 3]}..."
  return reason or type(error).__name__


def _describe_flag(error: Exception) -> str:
  """Returns the message of an error in the flags, without a full stop."""
  message = str(error)
  if isinstance(error, flags.CantOpenFlagFileError) and "://" in message:
    return "--flagfile reads only local files: copy it to this machine"
  if missing := re.findall(rf"(--\w+){_NO_VALUE}", message):
    verb = "are" if missing[1:] else "is"
    return f"{' and '.join(missing)} {verb} required"
  cause = error.__context__  # What the parser of a flag has raised.
  if isinstance(error, flags.IllegalFlagValueError) and cause:
    given = message.removeprefix("flag ").removesuffix(f": {cause}")
    name, _, value = given.removeprefix("--").partition("=")
    parser = flags.FLAGS[name].parser if name in flags.FLAGS else None
    if isinstance(parser, flags.EnumParser):
      near = flag_names.did_you_mean(value, parser.enum_values)
      choices = _choices(parser)
      if len(choices) > _CHOICES_CHARACTERS:
        choices = f"its {len(parser.enum_values)} values"
      return f"{given} is none of {choices}{near}"
    if isinstance(parser, flags.BooleanParser):
      return f"{given} is neither true nor false"
    if isinstance(parser, (flags.FloatParser, flags.IntegerParser)):
      return f"{given} is not {parser.syntactic_help}"
    return f"{given}: {cause}".rstrip(". ")
  # absl writes a line for each validator, and names the flag's value first.
  return "; ".join(line.rstrip(". ") for line in message.splitlines())


def _help_text(program: str) -> str:
  """Returns the help of a program: its own flags, then other modules'.

  `program` is the module that was started, "__main__" or another.
  """
  # absl calls the main module by its file.
  own = sys.argv[0] if program == "__main__" else program
  defined = flags.FLAGS.flags_by_module_dict()
  # Modules come before those that import them, and are more general.
  shared = [name for name in reversed(defined) if name.startswith(_TOOLS)]
  modules = {own: program, **{name: name for name in shared if name != own}}
  sections: dict[str, list[flags.Flag]] = {"Required flags:": []}
  for name, module in modules.items():
    about = "Flags:" if name == own else _about(module).split("\n")[0]
    named = {flag.name: flag for flag in defined.get(name, ())}
    headings = {
      "Required flags:": " ".join(filter(_is_required, named)),
      about: "",
      **getattr(sys.modules[module], "HEADINGS", {}),
    }
    for heading, names in headings.items():
      listed = sections.setdefault(heading, [])
      listed += [named.pop(x) for x in names.split() if x in named]
    sections[about] += named.values()
  width = shutil.get_terminal_size().columns
  return "\n\n".join(
    [
      _about(program),
      *(
        "\n".join([f"{heading}\n", *(_entry(flag, width) for flag in listed)])
        for heading, listed in sections.items()
        if listed
      ),
      _HELP_END,
    ]
  )


def _about(module: str) -> str:
  text = (sys.modules[module].__doc__ or module).strip()
  return text.replace("python -m tools.", child_programs.PREFIX)


def _is_required(name: str) -> bool:
  message = f"--{name}{_NO_VALUE}"
  return any(message in v.message for v in flags.FLAGS[name].validators)


def _entry(flag: flags.Flag, width: int) -> str:
  """Returns the help of a flag, in lines of at most `width` characters."""
  name = f"[no]{flag.name}" if flag.boolean else flag.name
  text, default, notes = flag.help, flag.default, []
  # What absl adds to a text.
  text = text.partition(";\n    repeat this option")[0]
  if isinstance(flag.parser, flags.EnumParser):
    text = text.removeprefix(f"<{'|'.join(flag.parser.enum_values)}>: ")
    notes.append(f"one of {_choices(flag.parser)}")
  if isinstance(default, list):
    default = ", ".join(default)
  elif isinstance(default, float):
    default = f"{default:g}"
  if default is True:
    notes.append("default: true")
  elif default not in (None, "") and default is not False:
    notes.append(f"default: {default}")
  others = [x for x in flags.FLAGS if flags.FLAGS[x] is flag and x != flag.name]
  if others:
    notes.append(f"also {', '.join(f'--{x}' for x in others)}")
  # A default stays on one line with its name.
  ending = f" ({'; '.join(notes)})".replace("default: ", "default:\0")
  return textwrap.fill(
    f"--{name}: {text}{ending if notes else ''}",
    width,
    initial_indent="  ",
    subsequent_indent="      ",
    break_long_words=False,
    break_on_hyphens=False,
  ).replace("\0", " ")


def _choices(parser: flags.EnumParser) -> str:
  return ", ".join(filter(None, parser.enum_values))
