"""Tests of topologies, and of the TPU's compiler where it is installed.

`make test-tpu-compile` installs it and runs the tests that are skipped without.
"""

from __future__ import annotations

import dataclasses
import os
import types
from typing import Any
from unittest import mock

import pytest

from official_albert import files, machine
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_models
from official_albert.tools.tpu_compile import compiler, rows, trace

_SIZES = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40}
_CONFIG = toy_models.config(97, 512, num_hidden_layers=1, **_SIZES)


@pytest.mark.parametrize("name", compiler.GENERATIONS)
def test_topologies(name):
  kind = compiler.GENERATIONS[name]
  assert compiler.generation(kind.topology) is kind
  shape = kind.topology.partition(":")[2]
  assert compiler.generation(f"{name}:{shape.replace('2', '16')}") is kind
  for wrong in (f"{kind.topology}x2", f"{name}-8", "v9:2x2"):
    with pytest.raises(ValueError, match=f"{wrong}'; choose one of v2:2x2, "):
      compiler.generation(wrong)


@pytest.mark.parametrize("temporary, fits", [(12, True), (15, False)])
def test_memory_of_a_program(temporary, fits):
  memory = types.SimpleNamespace(
    argument_size_in_bytes=3 * 2**30,
    output_size_in_bytes=2 * 2**30,
    alias_size_in_bytes=2 * 2**30 - 5,
    temp_size_in_bytes=temporary * 2**30,
    generated_code_size_in_bytes=7,
    peak_memory_in_bytes=11,
  )
  counted = compiler.memory_of(memory, compiler.GENERATIONS["v3"])
  assert counted == {
    "fits": fits,
    "used": (3 + temporary) * 2**30 + 12,
    "available": round(15.48 * 2**30),
    "arguments": 3 * 2**30,
    "aliased": 2 * 2**30 - 5,
    "temporary": temporary * 2**30,
    "peak": 11,
  }


def test_calls_become_sums_over_replicas():
  call = (
    "    %7 = stablehlo.custom_call @official_albert.all_reduce(%6) "
    "{api_version = 2 : i32} : (tensor<5x3xf32>) -> tensor<5x3xf32>\n"
  )
  other = call.replace("5x3xf32", "bf16")
  other = other.replace("@official", '@"official').replace("e(", 'e"(')
  text = compiler.prepare_for_tpu(f"a\n{call}b\n{other * 2}", 4)
  assert "custom_call" not in text
  assert text.startswith('a\n    %7 = "stablehlo.all_reduce"(%6) <{')
  assert "dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>" in text
  assert "^bb0(%lhs: tensor<f32>, %rhs: tensor<f32>):" in text
  assert "}) : (tensor<5x3xf32>) -> tensor<5x3xf32>\nb\n" in text
  assert text.count("stablehlo.return %sum : tensor<bf16>") == 2
  assert text.count("(tensor<bf16>) -> tensor<bf16>") == 2


def test_copies_are_replaced_and_other_uses_refused():
  text = "  %3 = mhlo.copy %2#1 : tensor<9x4xbf16>\n"
  assert compiler.prepare_for_tpu(text, 2) == (
    "  %3 = stablehlo.reshape %2#1 : (tensor<9x4xbf16>) -> tensor<9x4xbf16>\n"
  )
  for name in ("mhlo.copy", "official_albert.all_reduce"):
    with pytest.raises(ValueError, match=f"not supported: %3 = x {name}"):
      compiler.prepare_for_tpu(f"a\n  %3 = x {name} (%1, %2)\n", 2)


@pytest.mark.parametrize(
  "message, used, available",
  [
    ("Ran out of memory. Used 11.84G of 7.48G hbm.", 11.84, 7.48),
    (
      "the total memory required for HLO temporaries (174.00G) exceeds "
      "available HBM (15.75G).",
      *(174, 15.75),
    ),
    ("Used 1.5T of 800.00M hbm", 1536, 800 / 1024),
    ("INTERNAL: Used 3G of patience", 0, 0),
  ],
)
def test_out_of_memory(message, used, available):
  found = compiler.parse_out_of_memory(f"RESOURCE_EXHAUSTED: {message}")
  assert found == (round(used * 2**30), round(available * 2**30))


def compile_step(tmp_path, topology, **changes) -> dict[str, Any]:
  if not rows.VENV.exists():
    pytest.skip("make test-tpu-compile installs the TPU's compiler")
  step = rows.Step(**{"config": _CONFIG.to_dict(), **changes})
  python = rows.find_environment()
  with mock.patch.dict(os.environ):
    machine.leave_tpu()  # As `tools.compile_for_tpu` does.
    lowered = str(tmp_path / "step.hlo")
    files.write_bytes(lowered, trace.trace_step(step).lower())
    row = rows.compile_row("small", step, lowered, topology, python)
    return row["compiled"]


@pytest.mark.heavy
def test_a_small_model_fits(tmp_path):
  answer = compile_step(tmp_path, "v3:2x2", batch_size=8, max_seq_length=128)
  assert answer["fits"] and answer["device_kind"] == "TPU v3"
  assert answer["devices"] == 8  # Two cores on each of four chips.
  # A gradient for each variable, and eight numbers; see trace_test.py.
  model = model_lib.AlbertForPretraining(_CONFIG)
  assert answer["all_reduces"] == len(model.trainable_variables) + 8
  # Weights and moments are updated in place, and are nearly all of it.
  arguments, used = answer["arguments"], answer["used"]
  assert 0.9 * arguments < answer["aliased"] < arguments
  assert arguments >= 3 * 4 * _CONFIG.parameter_count()
  assert arguments + answer["temporary"] < 1.01 * used
  assert 0 < answer["peak"] < used < 2**28
  assert 15 < answer["available"] / 2**30 < 16
  # The matrix products alone need fewer operations.
  products = 8 * _CONFIG.pretraining_flops(128, 20)
  assert products < answer["flops"] < 3 * products


@pytest.mark.heavy
def test_a_large_batch_does_not_fit(tmp_path):
  # The last layer computes only the first position.
  config = dataclasses.replace(_CONFIG, num_hidden_layers=3).to_dict()
  answer = compile_step(
    *(tmp_path, "v5e:2x2"),
    config=config,
    task="classification",
    batch_size=2**14,
  )
  assert not answer["fits"] and answer["devices"] == 4
  # At least 3 * 512^2 scores of two bytes for each example.
  assert answer["used"] > 2 * 2**14 * 3 * 512**2
  expected = compiler.GENERATIONS["v5e"].hbm_gib
  assert answer["available"] / 2**30 == pytest.approx(expected, abs=0.01)
