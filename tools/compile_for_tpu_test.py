"""Tests of the program with a formula instead of the compiler."""

from __future__ import annotations

import json

import pytest
from absl import flags
from absl.testing import flagsaver

from official_albert.tools import compile_for_tpu
from official_albert.tools.testing import many_commands
from official_albert.tools.tpu_compile import compiler, rows, step

_GIB = 2**30
# Test files that are imported later make absl forget the program's flags.
_FLAGS = {
  flag.name: flag
  for flag in flags.FLAGS.flags_by_module_dict()[compile_for_tpu.__name__]
}


class _Cluster:
  def lower(self):
    return b"lowered"


def _compile_row(name, step, lowered, topology, python):
  """Each token takes 1 MiB."""
  with open(lowered, "rb") as file:
    assert file.read() == b"lowered"
  assert python == "/venv/bin/python"
  kind = compiler.generation(topology)
  used = step.batch_size * step.max_seq_length * 2**20
  available = round(kind.hbm_gib * _GIB)
  answer = compiler.Compiled(4, kind.device, used <= available, used, available)
  return rows.Row(name, step, topology, answer)


@pytest.fixture
def program(monkeypatch, capsys):
  """Runs the program with a command line; returns the cells of its rows."""
  for name, flag in _FLAGS.items():
    monkeypatch.setitem(flags.FLAGS._flags(), name, flag)
  monkeypatch.setattr(step, "trace_step", lambda step: _Cluster())
  monkeypatch.setattr(rows, "compile_row", _compile_row)
  monkeypatch.setattr(rows, "find_environment", lambda: "/venv/bin/python")

  def run(*line: str) -> list[dict[str, str]]:
    with flagsaver.flagsaver():
      flags.FLAGS(["compile_for_tpu", *line])
      compile_for_tpu.main([])
    head, _, *others = (
      [cell.strip() for cell in line.strip("|").split("|")]
      for line in capsys.readouterr().out.splitlines()
    )
    return [dict(zip(head, cells)) for cells in others]

  return run


def test_rows(program, tmp_path):
  path = tmp_path / "rows.jsonl"
  found = program(
    *("--preset=albert_base_v2", "--batch_size=20", f"--output_file={path}")
  )
  assert found[1] == {
    "model": "albert_base_v2",
    "task": "pretraining",
    "S": "512",
    "batch": "20 a core",
    "topology": "v3:2x2, 4 cores",
    "HBM used": "10.00 GiB",
    "of": "15.48 GiB",
    "TFLOP": "",
    "compiled in": "0 s",
    "fits": "yes",
  }
  # Every generation by default.
  assert [row["fits"] for row in found] == ["no"] + ["yes"] * 5
  program(
    *("--preset=albert_base_v1", "--topology=v3:2x2", f"--output_file={path}")
  )
  made = [rows.Row.from_json(line) for line in path.open()]
  assert [row.name for row in made] == ["albert_base_v2"] * 6 + [
    "albert_base_v1"
  ]
  dropout = [row.step.config["hidden_dropout_prob"] for row in made]
  assert dropout == [0.0] * 6 + [0.1]


def test_parts_of_a_run_are_named(program, tmp_path):
  config = tmp_path / "mine.json"
  config.write_text('{"vocab_size": 97, "max_position_embeddings": 64}')
  for line, name in (
    (["--mode=evaluation"], "evaluation"),
    (["--gradient_accumulation_steps=4"], "4 micro-batches"),
    (["--random_depths=3,12", "--task=regression"], "depths 3 12"),
    (["--recompute_activations"], "recomputed"),
  ):
    given = [f"--albert_config_file={config}", "--max_seq_length=64", *line]
    (row,) = program(*given, "--topology=v3:2x2")
    assert row["model"] == f"mine, {name}"


_TINY = "--preset=albert_tiny"
_WRONG = (
  ([], "set either --preset or --albert_config_file"),
  ([_TINY, "--max_seq_length=513"], "from 3 to 512, the model's"),
  ([_TINY, "--mode=prediction"], "pretraining predicts nothing"),
  ([_TINY, "--gradient_accumulation_steps=3"], "32 cannot be cut into 3"),
  ([_TINY, "--random_depths=2,x"], "random_depths must be"),
  ([_TINY, "--topology=v9:2x2"], "unknown topology 'v9:2x2'"),
  # Before minutes of work.
  ([_TINY, "--output_file=/proc/x/rows.jsonl"], "/proc/x: make it"),
  # Numbers out of range are bad flags, as in all programs.
  ([_TINY, "--batch_size=0"], "--batch_size=0: must be from 1", 2),
  ([_TINY, "--max_seq_length=x"], "=x: invalid literal", 2),
)


def test_wrong_flags():
  results = many_commands.check_refusals("compile_for_tpu", _WRONG)
  assert not any(result.out for result in results)


def _run_compiler(tmp_path, script: str) -> rows.Row:
  """Compiles by a shell script in place of the interpreter."""
  python = tmp_path / "python"
  python.write_text(f"#!/bin/sh\n{script}\n")
  python.chmod(0o755)
  made = rows.Step({"max_position_embeddings": 512}, batch_size=3)
  return rows.compile_row("x", made, "FILE", "v3:2x2", str(python))


def test_the_compiler_is_a_process(tmp_path):
  answer = compiler.Compiled(8, "TPU v3", True, 5, 7).__dict__
  script = f"test $3 = FILE && echo noise && echo '{json.dumps(answer)}'"
  row = _run_compiler(tmp_path, script)
  assert row.compiled == compiler.Compiled(**answer)
  assert rows.Row.from_json(row.to_json()) == row
  for script, message in (
    ("echo why >&2; exit 1", "compiling for v3:2x2 failed: why"),
    ("kill -9 $$", "signal 9 ended the process, perhaps because"),
  ):
    with pytest.raises(ValueError, match=message):
      _run_compiler(tmp_path, script)
