"""Tests that the plot of peers is drawn, with all its labels."""

from __future__ import annotations

import pytest
from matplotlib import pyplot

from tools.benchmarks.peers import plot as peer_plot
from tools.benchmarks.peers import results as peer_results
from tools.benchmarks.peers import results_test as peer_results_test


@pytest.mark.parametrize("count", [1, 3])
def test_plot(tmp_path, count, monkeypatch):
  drawn = []
  monkeypatch.setattr(pyplot, "close", drawn.append)
  comparisons = [
    peer_results_test.make("float32", batch_size)
    for batch_size in range(1, count + 1)
  ]
  path = tmp_path / "peers.png"
  peer_plot.plot(comparisons, str(path))
  assert (
    path.read_bytes().startswith(b"\x89PNG") and len(path.read_bytes()) > 5000
  )
  assert [p.name for p in tmp_path.iterdir()] == ["peers.png"]
  axes = [axis for axis in drawn[0].axes if axis.axison]
  assert len(axes) == count
  # The fastest is on top; a system that failed has no bar.
  names = [label.get_text() for label in axes[0].get_yticklabels()]
  assert names == ["other", peer_results.OURS]
  assert [bar.get_width() for bar in axes[0].patches] == [100, 220]
  assert {text.get_text() for text in axes[0].texts} == {"100", "220"}
  assert (
    axes[-1].get_title(loc="left") == f"albert_tiny, S 7, B {count}, float32"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
