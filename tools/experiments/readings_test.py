"""Tests of readings.py: what is read of finished runs."""

from __future__ import annotations

import json
import math

import pytest

from tools.experiments import readings, scales

_CONFIG = scales.SCALES["tiny"].config({"num_hidden_layers": 6})


def _train(step: int, speed: float, depth: int = 6) -> dict:
  """A log line; an operation is one for each layer and sequence."""
  return {
    "kind": "train",
    "step": step,
    "loss": 5.0,
    "unix_time_seconds": 1000.0 * step,
    "sequences_per_second": speed,
    "tokens_per_second": 64 * speed,
    "model_flops_per_second": speed * depth,
  }


def _eval(step: int, loss: float, depth: int = 6) -> dict:
  return {
    "kind": "eval",
    "step": step,
    "depth": depth,
    "loss": loss + 1,
    "masked_lm_loss": loss,
    "masked_lm_accuracy": 0.25,
    "sentence_order_accuracy": 0.75,
  }


def _write(folder, records) -> None:
  lines = "".join(json.dumps(record) + "\n" for record in records)
  (folder / "metrics.jsonl").write_text(lines)


_START = {"kind": "start", "step": 0}
_QUIET = [
  *(_eval(0, 9.0, 3), _START),
  # The first line of each depth is of a loop that compiles.
  *(_train(10, 1.0, 3), _train(20, 8.0, 3), _eval(20, 6.0, 3), _eval(20, 7.0)),
  *(_train(30, 1.0), _train(40, 4.0), _eval(40, 5.0)),
]


def _read(folder) -> dict:
  return readings.pretraining(str(folder), _CONFIG, batch_size=2)


def test_a_run_is_read_at_its_end(tmp_path):
  _write(tmp_path, _QUIET)
  found = _read(tmp_path)
  # 20 updates of 2 sequences at 8 a second, then 20 at 4 a second.
  assert found["training_seconds"] == 5.0 + 10.0
  assert found["training_flops"] == 20 * 2 * 3 + 20 * 2 * 6
  assert found["steps"] == 40
  assert found["parameters"] == _CONFIG.parameter_count()
  assert (found["masked_lm_loss"], found["masked_lm_accuracy"]) == (5.0, 25.0)
  assert found["sentence_pair_accuracy"] == 75.0
  assert [tuple(point.values()) for point in found["curve"]] == [
    (0, 3, 9.0, 0.0, 0.0),
    (20, 3, 6.0, 5.0, 120.0),
    (20, 6, 7.0, 5.0, 120.0),
    (40, 6, 5.0, 15.0, 360.0),
  ]


def test_a_killed_run_counts_as_one_that_was_not(tmp_path):
  """Killed at the switch of the depth, and in the middle of a line."""
  _write(tmp_path, _QUIET)
  quiet = _read(tmp_path)
  records = [
    *_QUIET[:6],
    *(_train(30, 1.0), _eval(20, 6.0, 3), _eval(20, 7.0), _START),
    *(_train(30, 0.5), _train(40, 4.0), _eval(40, 5.0)),
  ]
  _write(tmp_path, records)
  text = (tmp_path / "metrics.jsonl").read_text()
  (tmp_path / "metrics.jsonl").write_text('{"kind": "tra\n' + text)
  assert _read(tmp_path) == quiet


def test_a_busy_minute_does_not_count(tmp_path):
  slow = [_train(10 * i, speed) for i, speed in enumerate((1, 4, 4, 0.1, 4), 1)]
  _write(tmp_path, [_START, *slow, _eval(50, 5.0)])
  assert _read(tmp_path)["training_seconds"] == 50 * 2 / 4


def test_a_run_of_one_line_has_a_speed_too(tmp_path):
  _write(tmp_path, [_START, _train(10, 4.0), _eval(10, 5.0)])
  assert _read(tmp_path)["training_seconds"] == 5.0


def test_speed_is_without_the_loop_that_compiles(tmp_path):
  lines = [_train(step, step / 10) for step in (10, 70, 90, 80)]
  _write(tmp_path, [_START, *lines])
  assert readings.speed(str(tmp_path)) == {"tokens_per_second": 64 * 8.0}


@pytest.mark.parametrize(
  "column, metrics, values",
  [
    ("MNLI", {"accuracy": 0.25}, {"MNLI": 25.0}),
    (
      "SQuAD1.1",
      {"exact_match": 50.0, "f1": 60.0},
      {"SQuAD1.1": 55.0, "SQuAD1.1 F1": 60.0, "SQuAD1.1 EM": 50.0},
    ),
    (
      "SQuAD2.0",
      {"exact": 40.0, "f1": 50.0, "best_f1": 70.0},
      {"SQuAD2.0": 45.0, "SQuAD2.0 F1": 50.0, "SQuAD2.0 EM": 40.0},
    ),
  ],
)
def test_results_of_tasks_are_percent(tmp_path, column, metrics, values):
  results = {"dev_matched": metrics, "other": {}}
  (tmp_path / "eval_results.json").write_text(json.dumps(results))
  assert readings.finetuning(str(tmp_path), column) == values


def _curve(*points) -> list[dict]:
  return [
    {"depth": depth, "loss": loss, "seconds": seconds, "flops": 10 * seconds}
    for seconds, loss, depth in points
  ]


@pytest.mark.parametrize(
  "loss, seconds", [(8.0, 10.0), (7.0, 20.0), (6.25, 35.0), (5.0, math.inf)]
)
def test_a_loss_is_reached_on_the_line_between_evaluations(loss, seconds):
  curve = _curve((0, 9.0, 4), (20, 7.0, 4), (40, 6.0, 4), (60, 6.5, 4))
  assert readings.cost_to_reach(curve, loss, "seconds") == seconds
  assert readings.cost_to_reach(curve, loss, "flops") == 10 * seconds


def test_a_shallow_model_reaches_nothing():
  curve = _curve((0, 9.0, 3), (10, 6.0, 3), (10, 8.0, 4), (20, 5.0, 4))
  assert readings.cost_to_reach(curve, 6.5, "seconds") == 15.0
  # The first evaluation at full depth may be good enough.
  assert readings.cost_to_reach(curve, 8.5, "seconds") == 10.0


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
