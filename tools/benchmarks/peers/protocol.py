"""How a benchmark talks with the programs that it compares.

Each program is a process of its own with packages of its own, so nothing but
the standard library is used here. It is started with a `Workload` as JSON,
builds its model, takes a few steps, and answers on stdout, one JSON object a
line: first a `Ready`, then for each line "run K" on stdin a `Timed`, for each
line "product K" the best of K measurements in FLOP/s of a product of matrices,
{"flops": number or null}. It ends when stdin does. A failure at any time is
{"error": sentence}, and the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from tools.cli import started_by

if TYPE_CHECKING:
  import numpy as np

# Of all programs that speak this protocol.
STARTER = "tools.benchmark"
PRECISIONS = ("float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Workload:
  """What every program computes: steps of one model on one random batch.

  A step is an update, or for programs that serve a request. No position is
  padding, all predictions are used. The dropouts are for this
  project's own program; the others have none.
  """

  batch_size: int = 16
  max_seq_length: int = 128
  # One of PRECISIONS; both keep variables in float32.
  precision: str = "mixed_bfloat16"
  threads: int = 2
  # Which of a program's ways to do it; "" where there is only one.
  variant: str = ""
  vocab_size: int = 30000
  embedding_size: int = 128
  hidden_size: int = 768
  num_hidden_layers: int = 12
  num_attention_heads: int = 12
  intermediate_size: int = 3072
  max_position_embeddings: int = 512
  # What layers share: for this project's own program; the others share all.
  sharing: str = "all"
  hidden_dropout_prob: float = 0.0
  attention_probs_dropout_prob: float = 0.0
  # Of AdamW: constant, small enough for ten steps without a warm-up.
  learning_rate: float = 1e-4
  weight_decay: float = 0.01
  clip_norm: float = 1.0
  # Where a program finds a model, if it does not make one.
  model_dir: str = ""
  # Steps before the first that is timed; the first of them compiles.
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
    """Masked positions of a sequence."""
    return max(1, int(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Of a step."""
    return self.batch_size * self.max_seq_length

  @property
  def product_dtype(self) -> str:
    """Of matrix products: "float32" or "bfloat16"."""
    return self.precision.split("_")[-1]


@dataclasses.dataclass(frozen=True)
class Ready:
  """A program has warmed up.

  Attributes:
    losses: of the warm-up's steps, masked LM plus sentence order, in nats.
    build_seconds: all that came before the first step, imports too.
    trace_seconds: of that, to trace the step; 0 if the program traces it in
      the first step, or not at all.
    first_step_seconds: the first step, with what is compiled in it.
    versions: of the packages that matter.
    about: how it was set up, in a few words.
    peak_bytes: the most memory so far.
  """

  losses: list[float]
  build_seconds: float
  trace_seconds: float
  first_step_seconds: float
  versions: dict[str, str]
  about: str
  peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Timed:
  """Steps that were timed, each until its loss was known."""

  seconds: list[float]
  losses: list[float]
  peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Program:
  """What a program does when it is asked.

  Attributes:
    step: takes one update and returns its loss.
    versions, about, trace_seconds: see `Ready`.
    product: see `best_product`; None if the program measures none.
  """

  step: Callable[[], float]
  versions: dict[str, str]
  about: str
  product: Optional[Callable[[], Any]] = None
  trace_seconds: float = 0.0


def serve(build: Callable[[Workload], Program]) -> None:
  """The life of a program; `build` gets what the command line says."""
  (values,) = started_by.arguments(STARTER, started_by.json_object)
  with _answers() as answer:
    try:
      workload = Workload(**values)
      _serve(workload, build, answer)
    except Exception as error:
      traceback.print_exc()
      text = " ".join(str(error).split()) or "no reason given"
      answer({"error": f"{type(error).__name__}: {text}"})
      sys.exit(1)


def _serve(workload, build, answer) -> None:
  begun = time.monotonic()
  program = build(workload)
  build_seconds = time.monotonic() - begun
  warmup = _timed(program.step, workload.warmup_steps)
  answer(
    dataclasses.asdict(
      Ready(
        warmup.losses,
        build_seconds,
        program.trace_seconds,
        warmup.seconds[0],
        program.versions,
        program.about,
        warmup.peak_bytes,
      )
    )
  )
  for line in sys.stdin:
    command, count = line.split()
    if command == "run":
      answer(dataclasses.asdict(_timed(program.step, int(count))))
    elif command == "product":
      flops = None
      if program.product:
        flops = best_product(program.product, workload, int(count))
      answer({"flops": flops})
    else:
      raise ValueError(f"unknown command {command!r}.")


def _timed(step: Callable[[], float], count: int) -> Timed:
  seconds, losses = [], []
  for _ in range(count):
    begun = time.monotonic()
    losses.append(float(step()))
    seconds.append(time.monotonic() - begun)
  return Timed(seconds, losses, peak_bytes())


def best_product(
  product: Callable[[], Any], workload: Workload, count: int
) -> float:
  """FLOP/s of the fastest of `count` products.

  Args:
    product: multiplies [B * S, H] with [H, I], the first product of the
      feed-forward network, in the workload's precision.
    workload: B, S, H and I.
    count: how many.
  """
  product()
  seconds = []
  for _ in range(count):
    begun = time.monotonic()
    product()
    seconds.append(time.monotonic() - begun)
  sizes = workload.hidden_size * workload.intermediate_size
  return 2 * workload.tokens * sizes / min(seconds)


def peak_bytes() -> int:
  """The most memory that this process had; Linux only."""
  # Not getrusage's: that remembers the process that started this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Makes the batch that programs which serve a model are asked for.

  Returns:
    `input_ids`, `input_mask`, `segment_ids` <int32>[B, S], without padding.
  """
  import numpy as np

  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(workload.seed)
  # The ids below are ALBERT's special pieces.
  ids = generator.integers(5, workload.vocab_size, shape)
  return {
    "input_ids": ids.astype(np.int32),
    "input_mask": np.ones(shape, np.int32),
    "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
  }


@contextlib.contextmanager
def _answers() -> Iterator[Callable[[dict], None]]:
  """The way to the benchmark; what libraries print goes to stderr."""
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)

  def answer(value: dict) -> None:
    stdout.write(json.dumps(value) + "\n")
    stdout.flush()

  yield answer
