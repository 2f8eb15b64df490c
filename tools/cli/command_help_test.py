"""Tests of help in a program of its own, and of all tools'."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = '''"""Makes tea; 5% resin.

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

Flags:

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


def _run(tmp_path, argument):
  path = tmp_path / "program.py"
  path.write_text(_PROGRAM)
  return subprocess.run(
    [sys.executable, str(path), argument],
    env={"PYTHONPATH": str(_ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("argument", ["--help", "--helpshort", "-?", "-help"])
def test_the_flags_of_this_project_by_module(tmp_path, argument):
  done = _run(tmp_path, argument)
  assert (done.returncode, done.stdout, done.stderr) == (0, _HELP, "")


def test_no_help(tmp_path):
  done = _run(tmp_path, "--nohelp")
  assert done.returncode == 2 and "--tea must have a value" in done.stderr


def test_full_help_has_those_of_libraries_too(tmp_path):
  done = _run(tmp_path, "--helpfull")
  assert done.returncode == 0
  assert re.search("--tea.*--kettle", done.stdout, re.DOTALL)


@pytest.mark.heavy
def test_a_tool_lists_the_flags_of_all_modules_it_shares():
  done = subprocess.run(
    [sys.executable, "-m", "tools.run_finetuning", "--help"],
    cwd=_ROOT,
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
  for path in sorted((_ROOT / "tools").rglob("*.py")):
    text = path.read_text(encoding="utf-8")
    written = re.match(r'"""(.*?)"""', text, re.DOTALL)
    if written:
      said = ast.get_docstring(ast.parse(text), clean=False)
      assert said.count("\n") == written[1].count("\n"), path


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
