"""Tests of processes.py with fake processes."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys

import pytest

from official_albert import modeling
from tools.tpu_compile import compiler, processes, rows
from tools.tpu_compile import step as step_lib

_STEP = step_lib.Step(
  modeling.AlbertConfig.from_preset("albert_tiny").to_dict(), batch_size=3
)
_ANSWER = compiler.Compiled(8, "TPU v3", True, 1000, 2000)


@pytest.fixture
def commands(monkeypatch):
  """Commands that would have been run; the compiler always says `_ANSWER`."""
  made: list = []

  def run(command, what, variables):
    made.append(command[2:])
    if "lowering" in what:
      pathlib.Path(command[-1]).write_text("lowered")
      return ""
    assert variables["TPU_SKIP_MDS_QUERY"] == "1"
    assert command[0] == "/python" and os.path.exists(command[-2])
    return f"a note\n{json.dumps(dataclasses.asdict(_ANSWER))}\n"

  monkeypatch.setattr(processes, "_run", run)
  return made


def test_a_step_is_lowered_once(commands):
  other = dataclasses.replace(_STEP, batch_size=5)
  with processes.StepCompiler("/python", rows.Store()) as step_compiler:
    for step in (_STEP, other):
      for topology in ("v2:2x2", "v3:2x2"):
        row = step_compiler.compile("m", step, topology)
        assert row == rows.Row("m", step, topology, _ANSWER)
    folder = os.path.dirname(commands[0][-1])
    assert os.path.isdir(folder)
  assert not os.path.exists(folder)
  modules = [command[0].split(".")[-1] for command in commands]
  assert modules == ["step", "compiler", "compiler"] * 2
  assert step_lib.Step(**json.loads(commands[3][1])) == other


def test_known_rows_are_not_compiled_again(commands, tmp_path):
  path = str(tmp_path / "rows.jsonl")
  for name in ("one", "other"):
    with processes.StepCompiler("/python", rows.Store(path)) as step_compiler:
      assert step_compiler.compile(name, _STEP, "v3:2x2").name == name
  assert len(commands) == 2


def test_only_the_last_lowered_steps_are_kept(commands, monkeypatch):
  monkeypatch.setattr(processes, "_KEPT", 2)
  with processes.StepCompiler("/python", rows.Store()) as step_compiler:
    for index, batch in enumerate((1, 2, 1, 3, 2, 1)):
      step = dataclasses.replace(_STEP, batch_size=batch)
      step_compiler.compile("m", step, f"v3:{index + 1}x1")
    assert len(os.listdir(os.path.dirname(commands[0][-1]))) == 2
  lowered = [
    json.loads(c[1])["batch_size"] for c in commands if c[-1][-3:] == "hlo"
  ]
  assert lowered == [1, 2, 3, 1]


@pytest.mark.parametrize(
  "program, message",
  [
    ("import sys; sys.exit('a\\nno such layer')", "x failed: no such layer"),
    ("import os; os.kill(os.getpid(), 9)", "x failed: .*signal 9.*memory"),
  ],
)
def test_a_failed_process(program, message):
  with pytest.raises(ValueError, match=message):
    processes._run([sys.executable, "-c", program], "x", {})


def search(largest: int, start: int, limit: int = 4096):
  """Returns the found batch and the tried ones, if `largest` is the truth."""
  tried = []

  def fits(batch):
    assert batch not in tried
    tried.append(batch)
    return batch <= largest

  return processes.largest_batch(fits, start, limit), tried


@pytest.mark.parametrize("start", [3, 8, 32, 1000, 5000])
@pytest.mark.parametrize(
  "largest", [0, 1, 2, 3, 4, 7, 8, 15, 16, 88, 120, 1001, 4095, 4096, 9999]
)
def test_search_finds_the_largest(start, largest):
  batches = [1, 2, 4, *range(8, 4097, 8)]
  expected = max((b for b in batches if b <= largest), default=0)
  found, tried = search(largest, start)
  assert found == expected
  # Doubling from 8 to 4096, or halving back, then bisection.
  assert len(tried) <= 9 + 9


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
