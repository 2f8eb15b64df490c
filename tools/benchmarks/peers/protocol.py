"""The programs that a benchmark runs and measures, each in its own process.

A program gets a `Workload` as JSON and builds its model. Each line on stdin is
a number of steps to take, or says which requests to answer; it answers with a
line of JSON on stdout, and ends with stdin. The environments of other systems
lack this project's packages, so this module needs only the standard library and
NumPy.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import Any, BinaryIO, Callable, Mapping, TextIO

import numpy as np

# ALBERT's special pieces have smaller ids.
_FIRST_ID, _MASK_ID = 5, 4
# A turn of requests ends after this time, whatever is left of them.
_TURN_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Workload:
  """Steps of one model on one random batch.

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
  # Whether rows of requests have random lengths from S/4 to S; the first has S.
  padded: bool = False

  @property
  def predictions(self) -> int:
    """Masked positions per sequence, as in `tasks.pretraining.data`."""
    return max(1, round(0.15 * self.max_seq_length))

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length


# Takes a step, and waits for a GPU. Returns the loss (masked LM plus sentence
# order, in nats), or the mean size of the numbers in vectors.
Step = Callable[[], float]
# Returns the pooled outputs, <float32>[B, H], of <int32>[B, S] features.
Features = Mapping[str, np.ndarray]
Answer = Callable[[Features], np.ndarray]
# Returns how the program is set up ("about"), and "peak_bytes" of a GPU.
Facts = Callable[[], Mapping[str, Any]]


def serve(build: Callable[[Workload], tuple[Step, Facts]]) -> None:
  """Runs a program: builds it from the command line and answers requests."""
  stdout = take_stdout()
  step, facts = build(Workload(**json.loads(sys.argv[1])))
  for line in sys.stdin:
    start = time.monotonic()
    results = [float(step()) for _ in range(int(line))]
    seconds = time.monotonic() - start
    answer = {"peak_bytes": _peak_bytes(), **facts()}
    answer |= {"seconds": seconds, "results": results}
    print(json.dumps(answer), file=stdout, flush=True)


def serve_model(load: Callable[[Workload], tuple[Answer, Facts]]) -> None:
  """Runs a program that answers requests.

  A line of it is JSON with changes of the `Workload` and "requests", of which
  at least one is answered.
  """
  stdout = take_stdout()
  workload = Workload(**json.loads(sys.argv[1]))
  try:
    answer, facts = load(workload)
  except ImportError as error:
    sys.exit(f"{error}: install it into the environment of {sys.executable}.")
  for line in sys.stdin:
    changes = json.loads(line)
    most = changes.pop("requests")
    features = request(dataclasses.replace(workload, **changes))
    milliseconds: list[float] = []
    while len(milliseconds) < most and sum(milliseconds) < 1e3 * _TURN_SECONDS:
      start = time.perf_counter()
      outputs = answer(features)
      milliseconds.append(1e3 * (time.perf_counter() - start))
    result = {"peak_bytes": _peak_bytes(), **facts()}
    result |= {"milliseconds": milliseconds, "outputs": outputs.tolist()}
    print(json.dumps(result), file=stdout, flush=True)


def take_stdout() -> TextIO:
  """Returns stdout; whatever else is written to it goes to stderr."""
  stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
  os.dup2(2, 1)
  return stdout


def _peak_bytes() -> int:
  """Returns the peak memory of this process, not of a GPU (Linux only)."""
  # getrusage would include the process that forked this one.
  with open("/proc/self/status", encoding="utf-8") as file:
    line = next(line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) * 1024


def batch(workload: Workload, seed: int = 1) -> dict[str, np.ndarray]:
  """Returns the features of `tfrecords.schemas.PRETRAINING`."""
  shape = rows, _ = workload.batch_size, workload.max_seq_length
  generator = np.random.default_rng(seed)
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


def request(workload: Workload, seed: int = 1) -> dict[str, np.ndarray]:
  """Returns <int32>[B, S] features for a served model."""
  features = dict(list(batch(workload, seed).items())[:3])
  if workload.padded:
    rows, length = workload.batch_size, workload.max_seq_length
    generator = np.random.default_rng(seed)
    lengths = generator.integers(length // 4, length, rows, endpoint=True)
    lengths[0] = length
    kept = (np.arange(length) < lengths[:, None]).astype(np.int32)
    features = {name: value * kept for name, value in features.items()}
  return features


def send(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes named arrays to a pipe; see `receive`."""
  about = [(name, x.dtype.str, x.shape) for name, x in arrays.items()]
  file.write(f"{json.dumps(about)}\n".encode())
  for array in arrays.values():
    file.write(array.tobytes())


def receive(file: BinaryIO) -> dict[str, np.ndarray]:
  """Returns the next named arrays; an EOFError says that there are none."""
  line, found = file.readline(), {}
  if not line:
    raise EOFError
  for name, dtype, shape in json.loads(line):
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    found[name] = np.frombuffer(file.read(size), dtype).reshape(shape)
  return found


def as_huggingface(features: Mapping[str, Any]) -> dict[str, Any]:
  """Returns features as int64, with the names of that library."""
  names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
  return {
    names.get(name, name): value.astype(np.int64)
    for name, value in features.items()
  }
