"""Tests of the profiler: which steps it watches, and that nothing changes."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert.testing import toy_task
from official_albert.training import reporting, train_config


class _Watched:
  """Stands in for TensorFlow's profiler: notes what happens while it is on."""

  def __init__(self, monkeypatch):
    self.on, self.profiles, self.traces = False, [], []
    experimental = tf.profiler.experimental
    monkeypatch.setattr(experimental, "start", self.start)
    monkeypatch.setattr(experimental, "stop", self.stop)
    monkeypatch.setattr(experimental, "Trace", self.trace)

  def start(self, folder):
    assert not self.on
    self.on = True
    self.profiles.append(0)
    self.folder = folder

  def stop(self):
    assert self.on
    self.on = False

  @contextlib.contextmanager
  def trace(self, name, step_num, _r):
    self.traces.append(step_num)
    yield


class _CountingTask(toy_task.ToyTask):
  """Counts the training steps that run while the profiler is on."""

  def __init__(self, watched, **settings):
    super().__init__(**settings)
    self.watched = watched

  def forward(self, model, batch, training, seed):
    def count(unused_x):
      if self.watched.on:
        assert training, "an evaluation was watched"
        self.watched.profiles[-1] += 1

    # Given the batch, so that it runs when there is one.
    tf.py_function(count, [batch["x"]], [])
    return super().forward(model, batch, training, seed)


def test_trace_is_written_and_the_numbers_stay_the_same(tmp_path):
  def run(name, steps):
    task = toy_task.ToyTask(dropout_rate=0.3)
    cfg = toy_task.config(
      tmp_path / name, steps_per_loop=6, profile_steps=steps, eval_steps=5
    )
    values, weights, _ = toy_task.run(task, cfg)
    return values, weights

  values, weights = run("plain", "")
  assert not (tmp_path / "plain" / "profile").exists()
  same_values, same_weights = run("profiled", "1,3")
  assert values == same_values
  for a, b in zip(weights, same_weights):
    np.testing.assert_array_equal(a, b)
  traces = list((tmp_path / "profiled").glob("profile/plugins/profile/*/*.pb"))
  assert len(traces) == 1
  # The step's own operations are in it.
  assert b"train_loop" in traces[0].read_bytes()


@pytest.mark.parametrize(
  "steps, watched_steps, logged",
  [
    ("2,5", 3, [2, 3, 5, 6]),
    ("0,1", 1, [1, 3, 6]),
    # Ends where an evaluation and a checkpoint follow, and with the run.
    ("1,3", 2, [1, 3, 6]),
    ("5,6", 1, [3, 5, 6]),
    (" 4 , 6", 2, [3, 4, 6]),
  ],
)
def test_exactly_these_steps_are_watched(
  tmp_path, monkeypatch, steps, watched_steps, logged
):
  watched = _Watched(monkeypatch)
  # TensorFlow cuts the loop at step 3, for a checkpoint.
  cfg = toy_task.config(
    tmp_path, steps_per_loop=6, eval_steps=3, profile_steps=steps
  )
  if steps == "2,5":  # An evaluation in the middle would be seen.
    cfg = toy_task.config(tmp_path, steps_per_loop=6, profile_steps=steps)
  toy_task.run(_CountingTask(watched), cfg)
  assert watched.profiles == [watched_steps] and not watched.on
  assert watched.folder == str(tmp_path / "profile")
  train = reporting.read_metrics(str(tmp_path), "train")
  assert [r["step"] for r in train] == logged
  first = train_config.parse_profile_steps(steps, 6)[0]
  assert watched.traces[0] == first


def test_a_resume_in_the_middle_watches_the_rest(tmp_path, monkeypatch):
  watched = _Watched(monkeypatch)
  cfg = toy_task.config(tmp_path, steps_per_loop=6, profile_steps="2,5")
  task = _CountingTask(watched)
  of = task.train_dataset
  # Cut by failing in step 5, after the checkpoint of step 3.
  task.train_dataset = lambda *args: of(*args).take(4)
  with pytest.raises(tf.errors.OutOfRangeError):
    toy_task.run(task, cfg)
  assert watched.profiles == [2] and not watched.on
  toy_task.run(_CountingTask(watched), cfg)
  assert watched.profiles == [2, 2] and not watched.on
  # All of them are done: a longer run does not profile again.
  cfg = toy_task.config(tmp_path, num_train_steps=8, profile_steps="2,5")
  toy_task.run(_CountingTask(watched), cfg)
  assert watched.profiles == [2, 2]


def test_a_rollback_beyond_its_start_ends_and_repeats_it(tmp_path, monkeypatch):
  watched = _Watched(monkeypatch)
  # Example 20 is in the batch of step 2, and its checkpoint before is 0.
  cfg = toy_task.config(
    tmp_path,
    on_divergence="rollback",
    save_checkpoints_steps=6,
    steps_per_loop=1,
    profile_steps="1,3",
  )
  task = _CountingTask(watched, poison_at=20)
  with contextlib.suppress(ValueError):
    toy_task.run(task, cfg)
  assert len(watched.profiles) >= 2 and not watched.on
  assert watched.profiles[:2] == [1, 2]


@pytest.mark.parametrize(
  "text, message",
  [
    ("5", "must be two steps FROM,TO such as 100,110, got '5'"),
    ("a,b", "got 'a,b'"),
    ("1,2,3", "got '1,2,3'"),
    ("-1,2", "got '-1,2'"),
    ("3,3", "profile_steps 3,3 must be 0 <= FROM < TO <= 6"),
    ("4,2", "profile_steps 4,2"),
    ("5,7", "profile_steps 5,7"),
  ],
)
def test_wrong_steps_are_refused_when_settings_are_made(text, message):
  with pytest.raises(ValueError, match=message):
    toy_task.config("unused", profile_steps=text)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
