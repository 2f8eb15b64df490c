"""Tests with real processes, which are killed, stopped and told to leave."""

from __future__ import annotations

import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert import training
from official_albert.distribution import multi_worker
from official_albert.distribution import strategies as distribution
from official_albert.testing import toy_job, toy_task

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CONFIG = dict(
  num_train_steps=24,
  eval_batch_size=4,
  steps_per_loop=6,
  save_checkpoints_steps=6,
)


def _interruptible():
  # In a new process, which ignores Ctrl-C if the tests' own does.
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def _job(folder, workers=2, num_devices=1, config=None, **settings):
  """Starts the workers of a job; a context of their processes."""
  command = toy_job.command(
    folder,
    {**_CONFIG, **(config or {})},
    distribution="multi_worker",
    num_devices=num_devices,
    **settings,
  )
  return toy_job.started(workers, command, cwd=_ROOT, preexec_fn=_interruptible)


def _run(*arguments, **settings):
  """Runs a job that ends well."""
  with _job(*arguments, **settings) as processes:
    for process in processes:
      assert toy_job.ended(process) == (0, "")


def _losses(folder, kind="train"):
  return [r["loss"] for r in training.read_metrics(str(folder), kind)]


def _weights(folder):
  reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
  names = reader.get_variable_to_shape_map()
  skipped = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter")
  return {
    name: reader.get_tensor(name)
    for name in names
    if not name.startswith(skipped)
  }


def _wait_for(folder, step, processes):
  while not (folder / f"model.ckpt-{step}.index").exists():
    for process in processes:
      assert process.poll() is None, toy_job.ended(process)
    time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The folder of an uninterrupted run of two workers."""
  folder = tmp_path_factory.mktemp("job") / "whole"
  _run(folder)
  return folder


def _assert_same_end(folder, whole):
  assert _losses(folder)[-1] == _losses(whole)[-1]
  assert _losses(folder, "eval")[-1] == _losses(whole, "eval")[-1]
  expected, got = _weights(whole), _weights(folder)
  assert expected.keys() == got.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(value, got[name], err_msg=name)


def test_two_workers_compute_what_one_device_computes(whole, tmp_path):
  toy_task.run(toy_task.ToyTask(), toy_task.config(tmp_path, **_CONFIG))
  for kind, count in (("train", 4), ("eval", 2)):
    one = _losses(tmp_path, kind)
    assert len(one) == count
    # Sums of halves instead of sums.
    np.testing.assert_allclose(_losses(whole, kind), one, rtol=1e-5)


def test_workers_agree_to_the_bit_and_only_the_chief_writes(whole):
  other = toy_job.log_folder(str(whole), 1)
  for kind in ("train", "eval"):
    assert _losses(other, kind) == _losses(whole, kind)
  assert not list(pathlib.Path(other).glob("model.ckpt*"))
  steps = [path.stem for path in whole.glob("model.ckpt-*.index")]
  assert sorted(steps) == [f"model.ckpt-{step}" for step in (12, 18, 24, 6)]


@pytest.mark.heavy
@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_worker_ends_the_job_and_it_resumes(whole, tmp_path, victim):
  with _job(tmp_path, step_seconds=0.2) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    code, stderr = toy_job.ended(processes[1 - victim])
    assert time.monotonic() - killed < 90
  assert code == 1
  assert stderr.startswith("a worker of this job was lost (")
  assert stderr.count("\n") == 1
  assert "start all workers again with the same command" in stderr
  # What it logged beyond the checkpoint is computed again, to the same.
  _run(tmp_path)
  _assert_same_end(tmp_path, whole)


@pytest.mark.heavy
@pytest.mark.parametrize(
  "receiver, number",
  [(0, signal.SIGTERM), (1, signal.SIGTERM), (1, signal.SIGINT)],
)
def test_a_signal_for_one_stops_all_at_the_same_step(
  whole, tmp_path, receiver, number
):
  with _job(tmp_path, step_seconds=0.2) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[receiver].send_signal(number)
    code, stderr = toy_job.ended(processes[receiver])
    assert code == 128 + number
    assert stderr.startswith("stopping") is (number == signal.SIGINT)
    # The others have got no signal: they end as after SIGTERM.
    assert toy_job.ended(processes[1 - receiver]) == (143, "")
  (chief,) = training.read_metrics(str(tmp_path), "train")[-1:]
  other = training.read_metrics(toy_job.log_folder(tmp_path, 1), "train")[-1]
  assert 6 < chief["step"] == other["step"] < 24
  assert chief["loss"] == other["loss"]
  path = tf.train.latest_checkpoint(str(tmp_path))
  assert path.endswith(f"model.ckpt-{chief['step']}")
  _run(tmp_path)
  _assert_same_end(tmp_path, whole)


@pytest.mark.heavy
def test_a_worker_that_falls_silent_is_noticed(tmp_path):
  with _job(tmp_path, step_seconds=0.2) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[1].send_signal(signal.SIGSTOP)  # Its connections stay open.
    code, stderr = toy_job.ended(processes[0])
  assert code == 1
  assert "was lost (" in stderr and "heartbeat timeout" in stderr


@pytest.mark.heavy
def test_all_follow_the_chief_past_a_damaged_checkpoint(whole, tmp_path):
  _run(tmp_path, stop_after=12)
  (data,) = tmp_path.glob("model.ckpt-12.data*")
  data.write_bytes(data.read_bytes()[:100])
  _run(tmp_path)
  assert list(tmp_path.glob("damaged-model.ckpt-12.data*"))
  _assert_same_end(tmp_path, whole)
  other = toy_job.log_folder(str(tmp_path), 1)
  assert _losses(other) == _losses(tmp_path)


@pytest.mark.heavy
def test_two_times_two_devices_equal_four(tmp_path):
  """Same examples and same dropout masks on each replica."""
  task = {"dropout_rate": 0.3}
  _run(tmp_path / "workers", num_devices=2, task=task)
  command = toy_job.command(
    tmp_path / "mirrored",
    _CONFIG,
    distribution="mirrored",
    num_devices=4,
    task=task,
  )
  with toy_job.started(1, command, cwd=_ROOT) as processes:
    assert toy_job.ended(processes[0]) == (0, "")
  np.testing.assert_allclose(
    _losses(tmp_path / "workers"), _losses(tmp_path / "mirrored"), rtol=1e-5
  )


@pytest.mark.heavy
def test_workers_roll_back_together(tmp_path):
  config = dict(
    num_train_steps=6,
    steps_per_loop=2,
    save_checkpoints_steps=1,
    on_divergence="rollback",
  )
  _run(tmp_path, config=config, task={"poison_at": 20})
  for folder in (tmp_path, toy_job.log_folder(tmp_path, 1)):
    assert training.summarize(str(folder))["rollbacks"] == 3
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-6")


def test_one_process_asks_nobody():
  strategy = distribution.make_strategy("one_device")
  assert multi_worker.num_workers(strategy) == 1
  assert multi_worker.is_chief(strategy)
  assert multi_worker.from_chief(strategy, 7) == 7
  own = tf.Variable(False)
  flag = multi_worker.SharedFlag(strategy, own)
  flag.share()
  assert flag.value is own
  # Nor are its errors about others.
  error = tf.errors.UnavailableError(None, None, "out of reach")
  lost = multi_worker.naming_lost_workers(strategy)
  with pytest.raises(tf.errors.UnavailableError), lost:
    raise error


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
