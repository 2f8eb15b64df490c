"""The toy task in processes of its own, for tests of several devices.

    python -m official_albert.testing.toy_job \\
      '{"model_dir": "RUN", "config": {}}'

TensorFlow can be cut into devices, or joined to other workers, only once in a
process. Every worker keeps a log of its own (the chief in the run's folder), so
that tests can see that all computed the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from typing import Any, Iterator, Sequence

import tensorflow as tf

# Python in a tf.data pipeline would hang a process that ends meanwhile.
from tensorflow.python.data.experimental.ops import testing

from official_albert import distribution, training
from official_albert.testing import toy_task

_SECONDS = 400  # Many times what any of these jobs takes on a busy machine.


def main(text: str) -> int:
  """Trains as the JSON `text` says; returns the exit code.

  `model_dir` and `config` make the TrainConfig; `distribution`, `num_devices`
  and `task` may be given; with `predicts`, predictions are scored too;
  `stop_after` ends the data after so many steps, as if the machine had been
  taken away, and `step_seconds` slows them down.
  """
  logging.getLogger("tensorflow").setLevel(logging.ERROR)
  settings = json.loads(text)
  try:
    strategy = distribution.make_strategy(
      settings.get("distribution", "one_device"), settings.get("num_devices", 0)
    )
    folder = settings["model_dir"]
    config = toy_task.config(folder, **settings["config"])
    if not distribution.is_chief(strategy):
      folder = log_folder(folder, strategy.cluster.index)
    kind = toy_task.ToyTask
    if settings.get("predicts"):
      kind = toy_task.PredictingToyTask
    task = kind(**settings.get("task", {}))
    if settings.get("step_seconds"):
      _slow_down(task, settings["step_seconds"])
    if settings.get("stop_after"):
      _stop(task, settings["stop_after"])
    lost = distribution.naming_lost_workers(strategy)
    with lost, training.Reporter(folder) as report:
      training.train([task], config, strategy, report)
  except tf.errors.OutOfRangeError:
    return 0 if settings.get("stop_after") else 1
  except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  return 0


def log_folder(model_dir: str, worker: int) -> str:
  """Where a worker that is not the chief logs."""
  return os.path.join(model_dir, f"worker-{worker}")


def _slow_down(task: toy_task.ToyTask, seconds: float) -> None:
  fast, sleep = task.train_dataset, testing.sleep(int(seconds * 1e6))
  task.train_dataset = lambda *args: fast(*args).apply(sleep)


def _stop(task: toy_task.ToyTask, steps: int) -> None:
  endless = task.train_dataset

  def ending(size, start, context):
    local = context.num_replicas_in_sync // context.num_input_pipelines
    return endless(size, start, context).take(steps * local)

  task.train_dataset = ending


def free_addresses(count: int) -> list[str]:
  """Addresses of this machine that nobody listens at."""
  with contextlib.ExitStack() as stack:
    sockets = [
      stack.enter_context(socket.create_server(("127.0.0.1", 0)))
      for _ in range(count)
    ]
    return [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]


def environment(addresses: Sequence[str], index: int) -> dict[str, str]:
  """That of worker `index`."""
  task = {"type": "worker", "index": index}
  cluster = {"cluster": {"worker": list(addresses)}, "task": task}
  quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": json.dumps(cluster)}
  return {**os.environ, **quiet}


@contextlib.contextmanager
def started(
  workers: int, command: Sequence[str], **popen: Any
) -> Iterator[list[subprocess.Popen]]:
  """Runs `command` once for each worker; kills what is left at the end."""
  addresses = free_addresses(workers)
  processes = []
  try:
    for index in range(workers):
      processes.append(
        subprocess.Popen(
          command,
          env=environment(addresses, index),
          stdout=subprocess.PIPE,
          stderr=subprocess.PIPE,
          text=True,
          **popen,
        )
      )
    yield processes
  finally:
    for process in processes:
      process.kill()
      process.communicate()


def ended(process: subprocess.Popen) -> tuple[int, str]:
  """The exit code and standard error of a process, once it ends."""
  _, stderr = process.communicate(timeout=_SECONDS)
  return process.returncode, stderr


def command(model_dir, config=None, **settings: Any) -> list[str]:
  """What to run; see `main`."""
  settings.update(model_dir=str(model_dir), config=config or {})
  module = "official_albert.testing.toy_job"
  return [sys.executable, "-m", module, json.dumps(settings)]


if __name__ == "__main__":
  sys.exit(main(sys.argv[1]))
