"""Test of the benchmark, at a size that takes no time."""

from __future__ import annotations

import pytest

from official_albert.tools.testing import many_commands


@pytest.mark.heavy
def test_there_and_back():
  (result,) = many_commands.run(
    "benchmarks.conversion", [["--preset=albert_tiny"]]
  )
  assert result.code == 0, result.err
  # 4.2 M: 30,000 pieces of width 128, and little else.
  assert result.out.startswith("albert_tiny: 4,")
  for target in ("to official_albert: ", "to hf: ", "to tf1: "):
    assert target in result.out
  assert "there and back: largest difference 0\n" in result.out
