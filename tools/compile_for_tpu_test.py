"""Tests of the program with a formula instead of the compiler."""

from __future__ import annotations

import json
import pathlib
import types

import pytest
from absl import flags
from absl.testing import flagsaver

from official_albert.tools import compile_for_tpu
from official_albert.tools.testing import many_commands
from official_albert.tools.tpu_compile import compiler, rows, trace


class _Cluster:
  def lower(self):
    return b"lowered"


def _run(line, **options) -> types.SimpleNamespace:
  """In place of the compiler's process: each token takes 1 MiB."""
  del options
  python, _, _, lowered, topology = line
  assert pathlib.Path(lowered).read_bytes() == b"lowered"
  assert python == "/venv/bin/python"
  kind, used = compiler.generation(topology), 20 * 512 * 2**20
  available = round(kind.hbm_gib * 2**30)
  answer = {"fits": used <= available, "used": used, "available": available}
  answer |= {"devices": 4, "seconds": 3.0, "flops": 7e11}
  out = f"noise\n{json.dumps(answer)}\n"
  return types.SimpleNamespace(returncode=0, stdout=out)


@pytest.fixture
def program(monkeypatch, capsys, own_flags):
  """Runs the program with a command line; returns the cells of its rows."""
  own_flags(compile_for_tpu)
  monkeypatch.setattr(trace, "trace_step", lambda step: _Cluster())
  monkeypatch.setattr(rows.subprocess, "run", _run)
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
    "batch a device": "20",
    "topology": "v3:2x2, 4 devices",
    "HBM used": "10.00 GiB",
    "of": "15.48 GiB",
    "TFLOP": "0.70",
    "compiled in": "3 s",
    "fits": "yes",
  }
  # Every generation by default.
  assert [row["fits"] for row in found] == ["no"] + ["yes"] * 5
  # Settings of a step are named, and other rows follow.
  config = tmp_path / "mine.json"
  config.write_text('{"vocab_size": 97, "max_position_embeddings": 64}')
  (row,) = program(
    *(f"--albert_config_file={config}", "--max_seq_length=64"),
    *("--gradient_accumulation_steps=4", "--recompute_activations"),
    *("--topology=v3:2x2", "--task=regression", f"--output_file={path}"),
  )
  assert row["model"] == "mine, recomputed, 4 micro-batches"
  assert row["task"] == "regression" and not row["TFLOP"]
  names = [json.loads(line)["name"] for line in path.open()]
  assert names == ["albert_base_v2"] * 6 + ["mine"]


_TINY = "--preset=albert_tiny"
_WRONG = (
  ([], "set either --preset or --albert_config_file"),
  ([_TINY, "--max_seq_length=513"], "from 3 to 512"),
  ([_TINY, "--gradient_accumulation_steps=3"], "32 cannot be cut into 3"),
  ([_TINY, "--topology=v9:2x2"], "unknown topology 'v9:2x2'"),
  # Before minutes of work.
  ([_TINY, "--output_file=/proc/x/rows.jsonl"], "/proc/x: make it"),
  # Numbers out of range are bad flags, as in all programs.
  ([_TINY, "--batch_size=0"], "batch_size is 0, but must be from 1", 2),
  ([_TINY, "--max_seq_length=x"], "=x: invalid literal", 2),
)


def test_wrong_flags():
  results = many_commands.check_refusals("compile_for_tpu", _WRONG)
  assert not any(result.out for result in results)


@pytest.mark.parametrize(
  "script, message",
  [
    ("echo why >&2; exit 1", "compiling for v3:2x2 failed: why"),
    ("kill -9 $$", "it was killed, perhaps because"),
  ],
)
def test_a_failure_of_the_compiler_is_named(tmp_path, script, message):
  python = tmp_path / "python"
  python.write_text(f"#!/bin/sh\n{script}\n")
  python.chmod(0o755)
  made = rows.Step({"max_position_embeddings": 512}, batch_size=3)
  with pytest.raises(ValueError, match=message):
    rows.compile_row("x", made, "FILE", "v3:2x2", str(python))
