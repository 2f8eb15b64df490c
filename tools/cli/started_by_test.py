"""Arguments as another program gives them, and as a person may."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tools.cli import started_by

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAMS = {
  "conversion.hf_outputs": "tools.convert_checkpoint",
  "testing.many_commands": "tests",
  "benchmarks.peers.huggingface": "tools.benchmark",
  "benchmarks.peers.keras_hub": "tools.benchmark",
  "benchmarks.peers.model_garden": "tools.benchmark",
  "benchmarks.peers.ours": "tools.benchmark",
  "benchmarks.serving_load": "tools.benchmark",
  "tpu_compile.compiler": "tools.compile_for_tpu",
}
# They import TensorFlow first, which takes seconds.
_SLOW_PROGRAMS = {
  "tpu_compile.step": "tools.compile_for_tpu",
}


def test_values():
  given = ['{"a": [3]}', "0.5", "--x"]
  kinds = (started_by.json_object, float, str)
  values = started_by.arguments("tools.a", *kinds, argv=given)
  assert values == [{"a": [3]}, 0.5, "--x"]


def test_by_default_those_of_the_process(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["x.py", "7"])
  assert started_by.arguments("tools.a", int) == [7]


@pytest.mark.parametrize(
  "argv",
  [
    [],
    ["--help"],
    ["{}"],
    ["{}", "x"],
    ["[]", "3"],
    ["3", "3"],
    ["{}", "3", ""],
  ],
)
def test_others_are_refused_in_a_sentence(argv, monkeypatch, capsys):
  monkeypatch.setattr(sys, "argv", ["/b/program.py"])
  with pytest.raises(SystemExit) as ended:
    started_by.arguments("tools.a", started_by.json_object, float, argv=argv)
  assert ended.value.code == 2
  out, err = capsys.readouterr()
  assert (out, err) == (
    "",
    "program: error: this program is started by tools.a, which see.\n",
  )


@pytest.mark.parametrize(
  "name, starter",
  [
    *_PROGRAMS.items(),
    *[
      pytest.param(*item, marks=pytest.mark.heavy)
      for item in _SLOW_PROGRAMS.items()
    ],
  ],
)
def test_the_programs_say_who_starts_them(name, starter, tmp_path):
  # The one that another project's interpreter runs is a script.
  script = name == "conversion.hf_outputs"
  path = f"{_ROOT}/tools/{name.replace('.', '/')}.py"
  command = [path] if script else ["-m", f"tools.{name}"]
  done = subprocess.run(
    [sys.executable, *command, "--help"],
    cwd=tmp_path if script else _ROOT,
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stdout) == (2, "")
  assert done.stderr == (
    f"{name.split('.')[-1]}: error: this program is started by {starter}, "
    "which see.\n"
  )


def test_it_needs_no_packages():
  done = subprocess.run(
    [sys.executable, "-I", "-S", f"{_ROOT}/tools/cli/started_by.py"],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
