"""Tests that the figures have all their panels and labels."""

from __future__ import annotations

import pytest
from matplotlib import pyplot

from tools.benchmarks import comparison, comparison_test, plots, step


def _point(axis, value, rates):
  return step.Point(axis, value, rates, 3 * 2**29, 0.5 * value, 1e9)


def test_scaling(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(pyplot, "close", drawn.append)
  path = tmp_path / "scaling.png"
  plots.draw_scaling(
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


@pytest.mark.parametrize("count", [1, 3])
def test_peers(tmp_path, count, monkeypatch):
  drawn = []
  monkeypatch.setattr(pyplot, "close", drawn.append)
  comparisons = [
    comparison_test.make("float32", batch_size)
    for batch_size in range(1, count + 1)
  ]
  path = tmp_path / "peers.png"
  plots.draw_peers(comparisons, str(path))
  assert (
    path.read_bytes().startswith(b"\x89PNG") and len(path.read_bytes()) > 5000
  )
  assert [p.name for p in tmp_path.iterdir()] == ["peers.png"]
  axes = [axis for axis in drawn[0].axes if axis.axison]
  assert len(axes) == count
  # The fastest is on top; a system that failed has no bar.
  names = [label.get_text() for label in axes[0].get_yticklabels()]
  assert names == ["other", comparison.OURS]
  assert [bar.get_width() for bar in axes[0].patches] == [100, 220]
  assert {text.get_text() for text in axes[0].texts} == {"100", "220"}
  assert (
    axes[-1].get_title(loc="left") == f"albert_tiny, S 7, B {count}, float32"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
