"""Topologies; and the TPU's compiler itself, where it is installed.

`make test-tpu-compile` installs it and runs what else is skipped.
"""

from __future__ import annotations

import dataclasses
import re
import types

import pytest

from official_albert import modeling
from tasks import pretraining
from tools.tpu_compile import compiler as tpu_compiler
from tools.tpu_compile import environment as tpu_venv
from tools.tpu_compile import rows as tpu_rows
from tools.tpu_compile import step as tpu_step
from tools.tpu_compile import witness as tpu_witness

_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=24,
  num_hidden_layers=1,
  num_attention_heads=3,
  intermediate_size=40,
  max_position_embeddings=512,
)


@pytest.mark.parametrize(
  "topology, device, gib",
  [("v2:2x2", "core", 7.48), ("v3:16x8", "core", 15.48)]
  + [("v4:2x2x4", "chip", 30.75), ("v6e:4x4", "chip", 31.25)],
)
def test_generation(topology, device, gib):
  kind = tpu_compiler.generation(topology)
  assert (kind.device, kind.hbm_gib) == (device, gib)


@pytest.mark.parametrize("name", tpu_compiler.GENERATIONS)
def test_topologies_to_choose_from_are_well_formed(name):
  kind = tpu_compiler.GENERATIONS[name]
  assert tpu_compiler.generation(kind.topology) is kind
  with pytest.raises(ValueError, match=f"as in {re.escape(kind.topology)}"):
    tpu_compiler.generation(f"{kind.topology}x2")


@pytest.mark.parametrize("topology", ["", "v9:2x2", "2x2", "v3-8"])
def test_unknown_topology(topology):
  with pytest.raises(ValueError, match="choose of v2:2x2, v3:2x2, v4:2x2x1"):
    tpu_compiler.generation(topology)


@pytest.mark.parametrize("shape", ["", ":", ":2", ":0x2", ":2x2x2", ":axb"])
def test_malformed_topology(shape):
  with pytest.raises(ValueError, match="malformed topology .*v3 has 2 dimens"):
    tpu_compiler.generation(f"v3{shape}")


@pytest.mark.parametrize("temporary, fits", [(12, True), (15, False)])
def test_account(temporary, fits):
  memory = types.SimpleNamespace(
    argument_size_in_bytes=3 * 2**30,
    output_size_in_bytes=2 * 2**30,
    alias_size_in_bytes=2 * 2**30 - 5,
    temp_size_in_bytes=temporary * 2**30,
    generated_code_size_in_bytes=7,
    peak_memory_in_bytes=11,
  )
  counted = tpu_compiler.account(memory, tpu_compiler.GENERATIONS["v3"])
  assert counted == {
    "fits": fits,
    "used": (3 + temporary) * 2**30 + 12,
    "available": round(15.48 * 2**30),
    "arguments": 3 * 2**30,
    "aliased": 2 * 2**30 - 5,
    "temporary": temporary * 2**30,
    "peak": 11,
  }


@pytest.fixture(scope="module")
def witness():
  if not tpu_venv.is_complete(tpu_venv.FOLDER):
    pytest.skip("make test-tpu-compile installs the TPU's compiler")
  with tpu_witness.Witness(
    tpu_venv.python_of(tpu_venv.FOLDER), tpu_rows.Store()
  ) as witness:
    yield witness


@pytest.mark.heavy
def test_a_small_model_fits(witness):
  step = tpu_step.Step(_CONFIG.to_dict(), batch_size=8, max_seq_length=128)
  answer = witness.ask("small", step, "v3:2x2").compiled
  assert answer.fits and answer.device_kind == "TPU v3"
  assert answer.devices == 8  # Two cores on each of four chips.
  # A gradient for each variable, and eight numbers; see tpu_step_test.py.
  variables = len(tpu_step.make_task(step).build_model().trainable_variables)
  assert answer.all_reduces == variables + 8
  # Weights and moments are updated where they are, and are nearly all of it.
  assert 0.9 * answer.arguments < answer.aliased < answer.arguments
  assert answer.arguments >= 3 * 4 * _CONFIG.parameter_count()
  assert answer.arguments + answer.temporary < 1.01 * answer.used
  assert 0 < answer.peak < answer.used < 2**28
  assert 15 < answer.available / 2**30 < 16
  # The products alone are fewer; what is between them is counted too.
  products = 8 * pretraining.training_flops(_CONFIG, 128, 20)
  assert products < answer.flops < 3 * products


@pytest.mark.heavy
def test_a_large_batch_does_not(witness):
  # Of the last layer only the first position is computed.
  config = dataclasses.replace(_CONFIG, num_hidden_layers=3)
  step = tpu_step.Step(
    config.to_dict(), task="classification", batch_size=2**14
  )
  answer = witness.ask("small", step, "v5e:2x2").compiled
  assert not answer.fits and answer.devices == 4
  # 3 * 512^2 scores of two bytes for each example, at the least.
  assert answer.used > 2 * 2**14 * 3 * 512**2
  expected = tpu_compiler.GENERATIONS["v5e"].hbm_gib
  assert answer.available / 2**30 == pytest.approx(expected, abs=0.01)


@pytest.mark.heavy
def test_a_shape_that_no_tpu_has(witness):
  step = tpu_step.Step(_CONFIG.to_dict(), batch_size=1, max_seq_length=8)
  small = dataclasses.replace(step, task="classification")
  with pytest.raises(ValueError, match="does not know the topology v3:3x3"):
    witness.ask("small", small, "v3:3x3")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
