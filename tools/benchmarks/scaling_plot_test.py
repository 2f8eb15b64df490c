"""Tests that every axis has its column, and every figure its row."""

from __future__ import annotations

import pytest
from matplotlib import pyplot

from tools.benchmarks import scaling_plot


def _point(axis, value, rates):
  return scaling_plot.Point(axis, value, rates, 3 * 2**29, 0.5 * value, 1e9)


def test_plot(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(pyplot, "close", drawn.append)
  path = tmp_path / "scaling.png"
  scaling_plot.plot(
    [
      _point("layers", 3, [10.0, 30.0, 20.0]),
      _point("batch", 1, [5.0]),
      _point("layers", 6, [8.0]),
    ],
    str(path),
  )
  assert path.read_bytes().startswith(b"\x89PNG")
  assert [p.name for p in tmp_path.iterdir()] == ["scaling.png"]
  axes = drawn[0].axes
  assert len(axes) == 6
  lines = [axis.lines[0].get_xydata().tolist() for axis in axes]
  assert lines[0] == [[3, 20], [6, 8]] and lines[1] == [[1, 5]]
  assert lines[2] == [[3, 1.5], [6, 1.5]] and lines[4] == [[3, 1.5], [6, 3]]
  assert [axis.get_xlabel() for axis in axes[-2:]] == ["layers", "batch"]
  ticks = [label.get_text() for label in axes[0].get_xticklabels()]
  assert ticks == ["3", "6"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
