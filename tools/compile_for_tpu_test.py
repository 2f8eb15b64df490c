"""The program with a compiler made up of a formula."""

from __future__ import annotations

import pytest
from absl import flags
from absl.testing import flagsaver

# First, because only the first import of a program defines its flags.
if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))

from tools import compile_for_tpu
from tools.testing import many_commands
from tools.tpu_compile import compiler, environment, processes, rows

_GIB = 2**30
# The program's own, which test files that are imported later make absl forget.
_FLAGS = {
  flag.name: flag
  for flag in flags.FLAGS.flags_by_module_dict()[compile_for_tpu.__name__]
}


class _StepCompiler:
  """Each token takes a MiB, half of it if it is computed again."""

  def __init__(self, python, store):
    assert python == "/venv/bin/python"
    self._store = store

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    pass

  def compile(self, name, step, topology):
    kind = compiler.generation(topology)
    used = step.batch_size * step.max_seq_length * 2**20
    if step.recompute_activations:
      used //= 2
    available = round(kind.hbm_gib * _GIB)
    answer = compiler.Compiled(
      4, kind.device, used <= available, used, available
    )
    row = rows.Row(name, step, topology, answer)
    self._store.add(row)
    return row


@pytest.fixture
def program(monkeypatch, capsys):
  """Runs it with a command line; returns the lines that it prints."""
  for name, flag in _FLAGS.items():
    monkeypatch.setitem(flags.FLAGS._flags(), name, flag)
  monkeypatch.setattr(processes, "StepCompiler", _StepCompiler)
  monkeypatch.setattr(environment, "make", lambda folder: "/venv/bin/python")

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


def test_one_row(program):
  lines = program("--preset=albert_base_v2", "--topology=v3:2x2")
  assert len(lines) == 3
  cells = dict(zip(_cells(lines[0]), _cells(lines[2])))
  assert cells == {
    "model": "albert_base_v2",
    "task": "pretraining",
    "S": "512",
    "batch": "32 a core",
    "topology": "v3:2x2, 4 cores",
    "HBM used": "16.00 GiB",
    "of": "15.48 GiB",
    "TFLOP": "",
    "compiled in": "0 s",
    "fits": "no",
  }


def test_every_generation_by_default(program):
  lines = program("--preset=albert_base_v2", "--batch_size=20")
  assert [_cells(line)[-1] for line in lines[2:8]] == (
    ["no", "yes", "yes", "yes", "yes", "yes"]
  )
  assert _cells(lines[-1]) == (
    ["albert_base_v2", "512", "20", "no: 10.00", *["10.00"] * 5]
  )


def test_recompute_shows_both(program):
  lines = program(
    "--preset=albert_base_v2",
    "--recompute",
    "--topology=v3:2x2",
    "--topology=v3:2x2",  # Named twice, compiled once.
  )
  assert [_cells(line)[0] for line in lines[2:4]] == (
    ["albert_base_v2", "albert_base_v2, recomputed"]
  )
  assert lines[4] == ""
  assert [_cells(line)[3] for line in lines[-2:]] == ["no: 16.00", "8.00"]


def test_find_batch(program):
  lines = program(
    "--preset=albert_base_v2", "--topology=v3:2x2", "--find_batch"
  )
  # 15.48 GiB hold 30.96 sequences of half a GiB.
  tried = [_cells(line)[3] for line in lines if "v3:2x2, 4" in line]
  assert tried == ["32 a core", "16 a core", "24 a core"]
  assert "largest on v3:2x2: 24 a core" in lines
  assert _cells(lines[-1]) == ["albert_base_v2", "512", "24 (12.00)"]


def test_a_table_of_all_sizes(program, tmp_path):
  path = tmp_path / "rows.jsonl"
  lines = program(
    "--table", "--topology=v5e:2x2", "--batch_size=8", f"--output_file={path}"
  )
  table = lines[lines.index("") + 1 :]
  assert len(table) == 2 + 4 * 2
  assert _cells(table[2]) == ["albert_base_v2", "128", "8", "1.00"]
  assert _cells(table[-1]) == ["albert_xxlarge_v2", "512", "8", "4.00"]
  assert len(path.read_text().splitlines()) == 8


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
  assert [row.step.config["hidden_dropout_prob"] for row in made] == (
    [0.1, 0.2, 0.0]
  )
  assert [row.name for row in made] == (
    ["albert_base_v1", "albert_base_v2", "mine"]
  )
  assert made[2].step.config["vocab_size"] == 97


_WRONG = {
  "unknown preset 'albert_huge'": ["--preset=albert_huge"],
  "set either --preset or --albert_config_file": [],
  "--table has models of its own": ["--table", "--preset=albert_base_v2"],
  "choose one of v2:2x2, v3:2x2": ["--preset=albert_tiny", "--topology=v9:2x2"],
  "malformed topology 'v4:2x2'": ["--preset=albert_tiny", "--topology=v4:2x2"],
  "batch_size must be at least 1, got 0": (
    ["--preset=albert_tiny", "--batch_size=0"]
  ),
  "513 is more than the model's 512": (
    ["--preset=albert_tiny", "--max_seq_length=513"]
  ),
  "unknown task 'glue'": ["--preset=albert_tiny", "--task=glue"],
  "hidden_dropout_prob must be in [0, 1)": (
    ["--preset=albert_tiny", "--dropout=1"]
  ),
}


def test_wrong_flags(tmp_path):
  venv = tmp_path / "venv"
  lines = [[*line, f"--venv={venv}"] for line in _WRONG.values()]
  results = many_commands.run("compile_for_tpu", lines)
  for message, result in zip(_WRONG, results):
    assert result.code == 1 and result.out == ""
    assert message in result.err and result.err.count("\n") == 1
  assert not venv.exists()
