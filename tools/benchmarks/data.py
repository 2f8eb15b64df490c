"""How fast records are made and read, and with how much memory."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple, Optional, Sequence

import tfrecords
from official_albert import modeling
from tasks import pretraining
from tools.cli import markdown

MASKINGS = ("static", "dynamic")
WORKERS = (1, 2)
_READ_SECONDS = 5.0
_ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; `work_dir` None is the system's temporary folder."""

  input_files: str
  spm_model_file: str
  max_seq_length: int = 512
  batch_size: int = 32
  repeats: int = 3
  work_dir: Optional[str] = None


class Made(NamedTuple):
  """One run: wall seconds, bytes of its largest process, tokens, bytes."""

  seconds: float
  peak_bytes: int
  tokens: int
  written_bytes: int


def run(settings: Settings) -> None:
  """Measures and prints two Markdown tables."""
  made = {pair: [] for pair in itertools.product(MASKINGS, WORKERS)}
  rates = {}
  with tempfile.TemporaryDirectory(dir=settings.work_dir) as folder:
    for repeat in range(settings.repeats):
      for masking, workers in made:
        output = os.path.join(folder, f"{masking}-{workers}-{repeat}")
        made[masking, workers].append(make(settings, masking, workers, output))
        print(f"  {masking}, {workers} workers: {made[masking, workers][-1]}")
    for masking in MASKINGS:
      output = os.path.join(folder, f"{masking}-{WORKERS[0]}-0")
      rates[masking] = read(output, settings.batch_size)
  rows = [making_row(*pair, runs) for pair, runs in made.items()]
  print(f"\n{markdown.table(_MAKING_HEAD, rows)}")
  for masking in MASKINGS:
    one, more = (made[masking, workers] for workers in WORKERS)
    print(speedup_line(masking, one, more))
  batch_tokens = settings.batch_size * settings.max_seq_length
  rows = [
    (masking, f"{rate:.1f}", f"{rate * batch_tokens:,.0f}")
    for masking, rate in rates.items()
  ]
  print(f"\n{markdown.table(('read', 'batches/s', 'tokens/s'), rows)}")


_MAKING_HEAD = (
  *("masking", "workers", "tokens", "seconds", "tokens/s", "written"),
  "largest process",
)


def making_row(
  masking: str, workers: int, runs: Sequence[Made]
) -> tuple[str, ...]:
  """Returns the cells of a row: medians, and the largest peak memory."""
  seconds = statistics.median(run.seconds for run in runs)
  tokens = runs[0].tokens
  return (
    masking,
    str(workers),
    f"{tokens:,}",
    f"{seconds:.1f}",
    f"{tokens / seconds:,.0f}",
    f"{runs[0].written_bytes / 1e6:.0f} MB",
    f"{max(run.peak_bytes for run in runs) / 2**30:.2f} GiB",
  )


def speedup_line(
  masking: str, one: Sequence[Made], more: Sequence[Made]
) -> str:
  """How many times as fast several workers are: median over the rounds.

  The two runs of a round follow each other, so that a machine whose speed
  drifts from round to round counts little.
  """
  ratio = statistics.median(a.seconds / b.seconds for a, b in zip(one, more))
  return (
    f"{masking}: {WORKERS[1]} workers are {ratio:.2f} times as fast as "
    f"{WORKERS[0]} (median of {len(one)} rounds)"
  )


def make(settings: Settings, masking: str, workers: int, output: str) -> Made:
  """Runs tools.create_pretraining_data, text to shards, in its own process."""
  predictions = int(settings.max_seq_length * 0.15)
  command = [
    sys.executable,
    "-m",
    "tools.create_pretraining_data",
    f"--input_files={_absolute(settings.input_files)}",
    f"--spm_model_file={os.path.abspath(settings.spm_model_file)}",
    f"--output_dir={os.path.abspath(output)}",
    f"--max_seq_length={settings.max_seq_length}",
    f"--max_predictions_per_seq={predictions}",
    f"--masking={masking}",
    f"--num_workers={workers}",
    "--dupe_factor=1",
  ]
  begun = time.monotonic()
  process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL)
  _, status, usage = os.wait4(process.pid, 0)
  seconds = time.monotonic() - begun
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise ValueError(f"{' '.join(command)} failed; what it said is above.")
  splits = tfrecords.read_manifest(output).splits.values()
  return Made(
    seconds,
    usage.ru_maxrss * 1024,  # Of the largest descendant, in KiB on Linux.
    sum(split.statistics["tokens"] for split in splits),
    sum(shard.bytes for split in splits for shard in split.shards),
  )


def _absolute(patterns: str) -> str:
  """Names and globs, for a process that runs in another folder."""
  return ",".join(map(os.path.abspath, patterns.split(",")))


def read(input_dir: str, batch_size: int) -> float:
  """Training batches a second, as the loop gets them."""
  # Here, because making records needs no TensorFlow.

  config = dataclasses.replace(
    modeling.AlbertConfig.from_preset("albert_base_v2"),
    vocab_size=tfrecords.read_manifest(input_dir).tokenizer.vocab_size,
  )
  task = pretraining.PretrainingTask(config, input_dir)
  batches = iter(task.train_dataset(batch_size, 0))
  next(batches)  # Fills the first block.
  count, begun = 0, time.monotonic()
  while time.monotonic() - begun < _READ_SECONDS:
    next(batches)
    count += 1
  return count / (time.monotonic() - begun)
