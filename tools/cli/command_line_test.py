"""Tests of exit codes, messages and help, in processes of their own."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
from tools.cli import command_line
def main(argv):
  {body}
command_line.run(main)
"""


def run(tmp_path, body, *arguments, program=PROGRAM):
  path = tmp_path / "program.py"
  path.write_text(program.format(body=body))
  return subprocess.run(
    [sys.executable, str(path), *arguments],
    cwd=tmp_path,
    env={"PYTHONPATH": str(ROOT), "PATH": ""},
    capture_output=True,
    text=True,
  )


def test_success(tmp_path):
  result = run(tmp_path, "print('fine')")
  assert (result.returncode, result.stdout) == (0, "fine\n")


@pytest.mark.parametrize(
  "body, message",
  [
    ("raise ValueError('size is\\n  wrong.')", "size is wrong."),
    (
      "file = open('/dev/full', 'w'); file.write('x'); file.close()",
      "the disk is full: make room and give the same command again.",
    ),
    ("open('none.txt')", "none.txt: No such file or directory."),
    ("raise FileNotFoundError('no data; make some.')", "no data; make some."),
  ],
)
def test_user_errors_are_one_sentence(tmp_path, body, message):
  result = run(tmp_path, body)
  assert result.returncode == 1
  assert result.stderr == f"program: error: {message}\n"


def piped(tmp_path, body, *arguments):
  """With its exit code on stderr, and a reader that is gone before the end."""
  path = tmp_path / "program.py"
  path.write_text(PROGRAM.format(body=body))
  command = " ".join([sys.executable, str(path), *arguments])
  return subprocess.run(
    ["/bin/sh", "-c", f"({command}; echo $? >&2) | true"],
    env={"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("lines", [3, 100_000])
def test_a_reader_that_has_had_enough_is_no_error(tmp_path, lines):
  result = piped(tmp_path, f"print('line\\n' * {lines})")
  assert (result.stdout, result.stderr) == ("", "141\n")


def test_other_broken_pipes_are_errors(tmp_path):
  result = run(tmp_path, "raise BrokenPipeError(32, 'Broken pipe', 'worker')")
  assert result.returncode == 1
  assert result.stderr == "program: error: worker: Broken pipe.\n"


def test_verbosity_shows_the_traceback(tmp_path):
  result = run(tmp_path, "raise ValueError('no')", "--verbosity=1")
  assert result.returncode == 1
  assert "Traceback" in result.stderr
  assert result.stderr.endswith("program: error: no\n")


def test_our_own_bugs_keep_their_traceback(tmp_path):
  result = run(tmp_path, "return {}['x']")
  assert result.returncode == 1 and "KeyError" in result.stderr


def test_stray_arguments_and_unknown_flags_are_refused(tmp_path):
  result = run(tmp_path, "print('ran')", "data.txt")
  assert result.returncode == 2 and "'data.txt'" in result.stderr
  assert "ran" not in result.stdout


@pytest.mark.parametrize(
  "argument, message",
  [
    ("--no_such_flag=1", "there is no flag --no_such_flag"),
    ("--verbosty=1", "no flag --verbosty, perhaps --verbosity is meant"),
    ("--verbosity=x", "'x'"),
    ("--verbosity", "Missing value for flag --verbosity"),
  ],
)
def test_flags_that_cannot_be_parsed(tmp_path, argument, message):
  result = run(tmp_path, "print('ran')", argument)
  assert (result.returncode, result.stdout) == (2, "")
  assert result.stderr.startswith("program: error: ")
  assert message in result.stderr and result.stderr.count("\n") == 1
  assert result.stderr.endswith("; --help lists the flags.\n")


def test_each_missing_flag_is_named_once(tmp_path):
  body = "print('ran')"
  program = PROGRAM.replace(
    "command_line.run",
    """from absl import flags
for name in ("size", "place"):
  flags.DEFINE_string(name, None, "", required=True)
command_line.run""",
  )
  result = run(tmp_path, body, "--place=x", program=program)
  assert (result.returncode, result.stdout) == (2, "")
  assert result.stderr == (
    "program: error: Flag --size must have a value other than None; --help "
    "lists the flags.\n"
  )
  result = run(tmp_path, body, program=program)
  assert result.stderr.count("--size") == result.stderr.count("--place") == 1


@pytest.mark.parametrize("flag", ["help", "helpshort", "helpfull", "helpxml"])
def test_help_is_a_success(tmp_path, flag):
  result = run(tmp_path, "print('ran')", f"--{flag}")
  assert (result.returncode, result.stderr) == (0, "")
  assert result.stdout and "ran" not in result.stdout


@pytest.mark.parametrize("flag", ["help", "helpfull"])
def test_a_help_that_nobody_reads_is_no_error(tmp_path, flag):
  # The reader is gone before the first line, which fills no buffer.
  result = piped(tmp_path, "pass", f"--{flag}")
  assert (result.stdout, result.stderr) == ("", "141\n")


def test_interruption(tmp_path):
  result = run(tmp_path, "raise KeyboardInterrupt")
  assert result.returncode == 130
  assert result.stderr == "program: interrupted.\n"


@pytest.mark.parametrize(
  "code, level",
  [
    ("from official_albert import AlbertModel", "3"),
    ("from tasks.pretraining import model", "3"),
    ("from official_albert.training import optimization", "3"),
    ("from tools import run_pretraining", "3"),
    # What the user has chosen, and a TensorFlow that has started, stay.
    ("os.environ[name] = '0'; import official_albert", "0"),
    ("sys.modules['tensorflow'] = None; import official_albert", "None"),
  ],
)
def test_tensorflow_starts_without_its_notices(code, level):
  body = "import os, sys; name = 'TF_CPP_MIN_LOG_LEVEL'; "
  done = subprocess.run(
    [sys.executable, "-c", f"{body}{code}; print(os.environ.get(name))"],
    env={"PYTHONPATH": str(ROOT), "PATH": ""},
    capture_output=True,
    text=True,
  )
  assert (done.stdout, done.stderr) == (f"{level}\n", "")


_HELPFUL_PROGRAM = '''"""Makes tea; 5% resin.

    program.py --tea=green
"""
import sys
import types

from absl import flags

from tools.cli import command_line

def defines(name, doc, flag):
  sys.modules[name] = module = types.ModuleType(name, doc)
  exec(f"from absl import flags; flags.DEFINE_{flag}", module.__dict__)

defines("tools.z_cups", "Flags of cups.\\n\\nOf tin.", "bool('cup', 1, 'C.')")
defines("other.kettle", "Flags of kettles.", "string('kettle', '', 'K.')")
defines("tools.a_milk", None, "integer('milk', 3, 'M.')")
flags.DEFINE_string("tea", None, "T.", required=True)

def main(argv):
  print("ran")

command_line.run(main)
'''
_HELP = """Makes tea; 5% resin.

    program.py --tea=green

Required flags:

  --tea: T.

Flags of cups.

  --[no]cup: C.
    (default: 'true')

tools.a_milk

  --milk: M.
    (default: '3')
    (an integer)

--verbosity=1 shows an error's traceback, --flagfile=FILE reads flags from
a file, --helpfull lists the flags of absl and other libraries too.
"""


def _help(tmp_path, argument):
  path = tmp_path / "program.py"
  path.write_text(_HELPFUL_PROGRAM)
  return subprocess.run(
    [sys.executable, str(path), argument],
    env={"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("argument", ["--help", "--helpshort", "-?", "-help"])
def test_the_flags_of_this_project_by_module(tmp_path, argument):
  done = _help(tmp_path, argument)
  assert (done.returncode, done.stdout, done.stderr) == (0, _HELP, "")


def test_no_help(tmp_path):
  done = _help(tmp_path, "--nohelp")
  assert done.returncode == 2 and "--tea must have a value" in done.stderr


def test_full_help_has_those_of_libraries_too(tmp_path):
  done = _help(tmp_path, "--helpfull")
  assert done.returncode == 0
  assert re.search("--tea.*--kettle", done.stdout, re.DOTALL)


@pytest.mark.heavy
def test_a_tool_lists_the_flags_of_all_modules_it_shares():
  done = subprocess.run(
    [sys.executable, "-m", "tools.run_finetuning", "--help"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stderr) == (0, "")
  listed = set(re.findall(r"^  --(?:\[no])?(\w+):", done.stdout, re.MULTILINE))
  assert {"seeds", "cache_dir", "train_batch_size", "layerwise_lr_decay"} <= (
    listed
  )
  assert len(listed) > 60 and "chex_n_cpu_devices" not in listed


def test_examples_in_docstrings_have_their_lines():
  """A backslash at a line's end has to be written twice."""
  for path in sorted((ROOT / "tools").rglob("*.py")):
    text = path.read_text(encoding="utf-8")
    written = re.match(r'"""(.*?)"""', text, re.DOTALL)
    if written:
      said = ast.get_docstring(ast.parse(text), clean=False)
      assert said.count("\n") == written[1].count("\n"), path


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
