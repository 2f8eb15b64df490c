"""Tests of compile_for_tpu.py with a formula instead of the compiler."""

from __future__ import annotations

import json

import pytest
from absl import flags
from absl.testing import flagsaver

from official_albert import modeling
from official_albert.tools import compile_for_tpu
from official_albert.tools.testing import many_commands
from official_albert.tools.tpu_compile import compiler, rows

_GIB = 2**30
# Test files that are imported later make absl forget the program's flags.
_FLAGS = {
  flag.name: flag
  for flag in flags.FLAGS.flags_by_module_dict()[compile_for_tpu.__name__]
}


def _compile_row(name, step, topology, python, folder):
  """Each token takes 1 MiB, or half of it if activations are recomputed."""
  assert python == "/venv/bin/python"
  kind = compiler.generation(topology)
  used = step.batch_size * step.max_seq_length * 2**20
  if step.recompute_activations:
    used //= 2
  available = round(kind.hbm_gib * _GIB)
  answer = compiler.Compiled(4, kind.device, used <= available, used, available)
  return rows.Row(name, step, topology, answer)


@pytest.fixture
def program(monkeypatch, capsys):
  """Runs the program with a command line; returns the lines that it prints."""
  for name, flag in _FLAGS.items():
    monkeypatch.setitem(flags.FLAGS._flags(), name, flag)
  monkeypatch.setattr(rows, "compile_row", _compile_row)
  monkeypatch.setattr(
    rows, "make_environment", lambda folder: "/venv/bin/python"
  )

  def run(*line: str) -> list[str]:
    saved = flagsaver.save_flag_values()
    try:
      flags.FLAGS(["compile_for_tpu", *line])
      compile_for_tpu.main([])
    finally:
      flagsaver.restore_flag_values(saved)
    return capsys.readouterr().out.splitlines()

  return run


def _cells(line: str) -> list[str]:
  return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_and_matrix(program):
  lines = program("--preset=albert_base_v2", "--batch_size=20", "--recompute")
  cells = dict(zip(_cells(lines[0]), _cells(lines[3])))
  assert cells == {
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
  fits = [_cells(line)[-1] for line in lines[2:8]]
  assert fits == ["no", "yes", "yes", "yes", "yes", "yes"]
  plain, recomputed = map(_cells, lines[-2:])
  assert plain[:3] == ["albert_base_v2", "512", "not 20 (10.00)"]
  assert plain[3:] == ["20 (10.00)"] * 5
  assert recomputed[0] == "albert_base_v2, recomputed"
  assert recomputed[2:] == ["20 (5.00)"] * 6


def test_find_batch(program):
  v3 = "--topology=v3:2x2"
  lines = program("--preset=albert_base_v2", v3, v3, "--find_batch")
  # 15.48 GiB hold 30.96 sequences of half a GiB.
  tried = [_cells(line)[3] for line in lines if "v3:2x2, 4" in line]
  assert tried == ["32 a core", "16 a core", "24 a core"]
  assert "largest on v3:2x2: 24 a core" in lines
  assert _cells(lines[-1]) == ["albert_base_v2", "512", "24 (12.00)"]


def test_a_table_of_all_sizes(program, tmp_path, monkeypatch):
  path = tmp_path / "rows.jsonl"
  lines = program(
    "--table", "--topology=v5e:2x2", "--batch_size=8", f"--output_file={path}"
  )
  table = lines[lines.index("") + 1 :]
  assert len(table) == 2 + 4 * 2
  assert _cells(table[2]) == ["albert_base_v2", "128", "8 (1.00)"]
  assert _cells(table[-1]) == ["albert_xxlarge_v2", "512", "8 (4.00)"]
  assert len(path.read_text().splitlines()) == 8

  # Stored rows are not compiled again, also not for a model of another name.
  def fail(*unused):
    raise AssertionError("compiled again")

  monkeypatch.setattr(rows, "compile_row", fail)
  line = ["--topology=v5e:2x2", "--batch_size=8", f"--output_file={path}"]
  assert program("--table", *line) == lines
  config = tmp_path / "mine.json"
  config.write_text(
    json.dumps(modeling.AlbertConfig.from_preset("albert_large_v2").to_dict())
  )
  assert "| mine | " in program(f"--albert_config_file={config}", *line)[2]


def test_parts_of_a_run(program):
  line = ["--preset=albert_base_v2", "--topology=v3:2x2"]
  for flag_values, name in (
    (["--mode=evaluation"], "evaluation"),
    (["--gradient_accumulation_steps=4"], "4 micro-batches"),
    (["--random_depths=3,12", "--task=regression"], "depths 3 12"),
  ):
    lines = program(*line, *flag_values)
    assert _cells(lines[2])[0] == f"albert_base_v2, {name}"


def test_models_and_dropout(program, tmp_path):
  path = tmp_path / "rows.jsonl"
  config = tmp_path / "mine.json"
  config.write_text('{"vocab_size": 97, "max_position_embeddings": 64}')
  for line in (
    ["--preset=albert_base_v1"],
    ["--preset=albert_base_v2", "--dropout=0.2"],
    [f"--albert_config_file={config}", "--max_seq_length=64"],
  ):
    program(*line, "--topology=v2:2x2", f"--output_file={path}")
  made = [rows.Row.from_json(text) for text in path.open()]
  dropout = [row.step.config["hidden_dropout_prob"] for row in made]
  assert dropout == [0.1, 0.2, 0.0]
  names = [row.name for row in made]
  assert names == ["albert_base_v1", "albert_base_v2", "mine"]
  assert made[2].step.config["vocab_size"] == 97


_TINY = "--preset=albert_tiny"
_WRONG = (
  (1, "set either --preset or --albert_config_file", []),
  (1, "--table has models of its own", ["--table", _TINY]),
  (1, "from 3 to 512, the model's", [_TINY, "--max_seq_length=513"]),
  (1, "pretraining predicts nothing", [_TINY, "--mode=prediction"]),
  (1, "32 cannot be cut into 3", [_TINY, "--gradient_accumulation_steps=3"]),
  (
    1,
    "fits as a micro-batch",
    [_TINY, "--gradient_accumulation_steps=2", "--find_batch"],
  ),
  (1, "must be positive integers", [_TINY, "--random_depths=2,x"]),
  (1, "batch_size is 0, but must be from 1", [_TINY, "--batch_size=0"]),
  # Before minutes of work.
  (1, "/proc/rows.jsonl", [_TINY, "--output_file=/proc/rows.jsonl"]),
)


def test_wrong_flags(tmp_path):
  venv = tmp_path / "venv"
  lines = [[*line, f"--venv={venv}"] for *_, line in _WRONG]
  results = many_commands.run("compile_for_tpu", lines)
  for (code, message, _), result in zip(_WRONG, results):
    assert result.code == code and result.out == ""
    assert message in result.err and result.err.count("\n") == 1
  assert not venv.exists()
