"""Jobs of real processes, which are killed, suspended and signalled."""

from __future__ import annotations

import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from official_albert import run_logs, runs
from official_albert.distribution import multi_worker
from official_albert.testing import toy_task

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


def test_a_worker_that_ends_while_all_meet_is_lost():
  error = tf.errors.AbortedError(
    None, None, "Barrier failed from a task error. Barrier Id: 1, " + "x " * 200
  )
  lost = r"was lost \(Barrier failed from a task error\): start all workers"
  with pytest.raises(ConnectionError, match=lost):
    multi_worker._raise_if_lost(error)


def test_the_strategy_of_tensorflow_is_refused():
  """Every worker would be the chief."""
  kind = tf.distribute.MultiWorkerMirroredStrategy
  strategy = kind.__new__(kind)  # The constructor would start a server.
  for function in (multi_worker.is_chief, multi_worker.barrier):
    with pytest.raises(ValueError, match="make_strategy"):
      function(strategy)


def _slow_job(folder):
  """Starts two workers; a context of their processes."""
  command = toy_task.command(
    folder,
    _CONFIG,
    distribution="multi_worker",
    num_devices=1,
    task={"step_seconds": 0.2},
  )
  return toy_task.started(2, command, cwd=_ROOT, preexec_fn=_interruptible)


def _run(folder, config=None, num_devices=1, **task):
  """Runs a job of two workers that has to end without an error."""
  toy_task.run_job(
    2,
    folder,
    {**_CONFIG, **(config or {})},
    distribution="multi_worker",
    num_devices=num_devices,
    task=task,
  )


def _wait_for(folder, step, processes):
  while not (folder / f"model.ckpt-{step}.index").exists():
    for process in processes:
      assert process.poll() is None, toy_task.ended(process)
    time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The folder of an uninterrupted run of two workers."""
  folder = tmp_path_factory.mktemp("job") / "whole"
  _run(folder)
  return folder


def _assert_same_end(folder, whole):
  for kind in ("train", "eval"):
    ends = [toy_task.logged(f, "loss", kind)[-1] for f in (folder, whole)]
    assert ends[0] == ends[1]
  np.testing.assert_equal(toy_task.saved(folder), toy_task.saved(whole))


def test_two_workers_compute_what_one_device_computes(whole, tmp_path):
  cfg = toy_task.config(tmp_path, **_CONFIG)
  toy_task.run(toy_task.PredictingToyTask(), cfg)
  other = toy_task.log_folder(str(whole), 1)
  for kind, name, count in (
    ("train", "loss", 4),
    ("eval", "loss", 2),
    ("eval", "median_error", 2),
  ):
    one, two = (toy_task.logged(f, name, kind) for f in (tmp_path, whole))
    assert len(one) == count
    # Sums of halves instead of sums.
    np.testing.assert_allclose(two, one, rtol=1e-5)
    assert toy_task.logged(other, name, kind) == two
  # Only the chief writes checkpoints.
  assert not list(pathlib.Path(other).glob("model.ckpt*"))
  steps = sorted(map(runs.step_of, runs.list_checkpoints(str(whole))))
  assert steps == [6, 12, 18, 24]


@pytest.mark.heavy
@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_worker_ends_the_job_and_it_resumes(whole, tmp_path, victim):
  with _slow_job(tmp_path) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    code, stderr = toy_task.ended(processes[1 - victim])
    assert time.monotonic() - killed < 90
  assert code == 1
  assert stderr.startswith("a worker of this job was lost (")
  assert stderr.count("\n") == 1
  assert "start all workers again with the same command" in stderr
  # Steps that were logged after the checkpoint are repeated.
  _run(tmp_path)
  _assert_same_end(tmp_path, whole)


@pytest.mark.heavy
@pytest.mark.parametrize(
  "receiver, number",
  [(0, signal.SIGTERM), (1, signal.SIGTERM), (1, signal.SIGINT)],
)
def test_a_signal_to_one_worker_stops_all_at_the_same_step(
  whole, tmp_path, receiver, number
):
  with _slow_job(tmp_path) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[receiver].send_signal(number)
    code, stderr = toy_task.ended(processes[receiver])
    assert code == 128 + number
    assert stderr.startswith("stopping") is (number == signal.SIGINT)
    # The other one received no signal: it ends as after SIGTERM.
    assert toy_task.ended(processes[1 - receiver]) == (143, "")
  chief = run_logs.read_metrics(str(tmp_path), "train")[-1]
  other = run_logs.read_metrics(toy_task.log_folder(tmp_path, 1), "train")[-1]
  assert 6 < chief["step"] == other["step"] < 24
  assert chief["loss"] == other["loss"]
  path = tf.train.latest_checkpoint(str(tmp_path))
  assert path.endswith(f"model.ckpt-{chief['step']}")
  _run(tmp_path)
  _assert_same_end(tmp_path, whole)


@pytest.mark.heavy
def test_a_suspended_worker_is_noticed(tmp_path):
  with _slow_job(tmp_path) as processes:
    _wait_for(tmp_path, 6, processes)
    processes[1].send_signal(signal.SIGSTOP)  # Its connections stay open.
    code, stderr = toy_task.ended(processes[0])
  assert code == 1
  assert "was lost (" in stderr and "heartbeat" in stderr


@pytest.mark.heavy
def test_two_workers_with_two_devices_equal_four_devices(tmp_path):
  """Each replica has the same examples and dropout masks."""
  _run(tmp_path / "workers", num_devices=2, dropout_rate=0.3)
  toy_task.run_job(
    1,
    tmp_path / "mirrored",
    _CONFIG,
    distribution="mirrored",
    num_devices=4,
    task={"dropout_rate": 0.3},
  )
  for name, kind in (("loss", "train"), ("median_error", "eval")):
    found = [
      toy_task.logged(tmp_path / n, name, kind) for n in ("workers", "mirrored")
    ]
    np.testing.assert_allclose(*found, rtol=1e-5)
