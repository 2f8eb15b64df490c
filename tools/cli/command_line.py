"""Starts programs: parses flags, shows help, reports errors.

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
import pathlib
import re
import select
import shlex
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings
from typing import Any, Callable, Iterator, Mapping, NoReturn, Sequence, Union

from absl import app, flags
from absl import logging as absl_logging

from official_albert import files, machine, remote

# Before the name of a program in a command for the user.
PREFIX = (
  "albert " if "official_albert.programs" in sys.modules else "python -m tools."
)
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
# google-research/albert's names of flags that have another one here, by
# program. They are accepted; `--help` and run.json show this project's.
# docs/migration.md lists all flags of that project.
_OTHER_NAMES = {
  "convert_checkpoint": {"albert_directory": "input", "export_path": "output"},
  "create_pretraining_data": {"input_file": "input_files"},
  "publish_hub_module": {
    "albert_directory": "input",
    "export_path": "output_dir",
  },
  "run_finetuning": {
    "albert_hub_module_handle": "init_checkpoint",
    "cached_dir": "cache_dir",
    "dropout_prob": "classifier_dropout",
    "iterations_per_loop": "steps_per_loop",
    "num_keep_checkpoint": "keep_checkpoint_max",
    "predict_batch_size": "eval_batch_size",
    "predict_file": "dev_file",
    "task_name": "task",
    "tpu_name": "tpu",
    "train_step": "num_train_steps",
    "warmup_step": "num_warmup_steps",
  },
  "run_pretraining": {
    "iterations_per_loop": "steps_per_loop",
    "output_dir": "model_dir",
    "tpu_name": "tpu",
  },
}

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


@_errors_as_sentences()
def parse(
  then: Callable[[], Any] = lambda: None, program: str = "__main__"
) -> None:
  """Parses the flags of the program that was started, or shows its help.

  TensorFlow takes seconds to load, so a program calls this before it imports
  TensorFlow, and `run` after that. A process that uses no TPU leaves it to
  others here, too.

  Args:
    then: sets further flags, as a recipe does. Its ValueError is the user's.
    program: the module of the program. Its `MAX_ARGUMENTS` says how many
      arguments other than flags are allowed; by default none is.
  """
  machine.set_environment()
  app.define_help_flags()
  for other, name in _OTHER_NAMES.get(_name(), {}).items():
    flags.FLAGS[other] = flags.FLAGS[name]
  try:
    if _HELP & {*sys.argv}:
      print(_help_text(program), end="")
      sys.exit()
    arguments = flags.FLAGS(sys.argv)
    _check_numbers()
    known = 1 + getattr(sys.modules[program], "MAX_ARGUMENTS", 0)
    for argument in arguments[known:]:
      raise ValueError(
        f"unexpected argument {argument!r}: settings are given as --flag=value."
      )
  except SystemExit:
    # After --helpfull, absl would exit with 1.
    sys.stdout.flush()
    sys.exit(0)
  except (flags.Error, ValueError) as error:
    message = str(error).rstrip("?. ")
    if isinstance(error, flags.UnrecognizedFlagError) and (
      _name() in _OTHER_NAMES
    ):
      message += "; docs/migration.md lists the flags of google-research/albert"
    _fail(2, f"error: {message}; --help lists the flags.")
  then()
  _arguments[:] = arguments
  # Programs without the flag do not train.
  trains = "distribution" in flags.FLAGS
  if not trains or flags.FLAGS["distribution"].value != "tpu":
    machine.leave_tpu()


@_errors_as_sentences()
def run(main: Callable[[Sequence[str]], None]) -> None:
  """Parses the flags unless `parse` has, runs `main(arguments)` and exits.

  Exit codes: 0 after success and `--help`; with one sentence on stderr, 1 after
  an error of the user, 2 for an invalid command line, 130 after Ctrl-C. Without
  a message, 143 after SIGTERM, with temporary files removed; 141 if the reader
  of the output, such as `head`, has exited. Any other exception is a bug, and
  its traceback is shown.
  """
  if not _arguments:
    parse(program=main.__module__)
  arguments = [*_arguments]
  _arguments.clear()

  def guarded(argv: Sequence[str]) -> None:
    if flags.FLAGS["verbosity"].value < 1:
      warnings.formatwarning = _format_warning  # type: ignore[assignment]
      # Hides what TensorFlow and Keras log about assets and untraced functions.
      # Exports reset absl's level to the value set here.
      absl_logging.set_verbosity(absl_logging.ERROR)
      logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Ctrl-C and SIGTERM are exceptions, so temporary files are removed.
    # `training.PreemptionWatch` replaces this where a run is saved first.
    for number, handler in (
      (signal.SIGINT, signal.default_int_handler),
      (signal.SIGTERM, lambda *unused: sys.exit(_TERMINATED)),
    ):
      if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)
    main(argv)
    sys.stdout.flush()

  app.run(guarded, flags_parser=lambda unused: arguments)


def command(program: str, *arguments: str) -> list[str]:
  """Returns the command line of `tools.PROGRAM`, with this interpreter."""
  return [sys.executable, "-m", f"{_TOOLS}{program}", *arguments]


def run_program(program: str, *arguments: str, minutes: float = 0.0) -> None:
  """Runs `tools.PROGRAM`, for `minutes` if above 0.

  A terminal sends Ctrl-C to the program, too, which has ten seconds to save and
  stop. A SIGTERM of this process is passed on.

  Raises:
    ValueError: it fails, other than by the SIGTERM that ends its minutes.
  """
  line = command(program, *arguments)
  ended: tuple[int, ...] = ()
  with subprocess.Popen(line, env=machine.training_environment()) as process:
    try:
      code = process.wait(60 * minutes or None)
    except subprocess.TimeoutExpired:
      process.terminate()
      code = process.wait()
      ended = (_TERMINATED, -signal.SIGTERM)
    except KeyboardInterrupt:
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
      raise
    finally:
      process.terminate()  # Does nothing if it has ended.
  if code and code not in ended:
    raise ValueError(
      f"tools.{program} failed with exit code {code}: see its output above, "
      "mend the cause, and give the same command again."
    )


def run_step(
  program: str, given: Mapping[str, Any], result: str = "", minutes: float = 0.0
) -> None:
  """Prints the command of `tools.PROGRAM` and runs it, unless `result` exists.

  `given` are its flags; None is no value. For `minutes` see `run_program`.
  """
  if result and files.exists(result):
    print(f"\n{result} exists; not run again: tools.{program}", flush=True)
    return
  line = [f"--{k}" if x is None else f"--{k}={x}" for k, x in given.items()]
  print(f"\n$ {PREFIX}{program} {shlex.join(line)}", flush=True)
  run_program(program, *line, minutes=minutes)


def find_environment(
  folder: pathlib.Path, requirements: pathlib.Path, version: str
) -> str:
  """Returns the interpreter of a virtual environment, of `version` of Python.

  If there is none, the message of a ValueError has the commands that make it.
  """
  python = folder / "bin" / "python"
  if not python.exists():
    raise ValueError(
      f"there is no virtual environment {folder}: make it by `python{version} "
      f"-m venv {folder}` and `{python} -m pip install -r {requirements}`."
    )
  return str(python)


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
    return (
      "the disk is full (that of the files, or of TMPDIR): make room and give "
      "the same command again."
    )
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
  """Returns what a program does, its own flags, then those of other modules."""
  # absl calls the main module by its file.
  own = sys.argv[0] if program == "__main__" else program
  modules = [*reversed(flags.FLAGS.flags_by_module_dict())]
  about = (sys.modules[program].__doc__ or "").strip()
  parts = [about.replace("python -m tools.", PREFIX)]
  for name in [own, *(x for x in modules if x.startswith(_TOOLS) and x != own)]:
    title = "Flags" if name == own else name
    _, _, shown = flags.FLAGS.module_help(name).partition(":")
    parts.append(f"{title}:{shown}")
  return "\n\n".join([*parts, _HELP_END])
