from __future__ import annotations

import io
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import training
from tools.benchmarks import survival_report
from tools.cli.figures import pyplot


def _write(folder: pathlib.Path, records, value=(1.0, 2.0), variables=("a",)):
  """A run's folder: its metrics, and a checkpoint of constant variables."""
  folder.mkdir(exist_ok=True)
  lines = []
  for kind, step, loss in records:
    record = {"kind": kind, "step": step, "masked_lm_loss": loss}
    record["sentence_order_accuracy"] = 0.5
    lines.append(json.dumps({**record, "tokens_per_second": id(folder)}))
  (folder / training.METRICS_FILE).write_text("\n".join(lines) + "\n")
  checkpoint = tf.train.Checkpoint(**{n: tf.Variable(value) for n in variables})
  tf.train.CheckpointManager(
    checkpoint, str(folder), 2, checkpoint_name="model.ckpt"
  ).save(checkpoint_number=30)


_USUAL = [("train", 10, 7.5), ("train", 20, 7.25), ("train", 30, 7.0)]
_USUAL += [("eval", 0, 8.0), ("eval", 30, 7.125)]


def _compare(tmp_path, records, **changes):
  _write(tmp_path / "quiet", _USUAL)
  _write(tmp_path / "harmed", records, **changes)
  return survival_report.compare(
    str(tmp_path / "quiet"), str(tmp_path / "harmed")
  )


def test_the_same_numbers_with_a_restart_between_two_log_lines(tmp_path):
  # 17 was saved by SIGTERM; 20 is a mean of three steps instead of ten.
  records = [*_USUAL, ("train", 17, 7.3), ("eval", 17, 7.9)]
  records[1] = ("train", 20, 7.2)
  result = _compare(tmp_path, records)
  assert result["is_the_same"] is True
  assert result["train"] == {"records": 2, "differ": 0}
  assert result["eval"] == {"records": 2, "differ": 0}
  assert result["variables"]["differ"] == 0


@pytest.mark.parametrize(
  ("records", "changes"),
  [
    pytest.param([*_USUAL[:2], ("train", 30, 7.0000001), *_USUAL[3:]], {}),
    pytest.param([*_USUAL[:4], ("eval", 30, 7.13)], {}),
    pytest.param(_USUAL[:2] + _USUAL[3:], {}),
    pytest.param(
      _USUAL, {"value": (1.0, np.nextafter(np.float32(2), np.float32(3)))}
    ),
    pytest.param(_USUAL, {"variables": ("a", "b")}),
  ],
  ids=["training", "held-out", "missing", "weight", "variable"],
)
def test_any_difference_is_seen(tmp_path, records, changes):
  assert not _compare(tmp_path, records, **changes)["is_the_same"]


def test_sentence():
  result = {
    "last_step": 7000,
    "train": {"records": 1200, "differ": 0},
    "eval": {"records": 7, "differ": 2},
    "variables": {"records": 97, "differ": 0},
  }
  assert survival_report.sentence(result) == (
    "to step 7,000: 0 of 1,200 training records differ, 2 of 7 held-out "
    "records differ, 0 of 97 variables of the checkpoint differ"
  )


def test_last_steps(tmp_path):
  assert survival_report.last_step(str(tmp_path)) == 0
  _write(tmp_path, _USUAL)
  assert survival_report.last_step(str(tmp_path)) == 30


def test_records_after_the_last_common_checkpoint_do_not_count(tmp_path):
  result = _compare(tmp_path, [*_USUAL, ("train", 40, 1.0)])
  assert result["is_the_same"] and result["last_step"] == 30
  with open(tmp_path / "quiet" / training.METRICS_FILE, "a") as file:
    file.write('{"kind": "train", "step": 40, "masked_lm_loss": 2.0}\n')
  folders = str(tmp_path / "quiet"), str(tmp_path / "harmed")
  assert survival_report.compare(*folders)["is_the_same"]


def test_runs_without_a_common_checkpoint_cannot_be_compared(tmp_path):
  _write(tmp_path / "quiet", _USUAL)
  (tmp_path / "harmed").mkdir()
  with pytest.raises(ValueError, match="no checkpoint of the same step"):
    survival_report.compare(str(tmp_path / "quiet"), str(tmp_path / "harmed"))


def test_newest_data_file(tmp_path):
  _write(tmp_path, _USUAL)
  path = survival_report.newest_data_file(str(tmp_path))
  assert path.endswith("model.ckpt-30.data-00000-of-00001")


def test_draws_both(tmp_path):
  _write(tmp_path / "quiet", _USUAL)
  _write(tmp_path / "harmed", _USUAL)
  path = tmp_path / "survival.png"
  survival_report.draw(
    str(tmp_path / "quiet"), str(tmp_path / "harmed"), [(17, "kill")], str(path)
  )
  image = pyplot.imread(io.BytesIO(path.read_bytes()))
  assert image.shape[0] > 300 and 0.5 < image[..., :3].mean() < 0.99


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
