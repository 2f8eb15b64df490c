"""The programs that a benchmark runs and measures, each in its own process.

A program gets a `Workload` as JSON and builds its model. Each line on stdin is
a number of steps to take; it answers with a line of JSON on stdout (see
`serve`), and ends with stdin. The environments of other systems lack this
project's packages, so this module needs only the standard library and NumPy.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple

import numpy as np

# ALBERT's special pieces have smaller ids.
_FIRST_ID, _MASK_ID = 5, 4
_SEED = 1


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


def peak_bytes() -> int:
  """Returns the peak memory of this process, not of a GPU (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


class Program(NamedTuple):
  """A program: `step` takes one step and returns its result.

  Results are the losses (masked LM plus sentence order, in nats) or the means
  of the outputs of a served model. `about` says how the program is set up.
  `wait` waits for a GPU. `trace_seconds` are those of the step's graph.
  `product_flops` returns the FLOP/s of large matrix products, or 0.
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
  # Whatever else is written to stdout goes to stderr.
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)
  program = build(Workload(**json.loads(sys.argv[1])))
  for line in sys.stdin:
    start, results = time.monotonic(), []
    for _ in range(int(line)):
      results.append(float(program.step()))
      program.wait()
    answer = {
      "seconds": time.monotonic() - start,
      "results": results,
      "about": program.about,
      "trace_seconds": program.trace_seconds,
      "peak_bytes": program.peak_bytes(),
      "product_flops": program.product_flops(),
    }
    print(json.dumps(answer), file=stdout, flush=True)


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Returns <int32>[B, S] features without padding for served models."""
  shape = [workload.batch_size, workload.max_seq_length]
  generator = np.random.default_rng(_SEED)
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
  generator = np.random.default_rng(_SEED + 1)
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
