"""The protocol between a benchmark and the programs that it measures.

Each program is a process with its own packages, so this module uses only the
standard library and NumPy. A program is started with a `Workload` as JSON and
builds its model. Then it writes one JSON object per line to stdout. The first
is a `Ready`. Each line on stdin is a number of steps to take, and its answer a
`Timed`. A failure is answered by {"error": sentence}. The program exits at the
end of stdin.

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
import traceback
from typing import Any, Callable, Mapping, NamedTuple, Optional

import numpy as np

from official_albert.tools.cli import child_programs

# What all systems support.
PRECISIONS = ("float32", "mixed_bfloat16")
# ALBERT's special pieces have smaller ids.
_FIRST_ID, _MASK_ID = 5, 4
# Where the top-level package is, whose name differs in a wheel.
_ROOT = pathlib.Path(__file__).resolve().parents[__name__.count(".")]
_STOP_SECONDS = 20
# Rounds of matrix products, of which the fastest counts, and the products of a
# round: on a GPU many, so that it does not wait for its host.
_ROUNDS, _CPU_PRODUCTS, _GPU_PRODUCTS = 20, 1, 50


@dataclasses.dataclass(frozen=True)
class Workload:
  """The work of every program: steps of one model on one random batch.

  A step is an update or, for programs that serve a model, a request. The batch
  has no padding and uses all predictions.
  """

  batch_size: int = 16
  max_seq_length: int = 128
  # Of the matrix products; variables are always float32.
  precision: str = "mixed_bfloat16"
  threads: int = 2
  # Selects a variant of the program.
  variant: str = ""
  vocab_size: int = 30000
  embedding_size: int = 128
  hidden_size: int = 768
  num_hidden_layers: int = 12
  num_attention_heads: int = 12
  intermediate_size: int = 3072
  max_position_embeddings: int = 512
  # Only our own program supports other values of the next six.
  sharing: str = "all"
  hidden_dropout_prob: float = 0.0
  attention_probs_dropout_prob: float = 0.0
  optimizer: str = "adamw"
  xla: bool = False
  recompute_activations: bool = False
  # Constant, and small enough for ten steps without a warm-up.
  learning_rate: float = 1e-4
  weight_decay: float = 0.01
  clip_norm: float = 1.0
  # Folder of the model to serve; "" trains a new one.
  model_dir: str = ""
  # Untimed steps. The first includes compilation.
  warmup_steps: int = 3
  seed: int = 1

  @property
  def predictions(self) -> int:
    """Masked positions per sequence, as in `tasks.pretraining.data`.

    The environments of the peers lack what that package imports.
    """
    return max(1, round(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length

  @property
  def product_dtype(self) -> str:
    """The dtype of matrix products: "float32" or "bfloat16"."""
    return self.precision.split("_")[-1]


class Ready(NamedTuple):
  """The answer of a program that has built its model.

  `build_seconds` is all time before the first step, including imports;
  `trace_seconds` the part that traces the step, if it is separate;
  `start_bytes` the peak memory so far.
  """

  build_seconds: float
  trace_seconds: float
  versions: dict[str, str]
  about: str
  start_bytes: int


class Timed(NamedTuple):
  """Timed steps; each ends when its loss has been read.

  Losses are masked LM plus sentence order, in nats, or the mean of the outputs
  of a served model. `product_flops` are FLOP/s of the fastest of some matrix
  products, or 0.
  """

  seconds: list[float]
  cpu_seconds: list[float]
  losses: list[float]
  peak_bytes: int
  product_flops: float


class Gpu(NamedTuple):
  """How to wait for a GPU, and to get the peak of its memory so far."""

  wait: Callable[[], None]
  peak_bytes: Callable[[], int]


class Program(NamedTuple):
  """A program: `step` takes one step and returns its loss.

  `product` multiplies [B * S, H] by [H, I], the first product of the
  feed-forward network, in the workload's precision; None: not measured.
  """

  step: Callable[[], float]
  versions: dict[str, str]
  about: str
  product: Optional[Callable[[], Any]] = None
  trace_seconds: float = 0.0
  # Of a program on a GPU.
  gpu: Optional[Gpu] = None


def serve(build: Callable[[Workload], Program]) -> None:
  """Runs a program: builds it from the command line and answers requests."""
  (values,) = child_programs.arguments("benchmark", child_programs.json_object)
  # Whatever else is written to stdout goes to stderr.
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)

  def answer(value: dict) -> None:
    print(json.dumps(value), file=stdout, flush=True)

  try:
    _serve(Workload(**values), build, answer)
  except Exception as error:
    traceback.print_exc()
    text = " ".join(str(error).split()) or "no reason given"
    answer({"error": f"{type(error).__name__}: {text}"})
    sys.exit(1)


def _serve(workload: Workload, build, answer) -> None:
  start = time.monotonic()
  program = build(workload)
  wait, peak = program.gpu or Gpu(lambda: None, peak_bytes)
  ready = Ready(
    time.monotonic() - start,
    program.trace_seconds,
    program.versions,
    program.about,
    peak(),
  )
  answer(ready._asdict())
  for line in sys.stdin:
    seconds, cpu_seconds, losses = [], [], []
    for _ in range(int(line)):
      start, cpu_start = time.monotonic(), time.process_time()
      losses.append(float(program.step()))
      wait()
      seconds.append(time.monotonic() - start)
      cpu_seconds.append(time.process_time() - cpu_start)
    flops = _product_flops(workload, program, wait)
    answer(Timed(seconds, cpu_seconds, losses, peak(), flops)._asdict())


def _product_flops(
  workload: Workload, program: Program, wait: Callable[[], None]
) -> float:
  if not program.product:
    return 0.0
  products = _GPU_PRODUCTS if program.gpu else _CPU_PRODUCTS
  seconds = []
  for _ in range(_ROUNDS):
    start = time.monotonic()
    for _ in range(products):
      program.product()
    wait()
    seconds.append((time.monotonic() - start) / products)
  sizes = workload.hidden_size * workload.intermediate_size
  return 2 * workload.tokens * sizes / min(seconds)


def peak_bytes() -> int:
  """Returns the peak memory of this process, not of a GPU (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Returns <int32>[B, S] features without padding for served models."""
  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(workload.seed)
  ids = generator.integers(_FIRST_ID, workload.vocab_size, shape)
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

  All methods raise ValueError with the reason if the program fails.
  """

  def __init__(
    self,
    python: str,
    program: str,
    workload: Workload,
    environment: Mapping[str, str] = {},
  ):
    """Starts a module with an interpreter and waits until it has warmed up.

    `environment` adds variables to those of this process.
    """
    self.has_failed = False
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
      self.ready = Ready(**self._read_answer())
      self.warmup = self.run(workload.warmup_steps)
    except BaseException:
      self._process.kill()
      self.stop()
      raise

  def run(self, steps: int) -> Timed:
    """Takes steps."""
    # If the program has ended, `_read_answer` gives the reason.
    with contextlib.suppress(BrokenPipeError):
      print(steps, file=self._process.stdin, flush=True)
    return Timed(**self._read_answer())

  def stop(self) -> None:
    """Ends the program."""
    try:
      self._process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.communicate()
    self._stderr.close()

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *unused) -> None:
    self.stop()

  def _read_answer(self) -> dict[str, Any]:
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      self._stderr.seek(0)
      lines = self._stderr.read().decode(errors="replace").strip().splitlines()
      reason = lines[-1] if lines else "no output"
      if code == -9:
        reason = "killed, perhaps because memory ran out"
      self.has_failed = True
      raise ValueError(f"{self._name} ended with exit code {code}: {reason}")
    answer = json.loads(line)
    if "error" in answer:
      self.has_failed = True
      raise ValueError(f"{self._name} failed: {answer['error']}")
    return answer
