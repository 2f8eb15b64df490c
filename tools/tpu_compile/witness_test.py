"""Asking, with processes made up."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys

import pytest

from official_albert import modeling
from tools.tpu_compile import compiler as tpu_compiler
from tools.tpu_compile import rows as tpu_rows
from tools.tpu_compile import step as tpu_step
from tools.tpu_compile import witness as tpu_witness

_STEP = tpu_step.Step(
  modeling.AlbertConfig.from_preset("albert_tiny").to_dict(), batch_size=3
)
_ANSWER = tpu_compiler.Compiled(8, "TPU v3", True, 1000, 2000)


@pytest.fixture
def asked(monkeypatch):
  """Commands that would have been run; the compiler always says `_ANSWER`."""
  commands = []

  def run(command, what, environment):
    assert "PATH" in environment
    commands.append(command[2:])
    if "lowering" in what:
      pathlib.Path(command[-1]).write_text("lowered")
      return ""
    assert environment["TPU_SKIP_MDS_QUERY"] == "1"
    assert command[0] == "/python" and os.path.exists(command[-2])
    return f"a note\n{json.dumps(dataclasses.asdict(_ANSWER))}\n"

  monkeypatch.setattr(tpu_witness, "_run", run)
  return commands


def test_a_step_is_lowered_once(asked):
  other = dataclasses.replace(_STEP, batch_size=5)
  with tpu_witness.Witness("/python", tpu_rows.Store()) as witness:
    for step in (_STEP, other):
      for topology in ("v2:2x2", "v3:2x2"):
        row = witness.ask("m", step, topology)
        assert row == tpu_rows.Row("m", step, topology, _ANSWER)
  modules = [command[0].split(".")[-1] for command in asked]
  assert modules == ["step", "compiler", "compiler"] * 2
  assert tpu_step.Step(**json.loads(asked[3][1])) == other


def test_known_rows_are_not_compiled_again(asked, tmp_path):
  path = str(tmp_path / "rows.jsonl")
  for name in ("one", "other"):
    with tpu_witness.Witness("/python", tpu_rows.Store(path)) as witness:
      assert witness.ask(name, _STEP, "v3:2x2").name == name
  assert len(asked) == 2


def test_only_the_last_lowered_steps_are_kept(asked, monkeypatch):
  monkeypatch.setattr(tpu_witness, "_KEPT", 2)
  with tpu_witness.Witness("/python", tpu_rows.Store()) as witness:
    for index, batch in enumerate((1, 2, 1, 3, 2, 1)):
      step = dataclasses.replace(_STEP, batch_size=batch)
      witness.ask("m", step, f"v3:{index + 1}x1")
    folder = pathlib.Path(asked[0][-1]).parent
    assert len(list(folder.iterdir())) == 2
  lowered = [
    json.loads(c[1])["batch_size"]
    for c in asked
    if len(c) == 3 and "step" in c[0]
  ]
  assert lowered == [1, 2, 3, 1]


def test_files_are_removed(asked):
  with tpu_witness.Witness("/python", tpu_rows.Store()) as witness:
    witness.ask("m", _STEP, "v3:2x2")
    folder = os.path.dirname(asked[0][-1])
    assert os.path.isdir(folder)
  assert not os.path.exists(folder)


@pytest.mark.parametrize(
  "program, message",
  [
    ("import sys; sys.exit('a\\nlast words')", "x failed: last words"),
    ("import os; os.kill(os.getpid(), 9)", "x failed: .*signal 9.*memory"),
  ],
)
def test_a_failed_process(program, message):
  with pytest.raises(ValueError, match=message):
    tpu_witness._run([sys.executable, "-c", program], "x", dict(os.environ))


def test_a_process_that_is_no_program():
  with pytest.raises(OSError, match="no-such"):
    tpu_witness._run(["/no-such"], "x", {})


def test_run():
  command = [sys.executable, "-c", "import os; print(os.environ['A'])"]
  assert tpu_witness._run(command, "x", {"A": "b"}) == "b\n"


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
