"""Tests of one small measurement, and of a table's line."""

from __future__ import annotations

import pytest

from tools.benchmarks import memory as benchmark_memory


@pytest.mark.heavy
def test_a_step_is_measured():
  measured = benchmark_memory.in_a_process(
    benchmark_memory.Settings("albert_tiny", 2, 13, steps=1)
  )
  assert 2**26 < measured.start_bytes < measured.peak_bytes < 2**33
  assert 0 < measured.step_seconds < 60 and measured.step_cpu_seconds > 0


def test_a_failed_measurement_is_an_error():
  with pytest.raises(ValueError, match="float8, failed with exit code 1"):
    benchmark_memory.in_a_process(
      benchmark_memory.Settings("albert_tiny", 2, 13, "float8")
    )


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"preset": "nope"}, "unknown preset 'nope'"),
    ({"precision": "bf16"}, "unknown precision 'bf16'"),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ({"max_seq_length": 513}, "takes at most 512 tokens, not 513"),
  ],
)
def test_nothing_is_started_with_wrong_settings(
  monkeypatch, capsys, changes, message
):
  monkeypatch.setattr(benchmark_memory, "in_a_process", None)
  with pytest.raises(ValueError, match=message):
    benchmark_memory.run(benchmark_memory.Settings(**changes))
  assert not capsys.readouterr().out


@pytest.mark.heavy
def test_recomputation_saves_memory():
  """Four layers whose attention alone is 8 x 4 x 512 x 512 numbers."""
  plain, recomputed = (
    benchmark_memory.in_a_process(
      benchmark_memory.Settings(
        "albert_tiny", 8, 512, steps=1, recompute_activations=recompute
      )
    )
    for recompute in (False, True)
  )
  saved = plain.peak_bytes - recomputed.peak_bytes
  assert saved > 0.2 * (plain.peak_bytes - plain.start_bytes)


def test_row():
  measured = benchmark_memory.Measured(2**29, 3 * 2**30, 1.25, 2.0)
  assert benchmark_memory.row("xla", measured) == (
    *("xla", "0.50 GiB", "3.00 GiB", "1.25", "2.00"),
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
