"""Tests of the picture: it is a PNG of a plausible size, or an error."""

from __future__ import annotations

import io
import json

import pytest

from official_albert import training
from tools.cli.figures import pyplot
from tools.inspection import curve_plot


def write_metrics(folder, pair=True):
  lines = []
  for step in (10, 20, 30):
    for kind in ("train", "eval"):
      record = {
        "kind": kind,
        "step": step,
        "masked_lm_loss": 7 - step / 10,
        "masked_lm_accuracy": step / 100,
      }
      if pair:
        record["sentence_order_accuracy"] = 0.5 + step / 100
      lines.append(json.dumps(record) + "\n")
  (folder / training.METRICS_FILE).write_text("".join(lines))


@pytest.mark.parametrize("pair", [True, False])
def test_writes_a_picture(tmp_path, pair):
  write_metrics(tmp_path, pair)
  path = tmp_path / "curves.png"
  curve_plot.plot(str(tmp_path), str(path), 6.3)
  image = pyplot.imread(io.BytesIO(path.read_bytes()))
  assert image.shape[0] > 300 and image.shape[1] > 1000
  # Three panels with lines are neither blank nor black.
  assert 0.5 < image[..., :3].mean() < 0.99
  assert [p.name for p in tmp_path.glob("*.tmp")] == []


def test_a_run_without_numbers_is_refused(tmp_path):
  (tmp_path / training.METRICS_FILE).write_text("")
  with pytest.raises(ValueError, match="no training and held-out numbers"):
    curve_plot.plot(str(tmp_path), str(tmp_path / "curves.png"))
  assert not (tmp_path / "curves.png").exists()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
