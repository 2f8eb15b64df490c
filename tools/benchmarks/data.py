"""Measures the speed and the memory of making and reading records."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from typing import Any, NamedTuple

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.cli import child_programs, printing

_MASKINGS = ("static", "dynamic")
_WORKERS = (1, 2)
_READ_SECONDS = 5.0
_INTERVAL_SECONDS = 0.05  # Between looks at a program.
_HEAD = (
  *("masking", "workers", "tokens", "seconds", "tokens/s", "written"),
  "largest process",
)


class ProgramRun(NamedTuple):
  """One run of a program, and the memory of its largest process."""

  seconds: float
  peak_bytes: int


def run_program(name: str, *arguments: str) -> ProgramRun:
  """Runs `tools.NAME`.

  The memory is that of /proc: `wait4` counts this process, too, because the
  program is forked from it.
  """
  peak = 0
  line = child_programs.command(f"official_albert.tools.{name}", *arguments)
  start = time.monotonic()
  with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
    try:
      while process.poll() is None:
        peak = max(peak, _peak_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(_INTERVAL_SECONDS)
    finally:
      process.terminate()  # After SIGTERM, which is for the program, too.
  if process.returncode:
    raise ValueError(f"tools.{name} failed; see its message above.")
  return ProgramRun(time.monotonic() - start, peak)


def _peak_bytes(pid: int) -> int:
  """Returns the largest peak of a process and its children so far."""
  folder = pathlib.Path(f"/proc/{pid}")
  try:
    found = re.search(r"VmHWM:\s*(\d+) kB", (folder / "status").read_text())
    children = (folder / "task" / str(pid) / "children").read_text().split()
  except OSError:  # It has ended.
    return 0
  own = 1024 * int(found[1]) if found else 0
  return max([own, *(_peak_bytes(int(child)) for child in children)])


def run(
  input_files: str,
  spm_model_file: str,
  max_seq_length: int,
  batch_size: int,
  repeats: int,
) -> None:
  """Measures in turns, and prints two tables; see the flags of the program."""
  pairs = list(itertools.product(_MASKINGS, _WORKERS))
  made: dict[tuple[str, int], list[ProgramRun]] = {pair: [] for pair in pairs}
  rows, rates = [], []
  with tempfile.TemporaryDirectory() as folder:
    for repeat, (masking, workers) in itertools.product(range(repeats), pairs):
      output = os.path.join(folder, f"{masking}-{workers}-{repeat}")
      ran = run_program(
        "create_pretraining_data",
        f"--input_files={input_files}",
        f"--spm_model_file={spm_model_file}",
        f"--output_dir={output}",
        f"--max_seq_length={max_seq_length}",
        f"--masking={masking}",
        f"--num_workers={workers}",
        "--dupe_factor=1",
      )
      made[masking, workers].append(ran)
    for (masking, workers), runs in made.items():
      output = os.path.join(folder, f"{masking}-{workers}-0")
      splits: Any = tfrecords.read_manifest(output).splits.values()
      tokens = sum(split.statistics["tokens"] for split in splits)
      size = sum(shard.bytes for split in splits for shard in split.shards)
      seconds = statistics.median(run.seconds for run in runs)
      peak = max(run.peak_bytes for run in runs)
      rows.append(
        (
          *(masking, workers, f"{tokens:,}", f"{seconds:.1f}"),
          *(f"{tokens / seconds:,.0f}", f"{size / 1e6:.1f} MB"),
          f"{peak / 2**30:.2f} GiB",
        )
      )
    for masking in _MASKINGS:
      rate = _read(os.path.join(folder, f"{masking}-1-0"), batch_size)
      tokens_rate = rate * batch_size * max_seq_length
      rates.append((masking, f"{rate:.1f}", f"{tokens_rate:,.0f}"))
  print(f"\n{printing.table(_HEAD, rows)}")
  print(f"\n{printing.table(('read', 'batches/s', 'tokens/s'), rates)}")


def _read(input_dir: str, batch_size: int) -> float:
  """Returns training batches per second."""
  config = dataclasses.replace(
    modeling.AlbertConfig.from_preset("albert_base_v2"),
    vocab_size=tfrecords.read_manifest(input_dir).tokenizer.vocab_size,
  )
  task = task_lib.PretrainingTask(config, input_dir)
  batches = iter(task.train_dataset(batch_size, 0))
  next(batches)  # Fills the reader's buffers.
  count, start = 0, time.monotonic()
  while time.monotonic() - start < _READ_SECONDS:
    next(batches)
    count += 1
  return count / (time.monotonic() - start)
