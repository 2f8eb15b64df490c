"""Tests of the figures, and of what is drawn in them."""

from __future__ import annotations

import io
import json
import warnings

import numpy as np
import pytest
from matplotlib import pyplot

from official_albert import training
from tools.inspection import plot as inspection_plot


@pytest.fixture
def drawn(monkeypatch):
  """The figures, open until the end of the test."""
  figures = []

  def save(figure, path, **unused):
    figures.append(figure)
    figure.savefig(path, format="png", dpi=40)

  monkeypatch.setattr(inspection_plot.printing, "save_figure", save)
  yield figures
  for figure in figures:
    pyplot.close(figure)


def _layers(count):
  return [
    {"layer": i + 1, "l2_distance": 5.0 + i, "degrees": 10.0 * i}
    for i in range(count)
  ]


def test_both_curves_of_every_model(tmp_path, drawn):
  series = {"$shared_$1": _layers(4), "_none": _layers(3)}
  path = tmp_path / "a.png"
  inspection_plot.plot_similarity(series, str(path))
  assert path.read_bytes().startswith(b"\x89PNG")
  distance, angle = drawn[0].axes
  assert [line.get_xdata()[-1] for line in distance.lines] == [4, 3]
  assert distance.lines[0].get_ydata().tolist() == [5, 6, 7, 8]
  assert angle.lines[1].get_ydata().tolist() == [0, 10, 20]
  legend = [text.get_text() for text in angle.get_legend().get_texts()]
  assert legend == ["$shared_$1", "\u200b_none"]


def test_pieces_are_on_the_axes(tmp_path, drawn):
  rng = np.random.default_rng(1)
  maps = [rng.uniform(size=[3, 4, 4]) for _ in range(2)]
  pieces = ["[CLS]", "▁a$", "$", "[SEP]"]
  path = tmp_path / "a.png"
  inspection_plot.plot_attention(maps, pieces, "title $", str(path))
  assert path.read_bytes().startswith(b"\x89PNG")
  (axis,) = drawn[0].axes
  assert [x.get_text() for x in axis.get_xticklabels()] == pieces * 3
  assert [x.get_text() for x in axis.get_yticklabels()] == pieces * 2
  assert axis.get_yticks().tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
  texts = [text.get_text() for text in axis.texts]
  assert texts == ["head 1", "head 2", "head 3", "layer 1", "layer 2"]


def test_missing_glyphs_are_drawn_as_boxes(tmp_path):
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    inspection_plot.plot_attention(
      [np.full([1, 2, 2], 0.5)], ["中", "文"], "中", str(tmp_path / "a.png")
    )


@pytest.mark.parametrize("pair", [True, False])
def test_curves_of_a_run(tmp_path, pair):
  lines = []
  for step in (10, 20, 30):
    for kind in ("train", "eval"):
      record = {"kind": kind, "step": step, "masked_lm_loss": 7 - step / 10}
      record["masked_lm_accuracy"] = step / 100
      if pair:
        record["sentence_order_accuracy"] = 0.5 + step / 100
      lines.append(json.dumps(record) + "\n")
  (tmp_path / training.METRICS_FILE).write_text("".join(lines))
  before = pyplot.get_fignums()
  path = tmp_path / "curves.png"
  inspection_plot.plot_curves(str(tmp_path), str(path), 6.3)
  image = pyplot.imread(io.BytesIO(path.read_bytes()))
  assert image.shape[0] > 300 and image.shape[1] > 1000
  # Three panels with lines are neither blank nor black.
  assert 0.5 < image[..., :3].mean() < 0.99
  assert pyplot.get_fignums() == before


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
