"""Tests of the picture: four panels with what was counted, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tools.cli.figures import pyplot
from tools.records import record_plot, record_survey


def _survey(masked=True):
  survey = record_survey.Survey(133, tokenizer=None)
  survey.counts.instances, survey.counts.label_1 = 40, 13
  survey.lengths[[17, 133]] = 10, 30
  if masked:
    survey.positions[1:130:3] = 5
    survey.run_words[1:5] = 60, 30, 20, 3
  return survey


@pytest.fixture
def axes(monkeypatch):
  """The panels of the figure that was written last."""
  found = []
  close = record_plot.pyplot.close

  def keep(figure):
    found[:] = figure.axes
    close(figure)

  monkeypatch.setattr(record_plot.pyplot, "close", keep)
  return found


def test_four_panels(tmp_path, axes):
  path = tmp_path / "a.png"
  shares = {"train": {"1": 0.6, "2": 0.3, "3": 0.1}}
  surveys = {"train": _survey(), "heldout": _survey()}
  record_plot.plot(surveys, str(path), shares)
  image = pyplot.imread(str(path))
  assert image.shape[0] > 500 and image.shape[1] > 1000
  assert 0.5 < image[..., :3].mean() < 0.99  # Neither blank nor black.
  assert [p.name for p in tmp_path.iterdir()] == ["a.png"]

  lengths, positions, words, labels = axes
  # 134 lengths in bins of three: 17 is in the sixth, 133 in the last.
  shares = lengths.patches[0].get_data().values
  assert len(shares) == 45
  assert (shares[5], shares[44]) == (10 / 40, 30 / 40)
  assert lengths.lines[0].get_xdata()[0] == (10 * 17 + 30 * 133) / 40
  np.testing.assert_allclose(positions.patches[0].get_data().values.sum(), 1)
  heights = [bar.get_height() for bar in words.patches[:4]]
  np.testing.assert_allclose(heights, np.array([60, 30, 20, 3]) / 113)
  assert words.lines[0].get_ydata().tolist() == [0.6, 0.3, 0.1]
  assert [t.get_text() for t in labels.texts] == ["27", "13"] * 2


def test_records_without_masks(tmp_path, axes):
  surveys = {"files": _survey(masked=False)}
  record_plot.plot(surveys, str(tmp_path / "a.png"), {})
  texts = [[t.get_text() for t in axis.texts] for axis in axes[1:3]]
  assert texts == [["not masked"]] * 2


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
