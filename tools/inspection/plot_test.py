"""Tests of the figures, and of what is drawn in them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from official_albert.tools.inspection import plot


@pytest.fixture
def drawn(monkeypatch):
  """The figures that the test has drawn."""
  figures, save = [], Figure.savefig

  def keep(figure, path, **unused):
    figures.append(figure)
    save(figure, path, format="png", dpi=40)

  monkeypatch.setattr(Figure, "savefig", keep)
  return figures


def test_curves_and_labels(tmp_path, drawn):
  layers = np.array([[5, 0], [6, 10], [7, 20], [8, 30]])
  path = tmp_path / "a.png"
  plot.plot_similarity({"$shared_$1": layers, "none": layers[:3]}, str(path))
  assert path.read_bytes().startswith(b"\x89PNG")
  distance, angle = drawn[0].axes
  assert [line.get_xdata()[-1] for line in distance.lines] == [4, 3]
  assert distance.lines[0].get_ydata().tolist() == [5, 6, 7, 8]
  assert angle.lines[1].get_ydata().tolist() == [0, 10, 20]
  legend = [text.get_text() for text in angle.get_legend().get_texts()]
  assert legend == ["$shared_$1", "none"]


def test_a_run_without_evaluations(tmp_path, drawn):
  record = {"kind": "train", "step": 7, "masked_lm_loss": 9}
  (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
  plot.plot_curves(str(tmp_path), f"{tmp_path}/a.png")
  losses = [line.get_ydata().tolist() for line in drawn[0].axes[0].lines]
  assert losses == [[9], []]  # Of training and of held-out records.
