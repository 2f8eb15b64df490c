"""Tests of rows, with fake processes instead of the compiler."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import pytest

from official_albert import modeling
from official_albert.tools.tpu_compile import compiler, rows
from official_albert.tools.tpu_compile import step as step_lib

_CONFIG = modeling.AlbertConfig.from_preset("albert_tiny").to_dict()
_GIB = 2**30


def make_row(batch=8, topology="v3:2x2", used=3.25, fits=True, **changes):
  step = step_lib.Step(_CONFIG, batch_size=batch, **changes)
  answer = compiler.Compiled(
    devices=8,
    device_kind="TPU v3",
    fits=fits,
    used=round(used * _GIB),
    available=round(15.48 * _GIB),
    flops=9.4476e12 if fits else 0.0,
    seconds=43.8,
  )
  return rows.Row("tiny", step, topology, answer)


def test_a_step_is_lowered_once(monkeypatch, tmp_path):
  row, commands = make_row(), []

  def run(command, what):
    commands.append((command[0], command[2], *command[4:]))
    if "lowering" in what:
      assert step_lib.Step(**json.loads(command[3])) == row.step
      pathlib.Path(command[-1]).write_text("lowered")
      return ""
    return f"a note\n{json.dumps(dataclasses.asdict(row.compiled))}\n"

  monkeypatch.setattr(rows, "_run", run)
  for topology in ("v3:2x2", "v2:2x2"):
    made = rows.compile_row(
      "tiny", row.step, topology, "/python", str(tmp_path)
    )
    assert made == dataclasses.replace(row, topology=topology)
  lowered = f"{tmp_path}/8.hlo"
  assert commands == [
    (sys.executable, "official_albert.tools.tpu_compile.step", lowered),
    ("/python", "official_albert.tools.tpu_compile.compiler", "v3:2x2"),
    ("/python", "official_albert.tools.tpu_compile.compiler", "v2:2x2"),
  ]


def test_operations_in_a_loop_are_not_shown():
  once, repeated = (
    make_row(16, gradient_accumulation_steps=n).cells() for n in (1, 4)
  )
  column = rows.HEAD.index("TFLOP")
  assert (once[column], repeated[column]) == ("9.45", "")
  assert repeated[0] == "tiny, 4 micro-batches"


@pytest.mark.parametrize("start", [3, 8, 32, 1000, 5000])
@pytest.mark.parametrize(
  "largest", [0, 1, 2, 3, 4, 7, 8, 15, 16, 88, 120, 1001, 4095, 4096, 9999]
)
def test_search_finds_the_largest_batch(start, largest):
  tried = []

  def fits(batch):
    assert batch not in tried
    tried.append(batch)
    return batch <= largest

  batches = [1, 2, 4, *range(8, 4097, 8)]
  expected = max((b for b in batches if b <= largest), default=0)
  assert rows.largest_batch(fits, start) == expected
  # Doubling from 8 to 4096, or halving back, then bisection.
  assert len(tried) <= 9 + 9


def test_rows_are_read_back(tmp_path):
  path = tmp_path / "rows.jsonl"
  assert rows.read(str(path)) == {}
  made = [make_row(8), make_row(16, used=5.0)]
  rows.write(str(path), made)
  assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]
  text = f"{made[0].to_json()}\n{made[1].to_json()}\n"
  assert path.read_text() == text
  path.write_text(text[:-1])  # The last line break is not needed.
  assert rows.read(str(path)) == {row.key: row for row in made}
  # Equal steps and topologies have equal keys.
  others = make_row(16, "v2:2x2"), make_row(16, optimizer="adamw"), *made
  assert len({row.key for row in others}) == 4
  named = dataclasses.replace(made[0], name="mine")
  assert named.key == made[0].key


@pytest.mark.parametrize("line", [1, 2])
@pytest.mark.parametrize("content", [b"no JSON\n", b'{"name": "x"}', b"\xfb"])
def test_another_file_is_not_touched(tmp_path, content, line):
  path = tmp_path / "rows.jsonl"
  content = (make_row().to_json() + "\n").encode() * (line - 1) + content
  path.write_bytes(content)
  message = rf"rows.jsonl, line {line}: not a row .*: choose .* or a new"
  with pytest.raises(ValueError, match=message):
    rows.read(str(path))
  assert path.read_bytes() == content
