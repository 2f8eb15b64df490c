"""The protocol between a benchmark and the programs that it measures.

Each program is a process with its own packages, so this module uses only the
standard library. A program is started with a `Workload` as JSON, builds its
model and takes a few steps. Then it writes one JSON object per line to stdout.
The first is a `Ready`. A line "run K" on stdin is answered with a `Timed`, and
"product K" with the speed of the fastest of K matrix products, {"flops": number
or null}. A failure is answered with {"error": sentence}. The program exits at
the end of stdin.

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
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional

from tools.cli import child_programs

if TYPE_CHECKING:
  import numpy as np

# The program that starts all others.
STARTER = "tools.benchmark"
PRECISIONS = ("float32", "mixed_bfloat16")
_ROOT = pathlib.Path(__file__).resolve().parents[3]
_STOP_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Workload:
  """The work of every program: steps of one model on one random batch.

  A step is an update or, for programs that serve a model, a request. The batch
  has no padding and uses all predictions.
  """

  batch_size: int = 16
  max_seq_length: int = 128
  # One of PRECISIONS; variables are float32 in both.
  precision: str = "mixed_bfloat16"
  threads: int = 2
  # A variant of the program; "" is the default one.
  variant: str = ""
  vocab_size: int = 30000
  embedding_size: int = 128
  hidden_size: int = 768
  num_hidden_layers: int = 12
  num_attention_heads: int = 12
  intermediate_size: int = 3072
  max_position_embeddings: int = 512
  # Only our own program supports other sharing than "all", and dropout.
  sharing: str = "all"
  hidden_dropout_prob: float = 0.0
  attention_probs_dropout_prob: float = 0.0
  # Of AdamW: constant, small enough for ten steps without a warm-up.
  learning_rate: float = 1e-4
  weight_decay: float = 0.01
  clip_norm: float = 1.0
  # Folder of the model to serve; "": train a new one.
  model_dir: str = ""
  # Untimed steps, the first of which compiles.
  warmup_steps: int = 3
  seed: int = 1

  def __post_init__(self):
    if self.precision not in PRECISIONS:
      raise ValueError(
        f"unknown precision {self.precision!r}; choose one of "
        f"{', '.join(PRECISIONS)}."
      )
    for name in ("batch_size", "max_seq_length", "threads", "warmup_steps"):
      if getattr(self, name) < 1:
        raise ValueError(
          f"{name} must be at least 1, got {getattr(self, name)}."
        )

  @property
  def predictions(self) -> int:
    """Masked positions per sequence."""
    return max(1, int(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length

  @property
  def product_dtype(self) -> str:
    """The dtype of matrix products: "float32" or "bfloat16"."""
    return self.precision.split("_")[-1]


class Ready(NamedTuple):
  """The answer after the warm-up."""

  # Of the warm-up steps, masked LM plus sentence order, in nats. A program that
  # serves a model gives the mean of its outputs.
  losses: list[float]
  # Everything before the first step, including imports.
  build_seconds: float
  # The part of it that traces the step, if it is separate.
  trace_seconds: float
  # Includes compilation.
  first_step_seconds: float
  # Of the main packages.
  versions: dict[str, str]
  # A short description of the setup.
  about: str
  peak_bytes: int


class Timed(NamedTuple):
  """Timed steps; each ends when its loss has been read."""

  seconds: list[float]
  losses: list[float]
  peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Program:
  """A program that can take steps; see also `Ready`."""

  # Takes one step and returns its loss.
  step: Callable[[], float]
  versions: dict[str, str]
  about: str
  # Multiplies [B * S, H] by [H, I], the first product of the feed-forward
  # network, in the workload's precision; None: not measured.
  product: Optional[Callable[[], Any]] = None
  trace_seconds: float = 0.0


def serve(build: Callable[[Workload], Program]) -> None:
  """Runs a program: builds it from the command line and answers requests."""
  (values,) = child_programs.arguments(STARTER, child_programs.json_object)
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
  build_seconds = time.monotonic() - start

  def timed(count: int) -> Timed:
    seconds, losses = _time(program.step, count)
    return Timed(seconds, list(map(float, losses)), peak_bytes())

  warmup = timed(workload.warmup_steps)
  ready = Ready(
    warmup.losses,
    build_seconds,
    program.trace_seconds,
    warmup.seconds[0],
    program.versions,
    program.about,
    warmup.peak_bytes,
  )
  answer(ready._asdict())
  for line in sys.stdin:
    command, count = line.split()
    if command == "run":
      answer(timed(int(count))._asdict())
    elif program.product:
      sizes = workload.hidden_size * workload.intermediate_size
      program.product()
      seconds, _ = _time(program.product, int(count))
      answer({"flops": 2 * workload.tokens * sizes / min(seconds)})
    else:
      answer({"flops": None})


def _time(step: Callable[[], Any], count: int) -> tuple[list[float], list]:
  """Returns the seconds and the results of each of `count` calls."""
  seconds, results = [], []
  for _ in range(count):
    start = time.monotonic()
    results.append(step())
    seconds.append(time.monotonic() - start)
  return seconds, results


def peak_bytes() -> int:
  """Returns the peak memory of this process (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


def choose_variant(workload: Workload, variants: Mapping[str, Any]) -> Any:
  """Returns the value of the workload's variant."""
  if workload.variant not in variants:
    names = ", ".join(filter(None, variants))
    raise ValueError(
      f"unknown variant {workload.variant!r}; choose one of {names}."
    )
  return variants[workload.variant]


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Makes the batch for programs that serve a model.

  Returns:
    `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], without padding.
  """
  import numpy as np

  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(workload.seed)
  # Smaller ids are ALBERT's special pieces.
  ids = generator.integers(5, workload.vocab_size, shape)
  return {
    "input_ids": ids.astype(np.int32),
    "input_mask": np.ones(shape, np.int32),
    "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
  }


class Peer:
  """A program that has warmed up and waits for requests.

  All methods raise ValueError with the reason if the program fails.

  Attributes:
    ready: the program's first answer.
  """

  def __init__(
    self,
    python: str,
    program: str,
    workload: Workload,
    environment: Optional[Mapping[str, str]] = None,
  ):
    """Starts a module with an interpreter and waits until it has warmed up.

    The environment has the variables of this process and additional ones.
    """
    self._stderr = tempfile.TemporaryFile()
    self._name = program
    threads = {"OMP_NUM_THREADS": str(workload.threads)}
    self._process = subprocess.Popen(
      [python, "-m", program, json.dumps(dataclasses.asdict(workload))],
      cwd=_ROOT,
      env={**os.environ, **threads, **(environment or {})},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._stderr,
      text=True,
    )
    try:
      self.ready = Ready(**self._read_answer())
    except BaseException:
      self.stop()
      raise

  def run(self, steps: int) -> Timed:
    """Takes steps."""
    return Timed(**self._ask(f"run {steps}"))

  def product_flops(self, count: int) -> Optional[float]:
    """Returns FLOP/s of the fastest of `count` matrix products, if measured."""
    return self._ask(f"product {count}")["flops"]

  def stop(self) -> None:
    """Ends the program."""
    with contextlib.suppress(BrokenPipeError):  # It has ended already.
      self._process.stdin.close()
    try:
      self._process.wait(_STOP_SECONDS if hasattr(self, "ready") else 0)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    self._process.stdout.close()
    self._stderr.close()

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *unused) -> None:
    self.stop()

  def _ask(self, command: str) -> dict[str, Any]:
    # If the program has ended, `_read_answer` gives the reason.
    with contextlib.suppress(BrokenPipeError):
      print(command, file=self._process.stdin, flush=True)
    return self._read_answer()

  def _read_answer(self) -> dict[str, Any]:
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      self._stderr.seek(0)
      lines = self._stderr.read().decode(errors="replace").strip().splitlines()
      reason = lines[-1] if lines else "no output"
      if code == -9:
        reason = "killed, perhaps because memory ran out"
      raise ValueError(f"{self._name} ended with exit code {code}: {reason}")
    answer = json.loads(line)
    if "error" in answer:
      raise ValueError(f"{self._name} failed: {answer['error']}")
    return answer
