"""Tests of what a run says."""

from __future__ import annotations

import contextlib
import io
import json
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution
from official_albert.testing import toy_task
from official_albert.training import (
  DECAYS,
  optimization,
  reporting,
)
from official_albert.training import loop as training_lib
from official_albert.training.train_config import Phase

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


def test_a_run_with_it_leaves_only_checkpoints(tmp_path, capsys):
  strategy = distribution.make_strategy("one_device")
  with reporting.SilentReporter() as report:
    values = training_lib.train(
      [toy_task.ToyTask()], toy_task.config(tmp_path), strategy, report
    )
  assert values["loss"] > 0
  assert capsys.readouterr() == ("", "")
  names = {path.name.split("-")[0] for path in tmp_path.iterdir()}
  assert names == {"checkpoint", "model.ckpt"}


def test_it_has_what_a_reporter_has_and_no_more():
  report = reporting.SilentReporter()
  for name, value in vars(reporting.Reporter).items():
    if callable(value):
      assert callable(getattr(report, name)), name
  with pytest.raises(AttributeError, match="shout"):
    report.shout("text")


def test_one_worker_reports(tmp_path):
  strategy = distribution.make_strategy("one_device")
  report = reporting.make_reporter(strategy, str(tmp_path))
  with report:
    assert isinstance(report, reporting.Reporter)


def make(rate=0.00176, steps=125000, warmup=3125, **settings):
  return optimization.WarmupPolynomialDecay(rate, steps, warmup, **settings)


def read(folder):
  """Step to rate, of all event files together."""
  curve = []
  for path in sorted(folder.glob("schedule/events*")):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        assert value.tag == "learning_rate"
        curve.append((event.step, float(tf.make_ndarray(value.tensor))))
  assert len({step for step, _ in curve}) == len(curve)
  return dict(curve)


def files(folder):
  return {p.name: p.stat().st_mtime_ns for p in (folder / "schedule").iterdir()}


@pytest.mark.parametrize("decay", DECAYS)
def test_curve_is_the_schedule(tmp_path, decay):
  begun = time.process_time()
  assert reporting.write_schedule(str(tmp_path), make(decay=decay))
  # Milliseconds; a second leaves room for a machine that is busy.
  assert time.process_time() - begun < 1
  curve = read(tmp_path)
  assert 150 < len(curve) <= reporting.SCHEDULE_POINTS
  assert curve[0] == 0 and curve[125000] == 0
  np.testing.assert_allclose(curve[3124], 0.00176 * 3124 / 3125, rtol=1e-6)
  # The drop at the end of the warm-up is the original's, and is drawn.
  peak = 0.00176 * (0.975 if decay == "original" else 1)
  np.testing.assert_allclose(curve[3125], peak, rtol=1e-6)


@pytest.mark.parametrize("steps, warmup", [(1, 0), (1, 1), (7, 3), (201, 201)])
def test_short_runs_have_every_step_once(tmp_path, steps, warmup):
  reporting.write_schedule(str(tmp_path), make(steps=steps, warmup=warmup))
  curve = read(tmp_path)
  assert len(curve) <= reporting.SCHEDULE_POINTS
  assert (min(curve), max(curve)) == (0, steps)
  if steps < 100:
    assert list(curve) == list(range(steps + 1))


def test_written_once_per_setting_and_replaced_by_another(tmp_path):
  assert reporting.write_schedule(str(tmp_path), make())
  before = files(tmp_path)
  assert not reporting.write_schedule(str(tmp_path), make())
  assert files(tmp_path) == before
  assert reporting.write_schedule(str(tmp_path), make(rate=0.001))
  assert max(read(tmp_path).values()) <= 0.001
  assert len(files(tmp_path)) == 2


def test_a_curve_that_a_kill_cut_short_is_written_again(tmp_path):
  (tmp_path / "schedule").mkdir()
  (tmp_path / "schedule" / "events.out.tfevents.1.host").write_bytes(b"\x00")
  assert reporting.write_schedule(str(tmp_path), make())
  assert len(read(tmp_path)) > 150


def test_a_run_draws_it_and_a_resume_does_not(tmp_path):
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  before = files(tmp_path)
  curve = read(tmp_path)
  assert list(curve) == list(range(7))
  np.testing.assert_allclose(curve[2], 0.01 * (1 - 2 / 6), rtol=1e-6)
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path))
  assert files(tmp_path) == before
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, num_train_steps=8))
  assert list(read(tmp_path)) == list(range(9))


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
  first = cfg.profiled_steps()[0]
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


def describe(**changes):
  return reporting.describe_plan(
    [toy_task.ToyTask()] * max(1, len(changes.get("phases", ()))),
    toy_task.config("unused", **changes),
    1234567,
    tf.distribute.OneDeviceStrategy("/cpu:0"),
  )


def test_a_plan_says_the_work_in_all():
  assert describe() == [
    "toy: 1,234,567 parameters, float32, 1 x CPU",
    # 6 * 12 sequences of 3 tokens and 60 operations.
    "6 steps of 12 sequences: 216 tokens, 4.32e+03 operations",
    "lamb, learning rate 0 to 0.01 in 2 steps, then to 0 (original)",
  ]


def test_micro_batches_change_what_is_done_at_a_time_only():
  lines = describe(
    gradient_accumulation_steps=3,
    train_batch_size=1200,
    num_train_steps=5000,
    optimizer="adamw",
    learning_rate_decay="continuous",
  )
  assert lines[1] == (
    "5,000 steps of 1,200 sequences, 400 at a time on a device: 1.8e+07 "
    "tokens, 3.6e+08 operations"
  )
  assert lines[2].startswith("adamw, ") and lines[2].endswith("(continuous)")


def test_phases_add_up():
  lines = describe(
    phases=(Phase(4), Phase(2, train_batch_size=6)), num_train_steps=6
  )
  # 4 * 12 + 2 * 6 sequences of 3 tokens and 60 operations.
  assert lines[1] == (
    "4 steps of 12 sequences, then 2 steps of 6 sequences: 180 tokens, "
    "3.6e+03 operations"
  )


def test_a_run_prints_its_plan(tmp_path):
  task, config = toy_task.ToyTask(), toy_task.config(tmp_path)
  _, weights, log = toy_task.run(task, config)
  count = sum(w.size for w in weights)
  assert log.startswith(f"toy: {count} parameters, float32, 1 x ")
  assert log.splitlines()[1] == describe()[1]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
