"""Trains the toy task in new processes, for tests of several devices.

    python -m official_albert.testing.toy_job \\
      '{"model_dir": "RUN", "config": {}}'

TensorFlow can create logical devices, or connect to other workers, only once
in a process. The settings are `model_dir`, `config` (of the TrainConfig),
`distribution`, `num_devices`, `precision`, `task` (of the ToyTask) and
`predicts`. Every worker keeps its own log (the chief in the run's folder), so
tests can check that all workers computed the same values.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
from typing import Any, Iterator, Sequence

import tensorflow as tf

from official_albert import distribution, training
from official_albert.testing import toy_task

_SECONDS = 400  # Much longer than any of these jobs takes on a busy machine.


def main(text: str) -> int:
  """Trains with the settings in a JSON text; returns the exit code."""
  logging.getLogger("tensorflow").setLevel(logging.ERROR)
  settings = json.loads(text)
  predicts, task = settings.get("predicts"), settings.get("task", {})
  kind = toy_task.PredictingToyTask if predicts else toy_task.ToyTask
  try:
    strategy = distribution.make_strategy(
      settings.get("distribution", "one_device"), settings.get("num_devices", 0)
    )
    distribution.set_precision(settings.get("precision", "float32"))
    folder = settings["model_dir"]
    config = toy_task.config(folder, **settings["config"])
    if not distribution.is_chief(strategy):
      folder = log_folder(folder, strategy.cluster.index)
    lost = distribution.naming_lost_workers(strategy)
    with lost, training.Reporter(folder) as report:
      training.Trainer([kind(**task)], config, strategy, report).run()
  except tf.errors.OutOfRangeError:
    return 0 if task.get("stop_after") else 1
  except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  return 0


def log_folder(model_dir: str, worker: int) -> str:
  """Returns the log folder of a worker that is not the chief."""
  return os.path.join(model_dir, f"worker-{worker}")


def free_addresses(count: int) -> list[str]:
  """Returns addresses of this machine with free ports."""
  with contextlib.ExitStack() as stack:
    sockets = [
      stack.enter_context(socket.create_server(("127.0.0.1", 0)))
      for _ in range(count)
    ]
    return [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]


@contextlib.contextmanager
def started(
  workers: int, command: Sequence[str], **popen: Any
) -> Iterator[list[subprocess.Popen]]:
  """Runs `command` once for each worker; kills survivors at the end."""
  cluster, processes = {"worker": free_addresses(workers)}, []
  with contextlib.ExitStack() as stack:
    for index in range(workers):
      task = {"type": "worker", "index": index}
      job = json.dumps({"cluster": cluster, "task": task})
      process = subprocess.Popen(
        command,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": job},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
      )
      stack.callback(process.communicate)
      stack.callback(process.kill)  # Runs first.
      processes.append(process)
    yield processes


def ended(process: subprocess.Popen) -> tuple[int, str]:
  """Waits for a process; returns its exit code and standard error."""
  _, stderr = process.communicate(timeout=_SECONDS)
  return process.returncode, without_notices(stderr)


def without_notices(stderr: str) -> str:
  """Removes what TensorFlow 2.20 logs whatever TF_CPP_MIN_LOG_LEVEL is."""
  notice = r"^(WARNING: All log messages before absl|I0000 ).*\n"
  return re.sub(notice, "", stderr, flags=re.MULTILINE)


def command(model_dir, config=None, **settings: Any) -> list[str]:
  """Returns the command line of `main` with these settings."""
  settings.update(model_dir=str(model_dir), config=config or {})
  module = "official_albert.testing.toy_job"
  return [sys.executable, "-m", module, json.dumps(settings)]


def run(workers: int, model_dir, config=None, **settings: Any) -> None:
  """Runs a job that must end without an error."""
  with started(workers, command(model_dir, config, **settings)) as processes:
    for process in processes:
      assert ended(process) == (0, "")


if __name__ == "__main__":
  sys.exit(main(sys.argv[1]))
