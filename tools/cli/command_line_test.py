"""Exit codes, messages, help, printed progress and virtual environments."""

from __future__ import annotations

import io
import pathlib
import signal
import subprocess
import sys

import pytest

from official_albert.tools.cli import command_line, printing

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = """
from official_albert.tools.cli import command_line
def main(argv):
  {body}
command_line.run(main)
"""


def _interruptible():
  # A process in the background ignores Ctrl-C by default.
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*command, first="", **options):
  done = subprocess.run(
    command,
    env={"PYTHONPATH": f"{first}:{_ROOT}", "PATH": ""},
    capture_output=True,
    text=True,
    preexec_fn=_interruptible,
    timeout=60,
    **options,
  )
  return done.returncode, done.stdout, done.stderr


def write(tmp_path, body, program=_PROGRAM):
  path = tmp_path / "program.py"
  path.write_text(program.replace("{body}", body))
  return path


def run(tmp_path, body, *arguments, program=_PROGRAM):
  path = write(tmp_path, body, program)
  return start(sys.executable, str(path), *arguments, cwd=tmp_path)


@pytest.mark.parametrize(
  "body, code, message",
  [
    ("raise ValueError('size is\\n  wrong.')", 1, "error: size is wrong."),
    (
      "file = open('/dev/full', 'w'); file.write('x'); file.close()",
      1,
      "error: the disk is full (that of the files, or of TMPDIR): make room "
      "and give the same command again.",
    ),
    ("open('none.txt')", 1, "error: none.txt: No such file or directory."),
    ("raise FileNotFoundError('make data.')", 1, "error: make data."),
    (
      "raise BrokenPipeError(32, 'Broken pipe', 'worker')",
      1,
      "error: worker: Broken pipe.",
    ),
    (
      "raise ValueError('No reader: Error executing an HTTP request: HTTP "
      "response code 404 with body \\'no\\'\\n\\t when reading gs://b/x')",
      1,
      "error: gs://b/x: No such file or directory.",
    ),
    (
      "import tensorflow as tf; raise tf.errors.DataLossError(None, None, "
      "'Unable to read\\n' + 'x ' * 999)",
      1,
      f"error: Unable to read {'x ' * 240}x...",
    ),
    ("raise KeyboardInterrupt", 130, "interrupted."),
  ],
)
def test_errors_are_one_sentence(tmp_path, body, code, message):
  assert run(tmp_path, body) == (code, "", f"program: {message}\n")


def test_warnings_are_one_line(tmp_path):
  body = "import warnings; warnings.warn('it is\\n  slow.')"
  assert run(tmp_path, body) == (0, "", "program: warning: it is slow.\n")
  assert "program.py:4: UserWarning" in run(tmp_path, body, "--verbosity=1")[2]


def test_success_and_tracebacks(tmp_path):
  assert run(tmp_path, "print('fine')") == (0, "fine\n", "")
  code, _, err = run(tmp_path, "raise ValueError('no')", "--verbosity=1")
  assert code == 1 and "Traceback" in err
  assert err.endswith("program: error: no\n")
  code, _, err = run(tmp_path, "return {}['x']")  # A bug of the program.
  assert code == 1 and "KeyError" in err


@pytest.mark.parametrize(
  "module", ["tools.ensemble", "official_albert.programs ensemble"]
)
def test_an_interruption_of_imports_is_one_sentence(tmp_path, module):
  (tmp_path / "absl").mkdir()
  (tmp_path / "absl" / "__init__.py").write_text(
    "import os, signal\n"
    "try:\n"
    "  os.kill(os.getpid(), signal.SIGINT)\n"
    "except KeyboardInterrupt:\n"
    "  raise ImportError('as NumPy does')\n"
  )
  done = start(sys.executable, "-m", *module.split(), first=tmp_path)
  assert done == (130, "", "ensemble: interrupted.\n")


def test_a_terminated_program_leaves_no_temporary_files(tmp_path):
  body = (
    "import os, signal; from official_albert import files\n"
    "  with files.new_folder('new'), files.replacing('file') as name:\n"
    "    open(name, 'w').close(); os.kill(os.getpid(), signal.SIGTERM)"
  )
  assert run(tmp_path, body) == (143, "", "")
  assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


# Saves after a signal, which it sends to the program that runs it.
_SAVING = """
import os, pathlib, signal, sys, time
def save(number, frame):
  time.sleep(0.3)
  pathlib.Path("saved").touch()
  sys.exit()
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
os.kill(os.getppid(), {number})
if {number} == signal.SIGINT:  # A terminal sends it to both.
  os.kill(os.getpid(), {number})
time.sleep(60)
"""


@pytest.mark.parametrize("number, code", [(2, 130), (15, 143)])
def test_a_program_that_another_runs_saves_before_both_end(
  tmp_path, number, code
):
  line = [sys.executable, "-c", _SAVING.replace("{number}", str(number))]
  body = (
    f"command_line.command = lambda *unused: {line}; "
    "command_line.run_program('run_pretraining')"
  )
  assert run(tmp_path, body)[0] == code
  assert (tmp_path / "saved").exists()


def test_a_program_that_another_runs_and_that_fails_is_named():
  with pytest.raises(ValueError, match="tools.ensemble failed with exit code "):
    command_line.run_program("ensemble", "--nope")


def test_a_program_may_have_minutes(monkeypatch):
  for code, seconds in (("import time; time.sleep(60)", 0.3), ("1", 60)):
    line = [sys.executable, "-c", code]
    monkeypatch.setattr(command_line, "command", lambda *unused, x=line: x)
    command_line.run_program("run_pretraining", minutes=seconds / 60)


def test_sigterm_stays_ignored(tmp_path):
  path = write(tmp_path, "import os; os.kill(os.getpid(), 15); print('done')")
  command = f"trap '' TERM; exec {sys.executable} {path}"
  assert start("/bin/sh", "-c", command) == (0, "done\n", "")


def test_programs_that_do_not_train_leave_the_tpu(tmp_path):
  """The processes that they start may use it."""
  body = (
    "import os; from official_albert import machine; "
    "print([x.get('TPU_LOAD_LIBRARY') for x in "
    "(os.environ, machine.training_environment())])"
  )
  assert run(tmp_path, body) == (0, "['0', None]\n", "")


@pytest.mark.parametrize(
  "body, argument",
  [
    ("print('line')", ""),
    ("print('line\\n' * 100_000)", ""),
    # The reader is gone before the first line, which fills no buffer.
    ("pass", "--help"),
    ("pass", "--helpfull"),
  ],
)
def test_a_reader_that_exits_early_is_no_error(tmp_path, body, argument):
  path = write(tmp_path, body)
  command = f"({sys.executable} {path} {argument}; echo $? >&2) | :"
  assert start("/bin/sh", "-c", command) == (0, "", "141\n")


@pytest.mark.parametrize(
  "argument, message",
  [
    (
      "data.txt",
      "unexpected argument 'data.txt': settings are given as --flag",
    ),
    ("--verbosty=1", "'verbosty'. Did you mean: verbosity;"),
    ("--verbosity=9999999999", "--verbosity=9999999999 must be from -2,147"),
    ("--verbosity=x\ny", "flag --verbosity=x y: invalid literal for int"),
    ("--verbosity", "Missing value for flag --verbosity"),
    ("--flagfile=gs://b/x", "Unable to open flagfile"),
  ],
)
def test_invalid_command_lines(tmp_path, argument, message):
  code, out, err = run(tmp_path, "print('ran')", argument)
  assert (code, out) == (2, "") and message in err
  assert err.startswith("program: error: ") and err.count("\n") == 1
  assert err.endswith("; --help lists the flags.\n")


def test_programs_set_what_tensorflow_reads(tmp_path):
  names = "GCS_APPEND_MODE", "TF_CPP_MIN_LOG_LEVEL"
  body = f"import os; print(*[os.environ.get(name) for name in {names}])"
  assert run(tmp_path, body) == (0, "compose 3\n", "")
  # The user's choices are kept.
  own = f"import os; os.environ.update({dict.fromkeys(names, '0')})"
  done = run(tmp_path, body, program=f"{own}\n{_PROGRAM}")
  assert done == (0, "0 0\n", "")


_IMPORTS = """
import importlib, logging, os, signal, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # TensorFlow is imported first.
def settings():
  loggers = [logging.getLogger(x) for x in (None, "absl", "tensorflow")]
  return [
    dict(os.environ, TF_USE_LEGACY_KERAS="any"),
    [(x.level, x.handlers[:], x.disabled) for x in loggers],
    [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)],
    (sys.excepthook, sys.unraisablehook),
  ]
before, names = sys.argv[1:]
for name in before.split():
  importlib.import_module(name)
before = settings()
for name in names.split():
  module, _, public = name.partition(":")
  getattr(importlib.import_module(module), public or "__name__")
  assert settings() == before, name
"""


@pytest.mark.parametrize(
  "before, names",
  [
    # Without TensorFlow, which reads the environment when it is imported.
    (
      "absl.logging",
      "official_albert official_albert.tfrecords "
      "official_albert.tools.gather_corpus",
    ),
    # TensorFlow and its packages change settings themselves.
    (
      "absl.logging matplotlib tensorflow tensorflow.keras tensorflow_text",
      "official_albert:load official_albert:TextClassifier "
      "official_albert.tools.run_finetuning "
      "official_albert.tools.hub.publication",
    ),
  ],
)
def test_imports_change_no_settings_of_the_process(before, names):
  code, _, err = start(sys.executable, "-c", _IMPORTS, before, names)
  assert code == 0, err


def test_progress(monkeypatch):
  now, stream = [0.0], io.StringIO()
  monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])
  line = printing.ProgressLine(stream)
  # A line every ten seconds. Each phase has its own clock.
  for now[0], *report in (
    (5, "making", 0.5, 70, "5 documents"),
    (12, "making", 0.75, 7070, "12 documents"),
    (15, "making", 1, 0, "15 documents"),
    (22, "checking", 0.0, 0, "no record"),
    (32, "checking", 0.2, 0, "7 records"),
  ):
    line.show(*report)
  assert stream.getvalue().splitlines() == [
    "making: 12 documents, 1,000 tokens/s, 0:00:07 left",
    "checking: no record",
    "checking: 7 records, 0:00:40 left",
  ]


def test_a_missing_environment_is_explained(tmp_path):
  arguments = tmp_path / "venv", tmp_path / "toy.txt", "3.12"
  with pytest.raises(ValueError) as caught:
    command_line.find_environment(*arguments)
  for command in ("python3.12 -m venv", "-m pip install -r", "toy.txt`."):
    assert command in str(caught.value)
  (tmp_path / "venv/bin").mkdir(parents=True)
  (tmp_path / "venv/bin/python").touch()
  found = command_line.find_environment(*arguments)
  assert found == str(tmp_path / "venv/bin/python")
