"""How much memory and time a training step takes, and what changes it.

Each variant is a process of its own, since a process never gives all of its
memory back. The batches are random and full: no padding, every prediction used.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from official_albert import distribution, modeling, training
from tasks import pretraining
from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks.peers import official_albert_step as peer_official_albert
from tools.benchmarks.peers import protocol as peer_protocol
from tools.cli import markdown

VARIANTS = (
  {},
  {"recompute_activations": True},
  {"xla": True},
  {"xla": True, "recompute_activations": True},
)
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = """
import json, sys
from tools.benchmarks import memory as benchmark_memory
settings = benchmark_memory.Settings(**json.loads(sys.argv[1]))
print(json.dumps(benchmark_memory.measure(settings)))
"""


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; `seed` is that of weights, batch and dropout."""

  preset: str = "albert_base_v2"
  batch_size: int = 8
  max_seq_length: int = 512
  precision: str = "float32"
  steps: int = 3
  xla: bool = False
  recompute_activations: bool = False
  seed: int = 1


class Measured(NamedTuple):
  """A process: bytes before the first step, at most, and a step's time.

  The first step, which compiles, is left out of the seconds.
  """

  start_bytes: int
  peak_bytes: int
  step_seconds: float
  step_cpu_seconds: float


def run(settings: Settings) -> None:
  """Measures `VARIANTS` and prints a Markdown table.

  Raises:
    ValueError: unknown sizes, or a step failed.
  """
  # Refuses here what every one of the processes would stumble over.
  benchmark_peers.check_own(
    settings.preset,
    settings.batch_size,
    settings.max_seq_length,
    settings.precision,
  )
  print(
    f"{settings.preset}, batch {settings.batch_size}, "
    f"{settings.max_seq_length} tokens, {settings.precision}\n"
  )
  print(markdown.head(_HEAD))
  for changes in VARIANTS:
    measured = in_a_process(dataclasses.replace(settings, **changes))
    cells = row(" + ".join(changes) or "plain", measured)
    print(markdown.row(cells), flush=True)


_HEAD = (
  *("variant", "at the start", "peak", "seconds a step"),
  "CPU seconds a step",
)


def row(name: str, measured: Measured) -> tuple[str, ...]:
  """Returns the cells of a row."""
  return (
    name,
    f"{measured.start_bytes / 2**30:.2f} GiB",
    f"{measured.peak_bytes / 2**30:.2f} GiB",
    f"{measured.step_seconds:.2f}",
    f"{measured.step_cpu_seconds:.2f}",
  )


def in_a_process(settings: Settings) -> Measured:
  """`measure` in a process of its own.

  Raises:
    ValueError: it failed; what it said is on stderr.
  """
  arguments = json.dumps(dataclasses.asdict(settings))
  done = subprocess.run(
    [sys.executable, "-c", _PROGRAM, arguments],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    stdout=subprocess.PIPE,
    text=True,
    check=False,
  )
  if done.returncode:
    raise ValueError(
      f"a step of {settings.preset}, batch {settings.batch_size}, "
      f"{settings.max_seq_length} tokens, {settings.precision}, failed with "
      f"exit code {done.returncode}; what it said is above."
    )
  return Measured(*json.loads(done.stdout.splitlines()[-1]))


def measure(settings: Settings) -> Measured:
  """A few updates of a model with dropout, in this process."""
  import tensorflow as tf

  distribution.start_compiler()
  distribution.set_precision(settings.precision)
  tf.keras.utils.set_random_seed(settings.seed)
  albert_config = dataclasses.replace(
    modeling.AlbertConfig.from_preset(settings.preset),
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
  )
  model = pretraining.AlbertForPretraining(
    albert_config, settings.recompute_activations
  )
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=1000,
    num_warmup_steps=0,
    learning_rate=0.001,
    train_batch_size=settings.batch_size,
    xla=settings.xla,
  )
  step = peer_official_albert.make_step(model, config)
  batch = peer_official_albert.random_batch(
    settings.batch_size,
    settings.max_seq_length,
    int(0.15 * settings.max_seq_length),
    albert_config.vocab_size,
    settings.seed,
  )
  start = peer_protocol.peak_bytes()
  wall, cpu = [], []
  for _ in range(1 + settings.steps):
    before = time.monotonic(), time.process_time()
    norm = float(step(batch)["gradient_norm"].total)
    wall.append(time.monotonic() - before[0])
    cpu.append(time.process_time() - before[1])
  if norm != norm:
    raise ValueError(f"the gradient is not finite: {norm}.")
  return Measured(
    start,
    peer_protocol.peak_bytes(),
    statistics.median(wall[1:]),
    statistics.median(cpu[1:]),
  )
