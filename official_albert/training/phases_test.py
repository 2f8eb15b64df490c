"""Runs of several phases: other data and batches, one schedule."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import checkpoint_manager, reporting
from official_albert.training.train_config import Phase

PHASES = (Phase(4), Phase(3, 10, 5))


def tasks(kill_after=7):
  """Returns the tasks, whose data ends after `kill_after` updates."""
  made = [toy_task.ToyTask(dropout_rate=0.3, seed=seed) for seed in (0, 1)]
  made[1].tokens_per_example, made[1].flops_per_example = 7, 240
  if kill_after < 4:
    made[0].stop_after = kill_after
  elif kill_after < 7:
    made[1].stop_after = kill_after - 4
  return made


def config(folder, **changes):
  values = dict(
    num_train_steps=7, phases=PHASES, save_checkpoints_steps=2, eval_steps=3
  )
  return toy_task.config(folder, **{**values, **changes})


def by_step(folder, name, kind="train"):
  return {
    (r["step"], r.get("phase")): r[name]
    for r in reporting.read_metrics(str(folder), kind)
  }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """An uninterrupted run: its folder, last evaluation, weights and log."""
  folder = tmp_path_factory.mktemp("whole")
  return (folder, *toy_task.run(tasks(), config(folder)))


@pytest.mark.parametrize(
  "steps, starts",
  [
    (3, [[24], [0]]),  # In the first phase; step 2 is saved.
    (4, [[], [0]]),  # At the border.
    (6, [[], [20]]),  # In the second.
  ],
)
def test_a_killed_run_resumes_to_the_bit(tmp_path, whole, steps, starts):
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(tasks(steps), config(tmp_path))
  resumed = tasks()
  values, weights, log = toy_task.run(resumed, config(tmp_path))
  assert "resumed from" in log
  assert [task.starts for task in resumed] == starts
  folder, whole_values, whole_weights, _ = whole
  assert values == whole_values
  np.testing.assert_equal(weights, whole_weights)
  # A start evaluates at its step, too.
  for kind in ("train", "eval"):
    expected, got = (by_step(f, "loss", kind) for f in (folder, tmp_path))
    assert kind == "train" or expected.keys() <= got.keys()
    assert all(got[key] == x for key, x in expected.items() if key in got)
  best = [checkpoint_manager.read_best(str(f)) for f in (folder, tmp_path)]
  assert best[0] == best[1]


def test_each_phase_has_its_data_batch_and_throughput(whole):
  folder, values, _, log = whole
  train = reporting.read_metrics(str(folder), "train")
  tokens = [r["tokens_per_second"] / r["sequences_per_second"] for r in train]
  assert [r["step"] for r in train] == [2, 3, 4, 6, 7]
  np.testing.assert_allclose(tokens, [3, 3, 3, 7, 7])
  held_out = by_step(folder, "loss", "eval")
  assert list(held_out) == [(0, 1), (3, 1), (4, 1), (4, 2), (6, 2), (7, 2)]
  # The same weights on other data.
  assert held_out[4, 1] != held_out[4, 2]
  assert values["loss"] == held_out[7, 2]
  assert "phase 1 of 2: to step 4, batch 12, 3 tokens an example" in log
  assert "phase 2 of 2: to step 7, batch 10, 7 tokens an example" in log
  summary = reporting.summarize(str(folder))
  assert summary["restarts"] == 0 and summary["best_step"] >= 4


def test_a_run_stops_and_saves_at_a_border(tmp_path):
  cfg = config(
    tmp_path,
    phases=(Phase(3), Phase(4)),
    steps_per_loop=7,
    save_checkpoints_steps=7,
    eval_steps=0,
  )
  parts = tasks()
  toy_task.run(parts, cfg)
  assert toy_task.logged(tmp_path, "step") == [3, 7]
  assert (tmp_path / "model.ckpt-3.index").exists()
  assert [task.starts for task in parts] == [[0], [0]]


def test_the_schedule_spans_all_phases(whole, tmp_path):
  toy_task.run(toy_task.ToyTask(), config(tmp_path, phases=()))
  rates = [toy_task.logged(f, "learning_rate") for f in (whole[0], tmp_path)]
  np.testing.assert_allclose(*rates, rtol=1e-6)


def test_a_finished_run_continues_with_a_further_phase(tmp_path):
  toy_task.run(
    toy_task.ToyTask(), config(tmp_path, num_train_steps=4, phases=())
  )
  parts = tasks()
  toy_task.run(parts, config(tmp_path))
  assert [task.starts for task in parts] == [[], [0]]


def test_phases_of_the_same_data_equal_a_run_without_phases(tmp_path):
  """Examples continue across the border, also if the run is killed there."""
  plain = config(tmp_path / "plain", phases=(), save_checkpoints_steps=7)
  _, expected, _ = toy_task.run(toy_task.ToyTask(dropout_rate=0.3), plain)
  phases = (Phase(4, num_layers=2), Phase(3, num_layers=5, same_data=True))

  def run(name, kill_after=7):
    parts = tasks(kill_after)
    for name_ in ("x", "y", "w"):  # Of the same seed.
      setattr(parts[1], name_, getattr(parts[0], name_))
    _, weights, log = toy_task.run(
      parts, config(tmp_path / name, phases=phases)
    )
    np.testing.assert_equal(weights, expected)
    return [task.starts for task in parts], log

  starts, log = run("a")
  assert starts == [[0], [48]]
  assert "phase 2 of 2: to step 7, depth 5, batch 12" in log
  with pytest.raises(tf.errors.OutOfRangeError):
    run("b", kill_after=4)
  assert run("b")[0] == [[], [48]]


def test_a_rollback_in_the_second_phase_stays_there(tmp_path):
  parts = [
    toy_task.ToyTask(),
    toy_task.ToyTask(poison_at=25, seed=1),  # In its third batch.
  ]
  cfg = config(tmp_path, on_divergence="rollback", steps_per_loop=1)
  _, weights, log = toy_task.run(parts, cfg)
  # From step 6 of the run, 20 examples into the phase; 10 are skipped.
  assert parts[1].starts == [0, 30] and parts[0].starts == [0]
  assert log.count("its batches are skipped") == 1
  assert all(np.isfinite(w).all() for w in weights)


def test_wrong_data_of_a_later_phase_is_found_at_once(tmp_path):
  parts = tasks()
  with pytest.raises(ValueError, match="there are 2 phases, but data for 1"):
    toy_task.run(parts[:1], config(tmp_path))

  def missing(batch_size):
    raise ValueError("no held-out split")

  parts[1].eval_dataset = missing
  with pytest.raises(ValueError, match="no held-out split"):
    toy_task.run(parts, config(tmp_path))
  assert parts[0].starts == []


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
