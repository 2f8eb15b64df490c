"""Runs jobs, several at once, and resumes where an earlier run stopped.

When a job has succeeded, its values are written to OUTPUT/done/KEY.json; a job
with such a file is not run again. The output of its process goes to
OUTPUT/logs/KEY.log; in a bucket, the log appears when the process has ended. If
a job fails, the jobs that need it are skipped and the others run.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import shlex
import signal
import subprocess
import tempfile
import time
from typing import Any, BinaryIO, Callable, Mapping, Optional, Sequence

from official_albert import distribution, files
from official_albert.tools.cli import child_programs, printing

# The values of finished jobs, by their keys.
Values = Mapping[str, Mapping[str, Any]]
_POLL_SECONDS = 0.2
_REPORT_SECONDS = 60.0
_LINE_LENGTH = 160
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclasses.dataclass(frozen=True)
class Job:
  """One process. It is finished when its values have been written."""

  key: str  # A unique name, and the path of its folder.
  # From the values of the jobs in `needs` to the arguments of `python -m`.
  arguments: Callable[[Values], list[str]]
  # Reads its values, which are JSON, when the process has succeeded.
  read: Callable[[], dict[str, Any]] = dict
  needs: tuple[str, ...] = ()  # Keys of the jobs that must finish first.
  # Approximate floating-point operations, for the estimate of the time left; 0
  # for the preparation of data, whose cost is unknown.
  cost: float = 0.0
  result: str = ""  # A file that exists only if the command has succeeded.
  uses_all_cores: bool = False  # Runs alone.
  note: str = ""  # A remark for --dry_run.
  python: str = ""  # The interpreter, if not this one.
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def lock(output_dir: str) -> BinaryIO:
  """Creates and locks a folder until the file is closed or the process ends."""
  files.make_folder(output_dir)
  return files.lock(
    os.path.join(output_dir, "lock"),
    f"another process runs experiments in {output_dir}: wait until it has "
    "finished, or set another --output_dir.",
  )


def _prepare_process(cores: Sequence[int]) -> None:
  os.sched_setaffinity(0, cores)
  # If the runner is killed by SIGKILL, its `finally` does not run, and the next
  # runner would train in the same folder.
  _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclasses.dataclass(frozen=True)
class _Record:
  """The record of a finished job."""

  values: dict[str, Any] = dataclasses.field(default_factory=dict)
  command: list[str] = dataclasses.field(default_factory=list)
  machine: str = ""
  at_once: int = 1


class Runner:
  """Runs the jobs of a plan.

  `values` has the values of finished jobs, `failed` the reasons, by key.
  """

  def __init__(
    self,
    jobs: Mapping[str, Job],
    output_dir: str,
    num_parallel: int,
    lock_file: Optional[BinaryIO] = None,
  ):
    """Reads what is finished; runs nothing yet.

    Each job follows those that it needs. Parallel jobs divide the cores. They
    inherit the result of `lock`, so the last process unlocks it.
    """
    cores = sorted(os.sched_getaffinity(0))
    self.values: dict[str, dict[str, Any]] = {}
    self.failed: dict[str, str] = {}
    self._jobs, self._output_dir = jobs, output_dir
    self._lock_file, self._num_parallel = lock_file, num_parallel
    # Each running job has a process and one or all of the lists of cores.
    self._free = [cores[i::num_parallel] for i in range(num_parallel)]
    self._running: dict[str, tuple[subprocess.Popen, list[list[int]]]] = {}
    self._finished_cost = 0.0
    # The largest number of jobs at once on each machine.
    self._machines: dict[str, int] = {}
    done = os.path.join(output_dir, "done")
    finished = {*files.list_dir(done)} if files.is_dir(done) else set()
    for key in jobs:
      path = self._record_path(key)
      if os.path.basename(path) in finished:
        advice = "remove it to run the job again"
        self._add_record(key, files.read_json(path, _Record, advice))

  def machines(self) -> str:
    """Describes the machines that the finished jobs ran on."""
    return "; ".join(
      f"{name}, {count} jobs at once" if count > 1 else name
      for name, count in self._machines.items()
    )

  def run(self) -> None:
    """Runs the unfinished jobs."""
    print(
      f"{len(self._jobs)} jobs, {len(self.values)} already finished, "
      f"{self._num_parallel} at once",
      flush=True,
    )
    self._start_time = self._last_report = time.monotonic()
    logs: Any = contextlib.nullcontext(os.path.join(self._output_dir, "logs"))
    if files.is_remote(self._output_dir):  # Where processes cannot write.
      logs = tempfile.TemporaryDirectory(prefix="official-albert-")
    with logs as self._logs:
      try:
        while self._start_ready_jobs() or self._running:
          self._collect_ended_processes()
          self._report_running_jobs()
          time.sleep(_POLL_SECONDS)
      finally:
        for process, _ in self._running.values():
          process.terminate()
        for key, (process, _) in self._running.items():
          process.wait()
          self._keep_log(key)

  def _record_path(self, key: str) -> str:
    name = f"{key.replace('/', '__')}.json"
    return os.path.join(self._output_dir, "done", name)

  def _add_record(self, key: str, record: _Record) -> None:
    self.values[key] = record.values
    if name := record.machine:
      at_once = max(record.at_once, self._machines.get(name, 1))
      self._machines[name] = at_once

  def _log(self, key: str) -> str:
    return os.path.join(self._logs, f"{key}.log")

  def _keep_log(self, key: str) -> str:
    """Appends the log of an ended process to earlier ones; returns its path."""
    path = os.path.join(self._output_dir, "logs", f"{key}.log")
    if files.is_remote(path):
      with files.open(path, "ab") as file:
        file.write(files.read_bytes(self._log(key)))
    return path

  def _unfinished(self) -> list[Job]:
    done = {*self.values, *self.failed}
    return [job for key, job in self._jobs.items() if key not in done]

  def _start_ready_jobs(self) -> bool:
    """Starts the jobs that can start; returns whether any were waiting."""
    waiting = [j for j in self._unfinished() if j.key not in self._running]
    # Jobs that need all cores prepare data for the others.
    waiting.sort(key=lambda job: not job.uses_all_cores)
    for job in waiting:
      failed = [need for need in job.needs if need in self.failed]
      if failed:
        self.failed[job.key] = f"needs {failed[0]}, which failed"
      elif all(need in self.values for need in job.needs):
        if not self._free or (job.uses_all_cores and self._running):
          break
        self._start(job)
    return bool(waiting)

  def _start(self, job: Job) -> None:
    if job.result and files.exists(job.result):
      self._finish(job, [])
      return
    log = self._log(job.key)
    for path in (log, os.path.join(self._output_dir, job.key)):
      files.make_folder(os.path.dirname(path))
    count = self._num_parallel if job.uses_all_cores else 1
    lanes = self._free[:count]
    try:
      command = child_programs.command(*job.arguments(self.values))
      command[0] = job.python or command[0]
      with files.open(log, "a") as file:
        file.write(f"$ python {shlex.join(command[1:])}\n")
        file.flush()
        process = subprocess.Popen(
          command,
          stdout=file,
          stderr=subprocess.STDOUT,
          env={**distribution.training_environment(), **job.environment},
          pass_fds=[self._lock_file.fileno()] if self._lock_file else [],
          preexec_fn=lambda: _prepare_process(sum(lanes, [])),
        )
    except (OSError, ValueError) as error:
      self._fail(job, str(error))
      return
    del self._free[:count]
    self._running[job.key] = process, lanes

  def _collect_ended_processes(self) -> None:
    for key, (process, lanes) in list(self._running.items()):
      code = process.poll()
      if code is None:
        continue
      del self._running[key]
      self._free += lanes
      job, log = self._jobs[key], self._keep_log(key)
      if code:
        reason = _last_line(self._log(key))
        self._fail(job, f"exit code {code}: {reason} ({log})")
      else:
        self._finish(job, process.args[1:])

  def _fail(self, job: Job, reason: str) -> None:
    self.failed[job.key] = reason
    print(f"FAILED {job.key}: {reason}", flush=True)

  def _finish(self, job: Job, command: Sequence[str]) -> None:
    try:
      values = job.read()
    except (OSError, ValueError, KeyError, IndexError) as error:
      self._fail(job, f"the results cannot be read: {error!r}")
      return
    record = _Record(
      values,
      list(command),
      distribution.describe_machine(),
      1 if job.uses_all_cores else self._num_parallel,
    )
    path = self._record_path(job.key)
    files.make_folder(os.path.dirname(path))
    files.write_json(path, dataclasses.asdict(record))
    self._add_record(job.key, record)
    self._finished_cost += job.cost if command else 0.0
    numbers = "".join(
      f"{name} {value:.4g}, "
      for name, value in values.items()
      if isinstance(value, float)
    )
    print(
      f"[{len(self.values)}/{len(self._jobs)}] {job.key}: {numbers}"
      f"{self._time_left()}",
      flush=True,
    )

  def _report_running_jobs(self) -> None:
    """Prints the last line of each running job's log once a minute."""
    if time.monotonic() - self._last_report < _REPORT_SECONDS:
      return
    self._last_report = time.monotonic()
    for key in self._running:
      print(f"  {key}: {_last_line(self._log(key))[:_LINE_LENGTH]}", flush=True)

  def _time_left(self) -> str:
    """Estimates the time left from the cost of what this runner finished."""
    rest = sum(job.cost for job in self._unfinished())
    if not rest:
      return "nothing left"
    if not self._finished_cost:
      return "time left unknown"
    seconds = time.monotonic() - self._start_time
    left = seconds * rest / self._finished_cost
    return f"about {printing.format_seconds(left)} left"


def _last_line(path: str) -> str:
  with files.open(path, errors="replace") as file:
    lines = [line.strip() for line in file if line.strip()]
  return lines[-1] if lines else "no output"
