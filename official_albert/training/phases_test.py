"""Tests of runs of several phases: other data and batches, one schedule."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import best_checkpoint, reporting
from official_albert.training.train_config import Phase

PHASES = (Phase(4), Phase(3, 10, 5))


def tasks():
  second = toy_task.ToyTask(dropout_rate=0.3, seed=1)
  second.tokens_per_example, second.flops_per_example = 7, 240
  return [toy_task.ToyTask(dropout_rate=0.3), second]


def config(folder, **changes):
  values = dict(
    num_train_steps=7, phases=PHASES, save_checkpoints_steps=2, eval_steps=3
  )
  return toy_task.config(folder, **{**values, **changes})


def cut(tasks_, steps):
  """Makes the data end after `steps` updates, which kills the run there."""
  left = steps
  for task, phase in zip(tasks_, PHASES):
    make, count = task.train_dataset, min(left, phase.steps)
    # The phase before does not look at more than it needs.
    if count < phase.steps:
      task.train_dataset = lambda *args, make=make, count=count: make(
        *args
      ).take(count)
    left -= count


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """An uninterrupted run: its folder, last evaluation, weights and log."""
  folder = tmp_path_factory.mktemp("whole")
  return (folder, *toy_task.run(tasks(), config(folder)))


@pytest.mark.parametrize(
  "steps, starts",
  [
    (3, [[24], [0]]),  # Within the first phase; step 2 is saved.
    (4, [[], [0]]),  # At the border.
    (6, [[], [20]]),  # Within the second.
  ],
)
def test_a_cut_run_resumes_to_the_bit(tmp_path, whole, steps, starts):
  parts = tasks()
  cut(parts, steps)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(parts, config(tmp_path))
  parts = tasks()
  values, weights, log = toy_task.run(parts, config(tmp_path))
  assert "resumed from" in log
  assert [task.starts for task in parts] == starts
  folder, whole_values, whole_weights, _ = whole
  assert values == whole_values
  for a, b in zip(whole_weights, weights):
    np.testing.assert_array_equal(a, b)
  for kind in ("train", "eval"):
    twins = [
      {
        (r["step"], r.get("phase")): r["loss"]
        for r in reporting.read_metrics(str(f), kind)
      }
      for f in (folder, tmp_path)
    ]
    if kind == "eval":
      # A start evaluates where it is, too.
      assert twins[0].items() <= twins[1].items()
    for key in twins[0].keys() & twins[1].keys():
      assert twins[0][key] == twins[1][key]
  assert best_checkpoint.read_best(str(folder)) == best_checkpoint.read_best(
    str(tmp_path)
  )


def test_each_phase_has_its_data_batch_and_throughput(whole):
  folder, values, _, log = whole
  train = reporting.read_metrics(str(folder), "train")
  tokens = [r["tokens_per_second"] / r["sequences_per_second"] for r in train]
  assert [r["step"] for r in train] == [2, 3, 4, 6, 7]
  np.testing.assert_allclose(tokens, [3, 3, 3, 7, 7])
  held_out = reporting.read_metrics(str(folder), "eval")
  assert [(r["step"], r["phase"]) for r in held_out] == [
    (0, 1),
    (3, 1),
    (4, 1),
    (4, 2),
    (6, 2),
    (7, 2),
  ]
  # Of the same weights on other data.
  assert held_out[2]["loss"] != held_out[3]["loss"]
  assert values["loss"] == held_out[-1]["loss"]
  assert "phase 1 of 2: to step 4, batch 12, 3 tokens an example" in log
  assert "phase 2 of 2: to step 7, batch 10, 7 tokens an example" in log
  summary = reporting.summarize(str(folder))
  assert summary["restarts"] == 0 and summary["best_step"] >= 4


def test_a_border_is_a_stop_and_saved(tmp_path):
  cfg = config(
    tmp_path,
    phases=(Phase(3), Phase(4)),
    steps_per_loop=7,
    save_checkpoints_steps=7,
    eval_steps=0,
  )
  parts = tasks()
  toy_task.run(parts, cfg)
  train = reporting.read_metrics(str(tmp_path), "train")
  assert [r["step"] for r in train] == [3, 7]
  assert (tmp_path / "model.ckpt-3.index").exists()
  assert [task.starts for task in parts] == [[0], [0]]


def test_the_schedule_spans_all_phases(whole, tmp_path):
  folder, *_ = whole
  alone = config(tmp_path, phases=(), eval_steps=3)
  toy_task.run(toy_task.ToyTask(), alone)
  rates = [
    {
      r["step"]: r["learning_rate"]
      for r in reporting.read_metrics(str(f), "train")
    }
    for f in (folder, tmp_path)
  ]
  assert rates[0].keys() == rates[1].keys()
  for step, rate in rates[0].items():
    assert math.isclose(rate, rates[1][step], rel_tol=1e-6)


def test_a_finished_run_goes_on_with_a_further_phase(tmp_path):
  """At its last step, the data of the next phase begins from its start."""
  first = toy_task.ToyTask()
  toy_task.run(first, config(tmp_path, num_train_steps=4, phases=()))
  parts = tasks()
  toy_task.run(parts, config(tmp_path))
  assert [task.starts for task in parts] == [[], [0]]


def test_phases_of_the_same_data_are_a_run_without_phases(tmp_path):
  """Examples go on across the border, also of a run that is cut there."""
  toy = toy_task.ToyTask(dropout_rate=0.3)
  _, plain, _ = toy_task.run(
    toy, config(tmp_path / "plain", phases=(), save_checkpoints_steps=7)
  )
  phases = (Phase(4, num_layers=2), Phase(3, num_layers=5, same_data=True))
  parts = [toy_task.ToyTask(dropout_rate=0.3) for _ in phases]
  _, weights, log = toy_task.run(parts, config(tmp_path / "a", phases=phases))
  assert [task.starts for task in parts] == [[0], [48]]
  assert "phase 2 of 2: to step 7, depth 5, batch 12" in log
  parts = [toy_task.ToyTask(dropout_rate=0.3) for _ in phases]
  cut(parts, 4)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(parts, config(tmp_path / "b", phases=phases))
  parts = [toy_task.ToyTask(dropout_rate=0.3) for _ in phases]
  _, again, _ = toy_task.run(parts, config(tmp_path / "b", phases=phases))
  assert [task.starts for task in parts] == [[], [48]]
  for a, b, c in zip(plain, weights, again):
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)


def test_rollback_in_the_second_phase_stays_there(tmp_path):
  parts = [
    toy_task.ToyTask(),
    toy_task.ToyTask(poison_at=25, seed=1),  # In its third batch.
  ]
  cfg = config(tmp_path, on_divergence="rollback", steps_per_loop=1)
  _, weights, log = toy_task.run(parts, cfg)
  # From step 6 of the run, 20 examples into the phase; 10 are left out.
  assert parts[1].starts == [0, 30] and parts[0].starts == [0]
  assert log.count("its batches are skipped") == 1
  assert all(np.isfinite(w).all() for w in weights)


def test_missing_held_out_data_of_a_later_phase_is_found_at_once(tmp_path):
  parts = tasks()

  def missing(batch_size):
    raise ValueError("no held-out split")

  parts[1].eval_dataset = missing
  with pytest.raises(ValueError, match="no held-out split"):
    toy_task.run(parts, config(tmp_path))
  assert parts[0].starts == []


def test_time_left_counts_longer_steps(tmp_path, monkeypatch):
  clock = iter([0.0, 10.0, 20.0])
  monkeypatch.setattr(reporting.time, "monotonic", lambda: next(clock))
  stream = io.StringIO()
  with reporting.Reporter(str(tmp_path), stream) as report:
    task = toy_task.ToyTask()
    report.start(0, 40, 2, task, extra_steps=30)
    report.training(10, 10, {"loss": 1.0})
    report.training(20, 10, {"loss": 1.0})
  assert stream.getvalue().splitlines()[-1].endswith(" 50s left")


def test_data_for_another_number_of_phases_is_refused(tmp_path):
  with pytest.raises(ValueError, match="there are 2 phases, but data for 1"):
    toy_task.run(tasks()[:1], config(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
