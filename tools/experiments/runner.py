"""Runs jobs, several at once, and goes on where it was after a kill.

What a job found is written to OUTPUT/done/KEY.json, in one step, when it has
ended well; a job that has such a file is not run again. Its output goes to
OUTPUT/logs/KEY.log. A job that fails does not end the others: those that need
it are left out, and the table says so.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import (
  Any,
  BinaryIO,
  Callable,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

from official_albert import distribution, files
from tools.cli import progress_line
from tools.experiments import jobs as jobs_lib

_POLL_SECONDS = 0.2
_TELL_SECONDS = 60.0
_TOLD_LENGTH = 160
# Of linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _prepare_process(cores: Sequence[int]) -> None:
  os.sched_setaffinity(0, cores)
  # Where the runner is killed outright, its `finally` is not reached, and the
  # next one would train in the same folder.
  _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def lock(output_dir: str) -> BinaryIO:
  """Makes a folder ours until the file is closed or the process is gone.

  Raises:
    OSError: another process has it, or it cannot be made or written.
  """
  files.make_folder(output_dir)
  return files.lock(
    os.path.join(output_dir, "lock"),
    f"another process runs experiments in {output_dir}: wait for its end, or "
    "give another --output_dir.",
  )


def check_num_parallel(num_parallel: int) -> list[int]:
  """The cores that so many jobs at once share.

  Raises:
    ValueError: there are fewer cores than that.
  """
  cores = sorted(os.sched_getaffinity(0))
  if not 1 <= num_parallel <= len(cores):
    raise ValueError(
      f"--num_parallel must be from 1 to {len(cores)}, the number of cores, "
      f"got {num_parallel}."
    )
  return cores


class Results:
  """What finished jobs found, as files below the output folder."""

  def __init__(self, output_dir: str):
    self._folder = os.path.join(output_dir, "done")

  def _path(self, key: str) -> str:
    return os.path.join(self._folder, f"{key.replace('/', '__')}.json")

  def read(self, key: str) -> Optional[dict[str, Any]]:
    """What a job found; None if it is not finished.

    Raises:
      ValueError: its file is damaged.
    """
    try:
      with open(self._path(key), encoding="utf-8") as file:
        return json.load(file)["values"]
    except FileNotFoundError:
      return None
    except (ValueError, KeyError) as error:
      raise ValueError(
        f"{self._path(key)} is damaged ({error}): remove it, and the job is "
        "run again."
      ) from error

  def write(self, key: str, **record: Any) -> None:
    """Keeps `values`, `seconds`, `command`, `machine`, `at_once` of a job."""
    os.makedirs(self._folder, exist_ok=True)
    temporary = f"{self._path(key)}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
      json.dump(record, file, indent=1)
    os.replace(temporary, self._path(key))

  def seconds(self, key: str) -> float:
    """How long a finished job took; 0 where its last process did only part."""
    with open(self._path(key), encoding="utf-8") as file:
      return json.load(file)["seconds"]

  def machine(self, key: str) -> tuple[str, int]:
    """What a finished job ran on, and how many others with it."""
    with open(self._path(key), encoding="utf-8") as file:
      record = json.load(file)
    return record.get("machine", ""), record.get("at_once", 1)


class _Running(NamedTuple):
  process: subprocess.Popen
  # Which shares of the cores it has.
  lanes: list[int]
  begun: float
  # Whether an earlier process has done part of it.
  resumed: bool


class Runner:
  """Runs the jobs of a plan.

  Attributes:
    failed: of each job that failed, why, in one sentence.
  """

  def __init__(
    self,
    jobs: Mapping[str, jobs_lib.Job],
    output_dir: str,
    num_parallel: int,
    note: Callable[[str], None] = lambda line: print(line, flush=True),
    held: Optional[BinaryIO] = None,
  ):
    """Nothing is run yet.

    Args:
      jobs: by key, each after those that it needs.
      output_dir: see the module.
      num_parallel: jobs at once, each on its share of the cores.
      note: is told of the progress.
      held: of `lock`: the folder is free when the last job's process is gone,
        not before.

    Raises:
      ValueError: there are fewer cores than that.
    """
    cores = check_num_parallel(num_parallel)
    self.failed: dict[str, str] = {}
    self._jobs = jobs
    self._results = Results(output_dir)
    self._output_dir = output_dir
    self._note = note
    self._held = held
    self._told = time.monotonic()
    self._lanes = [cores[i::num_parallel] for i in range(num_parallel)]
    self._free = list(range(num_parallel))
    self._running: dict[str, _Running] = {}
    self._values: dict[str, dict[str, Any]] = {}
    self._paid = self._busy_seconds = 0.0

  def finished(self) -> dict[str, dict[str, Any]]:
    """What the jobs that are finished have found."""
    for key in self._jobs:
      values = self._results.read(key)
      if values is not None:
        self._values[key] = values
    return dict(self._values)

  def machines(self) -> str:
    """What the finished jobs ran on."""
    at_once: dict[str, int] = {}
    for key in self._values:
      name, count = self._results.machine(key)
      at_once[name] = max(count, at_once.get(name, 1))
    return "; ".join(
      f"{name}, {count} jobs at once" if count > 1 else name
      for name, count in at_once.items()
      if name
    )

  def run(self) -> dict[str, dict[str, Any]]:
    """Runs what is not finished; returns what all finished jobs found."""
    self.finished()
    self._learn_speed()
    found = len(self._values)
    self._note(
      f"{len(self._jobs)} jobs, {found} finished before, "
      f"{len(self._free)} at once"
    )
    try:
      while self._start_some() or self._running:
        self._collect()
        self._tell_of_running()
        time.sleep(_POLL_SECONDS)
    finally:
      # Its own processes must not outlive it; each can be taken up again.
      for running in self._running.values():
        running.process.send_signal(signal.SIGTERM)
      for running in self._running.values():
        running.process.wait()
    return self._values

  def _learn_speed(self) -> None:
    """From what was finished before."""
    for key in self._values:
      self._pay(self._jobs[key], self._results.seconds(key))

  def _pay(self, job: jobs_lib.Job, seconds: float) -> None:
    if job.cost and seconds:
      self._busy_seconds += seconds
      self._paid += job.cost

  def _waiting(self) -> list[jobs_lib.Job]:
    """Those that take all cores, which is data, come first."""
    waiting = [
      job
      for key, job in self._jobs.items()
      if key not in self._values
      and key not in self.failed
      and key not in self._running
    ]
    return sorted(waiting, key=lambda job: not job.uses_all_cores)

  def _start_some(self) -> bool:
    """Starts what can be started; whether anything waits still."""
    waiting = self._waiting()
    for job in waiting:
      lost = [need for need in job.needs if need in self.failed]
      if lost:
        self.failed[job.key] = f"needs {lost[0]}, which failed"
        continue
      if any(need not in self._values for need in job.needs):
        continue
      if not self._free or (job.uses_all_cores and self._running):
        break
      self._start(job)
    return bool(waiting)

  def _start(self, job: jobs_lib.Job) -> None:
    if job.result and os.path.exists(job.result):
      self._finish(job, 0.0, [])
      return
    log = self._log(job.key)
    resumed = os.path.exists(log)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    count = len(self._lanes) if job.uses_all_cores else 1
    lanes, self._free = self._free[:count], self._free[count:]
    cores = [core for lane in lanes for core in self._lanes[lane]]
    try:
      command = [sys.executable, "-m", *job.arguments(self._values)]
      with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ python {shlex.join(command[1:])}\n")
        file.flush()
        process = subprocess.Popen(
          command,
          stdout=file,
          stderr=subprocess.STDOUT,
          pass_fds=[self._held.fileno()] if self._held else [],
          preexec_fn=lambda: _prepare_process(cores),
        )
    except (OSError, ValueError) as error:
      self._free += lanes
      self._fail(job, str(error))
      return
    self._running[job.key] = _Running(process, lanes, time.monotonic(), resumed)

  def _collect(self) -> None:
    for key in list(self._running):
      process, lanes, begun, resumed = self._running[key]
      if process.poll() is None:
        continue
      del self._running[key]
      self._free += lanes
      log = self._log(key)
      if process.returncode:
        self._fail(
          self._jobs[key],
          f"exit code {process.returncode}: {last_line(log)} ({log})",
        )
        continue
      seconds = 0.0 if resumed else time.monotonic() - begun
      self._finish(self._jobs[key], seconds, process.args)

  def _log(self, key: str) -> str:
    return os.path.join(self._output_dir, "logs", f"{key}.log")

  def _fail(self, job: jobs_lib.Job, why: str) -> None:
    self.failed[job.key] = why
    self._note(f"FAILED {job.title}: {why}")

  def _tell_of_running(self) -> None:
    """Once a minute, the last line of each running job's log."""
    if time.monotonic() - self._told < _TELL_SECONDS:
      return
    self._told = time.monotonic()
    for key in self._running:
      line = last_line(self._log(key))[:_TOLD_LENGTH]
      self._note(f"  {self._jobs[key].title}: {line}")

  def _finish(
    self, job: jobs_lib.Job, seconds: float, command: Sequence[str]
  ) -> None:
    try:
      values = job.read()
    except (OSError, ValueError, KeyError, IndexError) as error:
      self._fail(job, f"its results cannot be read: {error!r}")
      return
    self._results.write(
      job.key,
      values=values,
      seconds=seconds,
      command=list(command[1:]),
      machine=distribution.describe_machine(),
      at_once=1 if job.uses_all_cores else len(self._lanes),
    )
    self._values[job.key] = values
    self._pay(job, seconds)
    done = len(self._values)
    self._note(
      f"[{done}/{len(self._jobs)}] {job.title}: {_brief(values)}"
      f"{progress_line.format_seconds(seconds)}, {self._left()}"
    )

  def _left(self) -> str:
    """About how long the rest takes, at the speed of what is done."""
    rest = sum(
      job.cost
      for key, job in self._jobs.items()
      if key not in self._values and key not in self.failed
    )
    if not rest:
      return "nothing left"
    if not self._paid:
      return "time left not known yet"
    seconds = rest * self._busy_seconds / self._paid / len(self._lanes)
    return f"about {progress_line.format_seconds(seconds)} left"


def last_line(path: str) -> str:
  """The last line of a log that says anything."""
  with open(path, encoding="utf-8", errors="replace") as file:
    lines = [line.strip() for line in file if line.strip()]
  return lines[-1] if lines else "it said nothing"


_SHOWN = (
  ("masked_lm_loss", "masked LM loss {:.3f}"),
  ("MNLI", "{:.1f}"),
  ("SST-2", "{:.1f}"),
  ("SQuAD1.1", "{:.1f}"),
  ("SQuAD2.0", "{:.1f}"),
  ("RACE", "{:.1f}"),
  ("nsp_accuracy", "{:.1f}"),
  ("sop_accuracy", "{:.1f}"),
)


def _brief(values: Mapping[str, Any]) -> str:
  told = [form.format(values[n]) for n, form in _SHOWN if n in values]
  return "".join(f"{text}, " for text in told)
