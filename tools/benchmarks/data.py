"""Measures the speed and the memory of making and reading records."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from official_albert import modeling, tfrecords
from official_albert.tasks.pretraining import task as task_lib
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import child_programs, printing

_HEAD = (
  *("masking", "workers", "tokens", "seconds", "tokens/s", "written"),
  "largest process",
)
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
  line = child_programs.command(f"official_albert.tools.{name}", *arguments)
  start = time.monotonic()
  done = subprocess.run(
    [sys.executable, "-c", _MEASURE, *line], stdout=subprocess.PIPE
  )
  if done.returncode:
    raise ValueError(f"tools.{name} failed; see its message above.")
  return time.monotonic() - start, 1024 * int(done.stdout)


def run(benchmark: str, options: turns.Options) -> None:
  """Measures in turns, and prints two tables."""
  del benchmark
  made: dict[tuple[str, int], list[tuple[float, int]]] = {}
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
    rows = []
    for (masking, workers), runs in made.items():
      manifest = tfrecords.read_manifest(f"{folder}/{masking}-{workers}-0")
      splits: Any = manifest.splits.values()
      tokens = sum(split.statistics["tokens"] for split in splits)
      size = sum(shard.bytes for split in splits for shard in split.shards)
      times, peaks = zip(*runs)
      seconds = statistics.median(times)
      rows.append(
        (
          *(masking, workers, f"{tokens:,}", f"{seconds:.1f}"),
          *(f"{tokens / seconds:,.0f}", f"{size / 1e6:.1f} MB"),
          f"{max(peaks) / 2**20:.0f} MiB",
        )
      )
    print(f"\n{printing.table(_HEAD, rows)}")
    for masking in _MASKINGS:
      rate = _read(f"{folder}/{masking}-1-0", options.batch_size)
      tokens_rate = rate * options.batch_size * options.max_seq_length
      print(
        f"{masking}: {rate:.1f} batches/s read, {tokens_rate:,.0f} tokens/s"
      )


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
