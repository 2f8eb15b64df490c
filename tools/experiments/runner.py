"""Runs jobs, several at once, and resumes where an earlier run stopped.

When a job has succeeded, its values are written to OUTPUT/done/KEY.json; a job
with such a file is not run again. The output of its process goes to
OUTPUT/logs/KEY.log. If a job fails, the jobs that need it are skipped and the
others run.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, BinaryIO, Callable, Mapping, Optional, Sequence

from official_albert import distribution, files
from tools.cli import printing
from tools.experiments import declaration

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
  """One process. It is finished when its values have been written.

  Attributes:
    key: a unique name, and the path of its folder below the output folder.
    title: the name shown to users.
    arguments: maps the values of the jobs in `needs` to the arguments of
      `python -m`.
    read: reads its values, which are JSON, when the process has succeeded.
    needs: the keys of the jobs that must finish first.
    cost: approximate floating-point operations, to estimate the time left; 0
      for the preparation of data, whose cost is unknown.
    result: a file that exists only if the command has succeeded, or "".
    uses_all_cores: whether no other job may run at the same time.
    note: a remark for --dry_run.
  """

  key: str
  title: str
  arguments: Callable[[Values], list[str]]
  read: Callable[[], dict[str, Any]] = dict
  needs: tuple[str, ...] = ()
  cost: float = 0.0
  result: str = ""
  uses_all_cores: bool = False
  note: str = ""


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


@dataclasses.dataclass
class _Running:
  process: subprocess.Popen
  lanes: list[list[int]]
  start: float
  # Whether an earlier process did part of the work.
  resumed: bool


class Runner:
  """Runs the jobs of a plan.

  Attributes:
    failed: by the key of a failed job, the reason in one sentence.
  """

  def __init__(
    self,
    jobs: Mapping[str, Job],
    output_dir: str,
    num_parallel: int,
    note: Callable[[str], None] = lambda line: print(line, flush=True),
    lock_file: Optional[BinaryIO] = None,
  ):
    """Reads what is finished; runs nothing yet.

    Args:
      jobs: the jobs by key, each after those that it needs.
      output_dir: see the module.
      num_parallel: the number of parallel jobs, which divide the cores.
      note: prints a line about the progress.
      lock_file: the result of `lock`. Jobs inherit it, so the last process
        unlocks it.
    """
    cores = sorted(os.sched_getaffinity(0))
    self.failed: dict[str, str] = {}
    self._jobs, self._output_dir = jobs, output_dir
    self._note, self._lock_file = note, lock_file
    self._last_report = time.monotonic()
    self._num_lanes = num_parallel
    self._free = [cores[i::num_parallel] for i in range(num_parallel)]
    self._running: dict[str, _Running] = {}
    records = {key: self._read_record(key) for key in jobs}
    self._records = {key: record for key, record in records.items() if record}

  @property
  def values(self) -> dict[str, dict[str, Any]]:
    """The values of the finished jobs, by key."""
    return {key: record["values"] for key, record in self._records.items()}

  def machines(self) -> str:
    """Describes the machines that the finished jobs ran on."""
    at_once: dict[str, int] = {}
    for record in self._records.values():
      if name := record.get("machine", ""):
        at_once[name] = max(record.get("at_once", 1), at_once.get(name, 1))
    return "; ".join(
      f"{name}, {count} jobs at once" if count > 1 else name
      for name, count in at_once.items()
    )

  def run(self) -> dict[str, dict[str, Any]]:
    """Runs the unfinished jobs; returns the values of all finished ones."""
    self._note(
      f"{len(self._jobs)} jobs, {len(self._records)} already finished, "
      f"{self._num_lanes} at once"
    )
    try:
      while self._start_ready_jobs() or self._running:
        self._collect_ended_processes()
        self._report_running_jobs()
        time.sleep(_POLL_SECONDS)
    finally:
      for running in self._running.values():
        running.process.terminate()
      for running in self._running.values():
        running.process.wait()
    return self.values

  def _record_path(self, key: str) -> str:
    name = f"{key.replace('/', '__')}.json"
    return os.path.join(self._output_dir, "done", name)

  def _read_record(self, key: str) -> Optional[dict[str, Any]]:
    path = self._record_path(key)
    if not os.path.exists(path):
      return None
    with open(path, encoding="utf-8") as file:
      try:
        return {"values": {}, **json.load(file)}
      except (ValueError, TypeError) as error:
        raise ValueError(
          f"{path} is damaged ({error}): remove it to run the job again."
        ) from error

  def _log(self, key: str) -> str:
    return os.path.join(self._output_dir, "logs", f"{key}.log")

  def _unfinished(self) -> list[Job]:
    done = {*self._records, *self.failed}
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
      elif all(need in self._records for need in job.needs):
        if not self._free or (job.uses_all_cores and self._running):
          break
        self._start(job)
    return bool(waiting)

  def _start(self, job: Job) -> None:
    if job.result and os.path.exists(job.result):
      self._finish(job, 0.0, [])
      return
    log = self._log(job.key)
    resumed = os.path.exists(log)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    own = os.path.join(self._output_dir, job.key)
    os.makedirs(os.path.dirname(own), exist_ok=True)
    count = self._num_lanes if job.uses_all_cores else 1
    lanes = self._free[:count]
    try:
      command = [sys.executable, "-m", *job.arguments(self.values)]
      with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ python {shlex.join(command[1:])}\n")
        file.flush()
        process = subprocess.Popen(
          command,
          stdout=file,
          stderr=subprocess.STDOUT,
          pass_fds=[self._lock_file.fileno()] if self._lock_file else [],
          preexec_fn=lambda: _prepare_process(sum(lanes, [])),
        )
    except (OSError, ValueError) as error:
      self._fail(job, str(error))
      return
    del self._free[:count]
    self._running[job.key] = _Running(process, lanes, time.monotonic(), resumed)

  def _collect_ended_processes(self) -> None:
    for key, running in list(self._running.items()):
      code = running.process.poll()
      if code is None:
        continue
      del self._running[key]
      self._free += running.lanes
      job, log = self._jobs[key], self._log(key)
      if code:
        self._fail(job, f"exit code {code}: {_last_line(log)} ({log})")
      else:
        # The time of a part says nothing about the speed.
        seconds = 0.0 if running.resumed else time.monotonic() - running.start
        self._finish(job, seconds, running.process.args[1:])

  def _fail(self, job: Job, reason: str) -> None:
    self.failed[job.key] = reason
    self._note(f"FAILED {job.title}: {reason}")

  def _finish(self, job: Job, seconds: float, command: Sequence[str]) -> None:
    try:
      values = job.read()
    except (OSError, ValueError, KeyError, IndexError) as error:
      self._fail(job, f"the results cannot be read: {error!r}")
      return
    record = dict(
      values=values,
      seconds=seconds,
      command=list(command),
      machine=distribution.describe_machine(),
      at_once=1 if job.uses_all_cores else self._num_lanes,
    )
    path = self._record_path(job.key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write_json(path, record)
    self._records[job.key] = record
    self._note(
      f"[{len(self._records)}/{len(self._jobs)}] {job.title}: {_brief(values)}"
      f"{printing.format_seconds(seconds)}, {self._time_left()}"
    )

  def _report_running_jobs(self) -> None:
    """Prints the last line of each running job's log once a minute."""
    if time.monotonic() - self._last_report < _REPORT_SECONDS:
      return
    self._last_report = time.monotonic()
    for key in self._running:
      line = _last_line(self._log(key))[:_LINE_LENGTH]
      self._note(f"  {self._jobs[key].title}: {line}")

  def _time_left(self) -> str:
    """Estimates the time left from the speed of the finished jobs."""
    rest = sum(job.cost for job in self._unfinished())
    if not rest:
      return "nothing left"
    seconds = cost = 0.0
    for key, record in self._records.items():
      if record["seconds"] and self._jobs[key].cost:
        seconds += record["seconds"]
        cost += self._jobs[key].cost
    if not cost:
      return "time left unknown"
    left = rest * seconds / cost / self._num_lanes
    return f"about {printing.format_seconds(left)} left"


def _last_line(path: str) -> str:
  with open(path, encoding="utf-8", errors="replace") as file:
    lines = [line.strip() for line in file if line.strip()]
  return lines[-1] if lines else "no output"


def _brief(values: Mapping[str, Any]) -> str:
  """Returns the main numbers of a job for its progress line."""
  shown = ""
  if "masked_lm_loss" in values:
    shown = f"masked LM loss {values['masked_lm_loss']:.3f}, "
  for name in (*declaration.TASKS, "nsp_accuracy", "sop_accuracy"):
    if name in values:
      shown += f"{values[name]:.1f}, "
  return shown
