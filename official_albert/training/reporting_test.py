"""Tests of what a run says."""

from __future__ import annotations

import io
import json
import types

import pytest
import tensorflow as tf

from official_albert.training import reporting

TASK = types.SimpleNamespace(tokens_per_example=8, flops_per_example=1e9)


def test_numbers_reach_terminal_tensorboard_and_file(tmp_path, monkeypatch):
  clock = iter([100.0, 102.0, 103.0, 104.0, 106.0, 110.0])
  monkeypatch.setattr(reporting.time, "monotonic", lambda: next(clock))
  stream = io.StringIO()
  with reporting.Reporter(str(tmp_path), stream) as report:
    report.start(0, 30, 4, TASK)  # at 100
    values = {"loss": 2.5, "a_loss": 2.0, "a_accuracy": 0.25, "x_norm": 3.0}
    report.training(10, 10, {**values, "learning_rate": 1e-3})  # at 102
    with report.pause():  # from 103 to 104
      pass
    report.training(  # at 106
      20, 10, {"loss": 1.5, "learning_rate": 1e-3}, waited_seconds=0.3
    )
    report.evaluation(20, {"loss": 1.75})
    report.finish(20)  # at 110
  lines = stream.getvalue().splitlines()
  assert lines[0].startswith(
    "step 10/30  loss 2.5  a 2 (25.0% right)  x norm 3  learning rate 1.00e-03"
  )
  assert "20.0 sequences/s  160 tokens/s  20 GFLOP/s" in lines[0]
  # 4 seconds less 1 of pause: 10 steps in 3 seconds, 10 more to go.
  assert "13.3 sequences/s" in lines[1]
  assert lines[1].endswith("10% waiting for data  3s left")
  assert "waiting" not in lines[0]
  assert lines[2] == "step 20 held-out  loss 1.75"
  assert lines[3] == "trained 20 steps in 10s"
  train = reporting.read_metrics(str(tmp_path), "train")
  assert [r["step"] for r in train] == [10, 20]
  assert train[1]["loss"] == 1.5 and train[0]["tokens_per_second"] == 160
  assert [r["data_wait_share"] for r in train] == [0, pytest.approx(0.1)]
  event_file = next((tmp_path / "eval").glob("events*"))
  tags = {
    value.tag: float(tf.make_ndarray(value.tensor))
    for event in tf.compat.v1.train.summary_iterator(str(event_file))
    for value in event.summary.value
  }
  assert tags == {"loss": 1.75}


def test_a_wait_that_is_not_measured_is_in_no_log(tmp_path):
  stream = io.StringIO()
  with reporting.Reporter(str(tmp_path), stream) as report:
    report.start(0, 30, 4, TASK)
    report.training(10, 10, {"loss": 2.5}, waited_seconds=None)
    report.finish(10)
  assert "waiting" not in stream.getvalue()
  (train,) = reporting.read_metrics(str(tmp_path), "train")
  assert "data_wait_share" not in train and train["tokens_per_second"] > 0
  assert "data_wait_share" not in reporting.summarize(str(tmp_path))


def test_resumed_and_cut_files_can_be_read(tmp_path):
  lines = [
    {"kind": "train", "step": 10, "loss": 3.0},
    {"kind": "train", "step": 20, "loss": 2.0},
    {"kind": "eval", "step": 20, "loss": 9.0},
    {"kind": "train", "step": 20, "loss": 2.5},
  ]
  text = "".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "tr'
  (tmp_path / reporting.METRICS_FILE).write_text(text)
  train = reporting.read_metrics(str(tmp_path), "train")
  assert [(r["step"], r["loss"]) for r in train] == [(10, 3.0), (20, 2.5)]
  with reporting.Reporter(str(tmp_path), io.StringIO()) as report:
    report.evaluation(30, {"loss": 1.0})
  assert len(reporting.read_metrics(str(tmp_path), "train")) == 2
  held_out = reporting.read_metrics(str(tmp_path), "eval")
  assert [r["step"] for r in held_out] == [20, 30]


@pytest.mark.parametrize(
  "seconds, text",
  [
    (0.4, "0s"),
    (59.4, "59s"),
    (60, "1m00s"),
    (3599, "59m59s"),
    (7380, "2h03m"),
  ],
)
def test_duration(seconds, text):
  assert reporting.duration(seconds) == text


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
