"""How a benchmark runs a program in another environment and measures it.

The program is a process that gets a `Workload` as JSON and builds its model.
Each line on stdin is a number of steps to take; it answers with a `Timed` as
JSON on a line of stdout, and ends with stdin. The other environments lack this
project's packages, so this module needs only the standard library and NumPy.

`Peer` is the benchmark's side, `serve` the program's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Mapping, NamedTuple

import numpy as np

# ALBERT's special pieces have smaller ids.
_FIRST_ID, _MASK_ID = 5, 4
# Untimed steps. The first includes compilation.
_WARMUP_STEPS = 3
# Where the top-level package is, also in a clone, where tools is a link.
_ROOT = pathlib.Path(__file__).absolute().parents[4]


@dataclasses.dataclass(frozen=True)
class Workload:
  """The work of every program: steps of one model on one random batch.

  A step is an update or, for programs that serve a model, a request. The batch
  has no padding and uses all predictions.

  Attributes:
    config: the model, as in albert_config.json.
    batch_size: B.
    max_seq_length: S.
    precision: "float32" or "mixed_bfloat16"; variables are always float32.
    threads: of the processor.
    variant: what else the program offers, such as the kind of attention.
    settings: of this project's `training.TrainConfig`, and
      recompute_activations.
    model_dir: the folder of the model to serve; "" trains a new one.
    learning_rate: constant, and small enough for ten steps without a warm-up.
    seed: of weights and batch.
  """

  config: Mapping[str, Any]
  batch_size: int
  max_seq_length: int
  precision: str = "float32"
  threads: int = 2
  variant: str = ""
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  model_dir: str = ""
  learning_rate: float = 1e-4
  seed: int = 1

  @property
  def predictions(self) -> int:
    """Masked positions per sequence, as in `tasks.pretraining.data`."""
    return max(1, round(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length

  @property
  def product_dtype(self) -> str:
    """The dtype of matrix products: "float32" or "bfloat16"."""
    return self.precision.split("_")[-1]


class Timed(NamedTuple):
  """Timed steps, and the rest of `Program`.

  `results` are the losses (masked LM plus sentence order, in nats) or the means
  of the outputs of a served model.
  """

  seconds: list[float]
  results: list[float]
  about: str
  trace_seconds: float
  peak_bytes: int
  product_flops: float


def peak_bytes() -> int:
  """Returns the peak memory of this process, not of a GPU (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


class Program(NamedTuple):
  """A program: `step` takes one step and returns its result.

  `about` says how it is set up. `wait` waits for a GPU. `trace_seconds` are
  those of the step's graph. `product_flops` returns the FLOP/s of large matrix
  products, or 0.
  """

  step: Callable[[], float]
  about: str
  wait: Callable[[], Any] = lambda: None
  peak_bytes: Callable[[], int] = peak_bytes
  trace_seconds: float = 0.0
  product_flops: Callable[[], float] = lambda: 0.0


def tensorflow_gpu() -> dict[str, Any]:
  """Returns `Program.wait` and `peak_bytes` if TensorFlow has a GPU."""
  import tensorflow as tf  # Not every program has it.

  if not tf.config.list_physical_devices("GPU"):
    return {}
  get_memory = tf.config.experimental.get_memory_info
  return {
    "wait": tf.test.experimental.sync_devices,
    "peak_bytes": lambda: get_memory("GPU:0")["peak"],
  }


def serve(build: Callable[[Workload], Program]) -> None:
  """Runs a program: builds it from the command line and answers requests."""
  values = json.loads(sys.argv[1])
  # Whatever else is written to stdout goes to stderr.
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)
  program = build(Workload(**values))
  for line in sys.stdin:
    seconds, results = [], []
    for _ in range(int(line)):
      start = time.monotonic()
      results.append(float(program.step()))
      program.wait()
      seconds.append(time.monotonic() - start)
    timed = Timed(
      *(seconds, results, program.about, program.trace_seconds),
      *(program.peak_bytes(), program.product_flops()),
    )
    print(json.dumps(timed._asdict()), file=stdout, flush=True)


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Returns <int32>[B, S] features without padding for served models."""
  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(workload.seed)
  ids = generator.integers(_FIRST_ID, workload.config["vocab_size"], shape)
  return {
    "input_ids": ids.astype(np.int32),
    "input_mask": np.ones(shape, np.int32),
    "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
  }


def training_batch(workload: Workload) -> dict[str, np.ndarray]:
  """Returns the features of `tfrecords.schemas.PRETRAINING`."""
  features = request(workload)
  ids = features["input_ids"]
  generator = np.random.default_rng(workload.seed + 1)
  order = np.argsort(generator.random(ids.shape)).astype(np.int32)
  positions = order[:, : workload.predictions]
  labels = np.take_along_axis(ids, positions, 1)
  np.put_along_axis(ids, positions, _MASK_ID, 1)
  pair_labels = generator.integers(0, 2, [workload.batch_size, 1])
  return {
    **features,
    "masked_lm_positions": positions,
    "masked_lm_ids": labels,
    "masked_lm_weights": np.ones(positions.shape, np.float32),
    "next_sentence_labels": pair_labels.astype(np.int32),
  }


class Peer:
  """A program that has warmed up and waits for requests.

  Attributes:
    warmup: its first steps.
    start_seconds: from the start of the process to the end of the first step.
  """

  def __init__(
    self,
    python: str,
    program: str,
    workload: Workload,
    environment: Mapping[str, str] = {},
  ):
    """Starts a module with an interpreter and waits until it has warmed up.

    `environment` adds variables to those of this process. Raises ValueError
    with the reason if the program fails; so does `run`.
    """
    self._stderr = tempfile.TemporaryFile()
    self._name = program
    # Each environment has its own tf.keras.
    inherited = {
      k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"
    }
    settings = {
      "OMP_NUM_THREADS": str(workload.threads),
      # Two programs share a GPU, which TensorFlow would fill.
      "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    start = time.monotonic()
    self._process = subprocess.Popen(
      [python, "-m", program, json.dumps(dataclasses.asdict(workload))],
      cwd=_ROOT,
      env={**inherited, **settings, **environment},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._stderr,
      text=True,
    )
    try:
      first = self.run(1)
      self.start_seconds = time.monotonic() - start
      self.warmup = self.run(_WARMUP_STEPS - 1)
      self.warmup.results[:0] = first.results
    except BaseException:
      self.__exit__()
      raise

  def run(self, steps: int) -> Timed:
    """Takes steps."""
    with contextlib.suppress(BrokenPipeError):  # It has ended: see below.
      print(steps, file=self._process.stdin, flush=True)
    if line := self._process.stdout.readline():
      return Timed(**json.loads(line))
    code = self._process.wait()
    self._stderr.seek(0)
    lines = self._stderr.read().decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else "no output"
    if code == -9:
      reason = "killed, perhaps because memory ran out"
    raise ValueError(f"{self._name} ended with exit code {code}: {reason}")

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *unused) -> None:
    """Ends the program, which has nothing left to do."""
    self._process.kill()
    self._process.communicate()
    self._stderr.close()
