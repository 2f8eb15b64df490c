"""The programs that a benchmark runs and measures, each in its own process.

A program gets a `Workload` as JSON and builds its model. Each line on stdin is
a number of steps to take; it answers with a line of JSON on stdout, and ends
with stdin. The environments of other systems lack this project's packages, so
this module needs only the standard library and NumPy.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import Any, Callable, Mapping

import numpy as np

# ALBERT's special pieces have smaller ids.
_FIRST_ID, _MASK_ID = 5, 4


@dataclasses.dataclass(frozen=True)
class Workload:
  """Steps of one model on one random batch, without padding.

  A step is an update or, for programs that serve a model, a request. The
  settings are of `training.TrainConfig`, and recompute_activations. The variant
  is what else a program offers, such as the kind of attention.
  """

  config: Mapping[str, Any]
  batch_size: int
  max_seq_length: int
  precision: str = "float32"  # Or "mixed_bfloat16".
  threads: int = 2  # Of the processor.
  variant: str = ""
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # Holds the models to serve, each in a folder with the name of its program; ""
  # trains a new one.
  models_dir: str = ""
  # Constant, and small enough for ten steps without a warm-up.
  learning_rate: float = 1e-4

  @property
  def predictions(self) -> int:
    """Masked positions per sequence, as in `tasks.pretraining.data`."""
    return max(1, round(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length


# Takes a step, and waits for a GPU. Returns the loss (masked LM plus sentence
# order, in nats), or the mean of the outputs of a served model.
Step = Callable[[], float]
# Returns how the program is set up ("about"), and "peak_bytes" of a GPU.
Facts = Callable[[], Mapping[str, Any]]


def serve(build: Callable[[Workload], tuple[Step, Facts]]) -> None:
  """Runs a program: builds it from the command line and answers requests."""
  # Whatever else is written to stdout goes to stderr.
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)
  step, facts = build(Workload(**json.loads(sys.argv[1])))
  for line in sys.stdin:
    start = time.monotonic()
    results = [float(step()) for _ in range(int(line))]
    seconds = time.monotonic() - start
    answer = {"peak_bytes": _peak_bytes(), **facts()}
    answer |= {"seconds": seconds, "results": results}
    print(json.dumps(answer), file=stdout, flush=True)


def _peak_bytes() -> int:
  """Returns the peak memory of this process, not of a GPU (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


def batch(workload: Workload) -> dict[str, np.ndarray]:
  """Returns the features of `tfrecords.schemas.PRETRAINING`."""
  shape = rows, _ = workload.batch_size, workload.max_seq_length
  generator = np.random.default_rng(1)
  ids = generator.integers(_FIRST_ID, workload.config["vocab_size"], shape)
  positions = np.argsort(generator.random(shape))[:, : workload.predictions]
  features = {
    "input_ids": ids,
    "input_mask": np.ones(shape),
    "segment_ids": generator.integers(0, 2, shape),
    "masked_lm_positions": positions,
    "masked_lm_ids": np.take_along_axis(ids, positions, 1),
    "next_sentence_labels": generator.integers(0, 2, [rows, 1]),
  }
  np.put_along_axis(ids, positions, _MASK_ID, 1)
  weights = np.ones(positions.shape, np.float32)
  features = {name: x.astype(np.int32) for name, x in features.items()}
  return {**features, "masked_lm_weights": weights}


def request(workload: Workload) -> dict[str, np.ndarray]:
  """Returns <int32>[B, S] features for a served model."""
  return dict(list(batch(workload).items())[:3])
