"""Tests of exit codes, messages and help, in processes of their own."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import pytest

from tools.cli import child_programs

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = """
from tools.cli import command_line
def main(argv):
  {body}
command_line.run(main)
"""


def start(*command, **options):
  done = subprocess.run(
    command,
    env={"PYTHONPATH": str(_ROOT), "PATH": ""},
    capture_output=True,
    text=True,
    **options,
  )
  return done.returncode, done.stdout, done.stderr


def run(tmp_path, body, *arguments, program=_PROGRAM):
  path = tmp_path / "program.py"
  path.write_text(program.replace("{body}", body))
  return start(sys.executable, str(path), *arguments, cwd=tmp_path)


def test_success(tmp_path):
  assert run(tmp_path, "print('fine')") == (0, "fine\n", "")


@pytest.mark.parametrize(
  "body, code, message",
  [
    ("raise ValueError('size is\\n  wrong.')", 1, "error: size is wrong."),
    (
      "file = open('/dev/full', 'w'); file.write('x'); file.close()",
      1,
      "error: the disk is full: make room and give the same command again.",
    ),
    ("open('none.txt')", 1, "error: none.txt: No such file or directory."),
    ("raise FileNotFoundError('make data.')", 1, "error: make data."),
    (
      "raise BrokenPipeError(32, 'Broken pipe', 'worker')",
      1,
      "error: worker: Broken pipe.",
    ),
    ("raise KeyboardInterrupt", 130, "interrupted."),
  ],
)
def test_errors_are_one_sentence(tmp_path, body, code, message):
  assert run(tmp_path, body) == (code, "", f"program: {message}\n")


def test_tracebacks(tmp_path):
  code, _, err = run(tmp_path, "raise ValueError('no')", "--verbosity=1")
  assert code == 1 and "Traceback" in err
  assert err.endswith("program: error: no\n")
  code, _, err = run(tmp_path, "return {}['x']")  # A bug of the program.
  assert code == 1 and "KeyError" in err


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
  path = tmp_path / "program.py"
  path.write_text(_PROGRAM.format(body=body))
  command = f"({sys.executable} {path} {argument}; echo $? >&2) | :"
  assert start("/bin/sh", "-c", command) == (0, "", "141\n")


@pytest.mark.parametrize(
  "argument, message",
  [
    (
      "data.txt",
      "unexpected argument 'data.txt': settings are given as --flag",
    ),
    ("--no_such_flag=1", "there is no flag --no_such_flag"),
    ("--verbosty=1", "no flag --verbosty, perhaps --verbosity is meant"),
    ("--verbosity=x", "'x'"),
    ("--verbosity", "Missing value for flag --verbosity"),
  ],
)
def test_invalid_command_lines(tmp_path, argument, message):
  code, out, err = run(tmp_path, "print('ran')", argument)
  assert (code, out) == (2, "") and message in err
  assert err.startswith("program: error: ") and err.count("\n") == 1
  assert err.endswith("--help lists the flags.\n" if "-" in argument else "\n")


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
flags.DEFINE_string("sugar", "", "S.")
flags.DEFINE_string("tea", None, "T.", required=True)
flags.DEFINE_string("water", None, "W.", required=True)

def main(argv):
  print("ran")

command_line.run(main)
'''
_HELP = """Makes tea; 5% resin.

    program.py --tea=green

Required flags:

  --tea: T.
  --water: W.

Flags:

  --sugar: S.
    (default: '')

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


@pytest.mark.parametrize("argument", ["--help", "--helpshort", "-?", "-help"])
def test_help_lists_required_flags_first_then_those_of_modules(
  tmp_path, argument
):
  found = run(tmp_path, "", argument, program=_HELPFUL_PROGRAM)
  assert found == (0, _HELP, "")


@pytest.mark.parametrize("argument", ["--helpfull", "--helpxml"])
def test_full_help_lists_the_flags_of_libraries_too(tmp_path, argument):
  code, out, err = run(tmp_path, "", argument, program=_HELPFUL_PROGRAM)
  assert (code, err) == (0, "") and "tea" in out and "kettle" in out
  assert "ran" not in out


def test_each_missing_flag_is_named_once(tmp_path):
  code, out, err = run(tmp_path, "", "--nohelp", program=_HELPFUL_PROGRAM)
  assert (code, out) == (2, "")
  assert err == (
    "program: error: Flag --tea must have a value other than None; Flag "
    "--water must have a value other than None; --help lists the flags.\n"
  )


@pytest.mark.parametrize(
  "code, level",
  [
    ("from tools import run_pretraining", "3"),
    # The user's choice is kept, and that of a TensorFlow that has started.
    ("os.environ[name] = '0'; import official_albert", "0"),
    ("sys.modules['tensorflow'] = None; import official_albert", "None"),
  ],
)
def test_tensorflow_starts_without_its_notices(code, level):
  program = (
    f"import os, sys; name = 'TF_CPP_MIN_LOG_LEVEL'; {code}; "
    "print(os.environ.get(name))"
  )
  assert start(sys.executable, "-c", program) == (0, f"{level}\n", "")


@pytest.mark.parametrize(
  "program", ["run_pretraining", "run_finetuning", "predict", "ensemble"]
)
def test_help_of_programs_loads_no_tensorflow(program):
  code = (
    "import sys\nfrom absl import flags\nfrom tools.cli import command_line\n"
    f"from tools import {program}\nsys.argv = ['{program}', '--help']\n"
    f"try:\n  command_line.run({program}.main)\n"
    "finally:\n  assert 'tensorflow' not in sys.modules"
  )
  status, out, err = start(sys.executable, "-c", code)
  assert (status, err) == (0, "")
  listed = re.findall(r"^  --(?:\[no])?(\w+):", out, re.MULTILINE)
  assert len(listed) > 15 and "chex_n_cpu_devices" not in listed
  if program == "run_finetuning":
    assert {"seeds", "cache_dir", "layerwise_lr_decay"} <= {*listed}


def test_examples_in_docstrings_keep_their_backslashes():
  for path in sorted((_ROOT / "tools").rglob("*.py")):
    text = path.read_text(encoding="utf-8")
    written = re.match(r'"""(.*?)"""', text, re.DOTALL)
    if written:
      shown = ast.get_docstring(ast.parse(text), clean=False)
      assert shown.count("\n") == written[1].count("\n"), path


def test_arguments_of_a_started_program(monkeypatch, capsys):
  given = ['{"a": [3]}', "0.5", "--x"]
  kinds = (child_programs.json_object, float, str)
  values = child_programs.arguments("tools.a", *kinds, argv=given)
  assert values == [{"a": [3]}, 0.5, "--x"]
  for argv in (
    [],
    ["--help"],
    ["{}", "x", "y"],
    ["[]", "3", ""],
    ["{}", "3", "", ""],
  ):
    monkeypatch.setattr(sys, "argv", ["/b/program.py", *argv])
    with pytest.raises(SystemExit) as ended:
      child_programs.arguments("tools.a", *kinds)
    assert ended.value.code == 2
    assert capsys.readouterr() == (
      "",
      "program: error: start tools.a instead, which starts this program.\n",
    )


@pytest.mark.parametrize(
  "name, starter",
  [
    ("conversion.hf_outputs", "tools.convert_checkpoint"),
    ("benchmarks.peers.huggingface", "tools.benchmark"),
    ("tpu_compile.compiler", "tools.compile_for_tpu"),
    pytest.param(  # Imports TensorFlow first, which takes seconds.
      "tpu_compile.step", "tools.compile_for_tpu", marks=pytest.mark.heavy
    ),
  ],
)
def test_programs_name_the_one_that_starts_them(name, starter, tmp_path):
  # The one that another project's interpreter runs is a script.
  command = ["-m", f"tools.{name}"]
  if name == "conversion.hf_outputs":
    command = [f"{_ROOT}/tools/{name.replace('.', '/')}.py"]
  code, out, err = start(sys.executable, *command, "--help", cwd=_ROOT)
  assert (code, out) == (2, "")
  program = name.split(".")[-1]
  assert err == (
    f"{program}: error: start {starter} instead, which starts this program.\n"
  )


def test_child_programs_need_no_packages():
  script = f"{_ROOT}/tools/cli/child_programs.py"
  assert start(sys.executable, "-I", "-S", script) == (0, "", "")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
