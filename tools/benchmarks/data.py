"""Measures the speed and the memory of making and reading records."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import tempfile
import time
from typing import Any

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import command_line, printing

_MASKINGS = ("static", "dynamic")
_WORKERS = (1, 2)
_READ_SECONDS = 5.0
# Runs a program and prints the KiB of its largest process. Those of a process
# that is started by this large one would be those of this one.
_MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def run_program(name: str, *arguments: str) -> tuple[float, int]:
  """Runs `tools.NAME`; returns seconds, and bytes of its largest process."""
  line = command_line.command(name, *arguments)
  start = time.monotonic()
  done = subprocess.run(
    [sys.executable, "-c", _MEASURE, *line], stdout=subprocess.PIPE
  )
  if done.returncode:
    raise ValueError(f"tools.{name} failed; see its message above.")
  return time.monotonic() - start, 1024 * int(done.stdout)


def run(benchmark: str, options: turns.Options) -> None:
  """Measures in turns, and prints a table."""
  made: dict[tuple[str, int], list[tuple[float, int]]] = {}
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    for repeat, masking, workers in itertools.product(
      range(options.repeats), _MASKINGS, _WORKERS
    ):
      ran = run_program(
        "create_pretraining_data",
        f"--input_files={options.input_files}",
        f"--spm_model_file={options.spm_model_file}",
        f"--output_dir={folder}/{masking}-{workers}-{repeat}",
        f"--max_seq_length={options.max_seq_length}",
        f"--masking={masking}",
        f"--num_workers={workers}",
        "--dupe_factor=1",
      )
      made.setdefault((masking, workers), []).append(ran)
    for (masking, workers), runs in made.items():
      records = f"{folder}/{masking}-{workers}-0"
      splits: Any = tfrecords.read_manifest(records).splits.values()
      tokens = sum(split.statistics["tokens"] for split in splits)
      size = sum(shard.bytes for split in splits for shard in split.shards)
      read = options.max_seq_length * _read(records, options.batch_size)
      times, peaks = zip(*runs)
      row = {
        "masking": masking,
        "workers": str(workers),
        "tokens": f"{tokens:,}",
        "seconds": printing.spread(times, ".1f"),
        "tokens/s": printing.spread([tokens / x for x in times], ",.0f"),
        "written": f"{size / 1e6:.1f} MB",
        "largest process": f"{max(peaks) / 2**20:.0f} MiB",
        "tokens/s read": f"{read:,.0f}",
      }
      rows.append(row)
  turns.report(options, benchmark, options.workload(), rows, rows)


def _read(input_dir: str, batch_size: int) -> float:
  """Returns training sequences per second."""
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
    count += batch_size
  return count / (time.monotonic() - start)
