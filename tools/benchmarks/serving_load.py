"""Measures an exported model with many clients, and raw texts instead of ids.

Runs in a process that imports only TensorFlow. Each client is a thread that
waits for its answer before it asks again. Optionally the operation that
TensorFlow Serving uses combines single requests into batches.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from tools.benchmarks.peers import protocol
from tools.cli import markdown, started_by

_CLIENTS = (1, 2, 4, 8, 16)
_MAX_BATCH = 8
_TIMEOUT_MICROSECONDS = 2000
_TEXT_ROUNDS = 15
_ROOT = pathlib.Path(__file__).resolve().parents[2]


class Load(NamedTuple):
  """The answers to a number of clients.

  Attributes:
    clients: at the same time.
    batched: whether requests are combined into batches.
    milliseconds: of each answer.
    seconds: of the whole measurement.
  """

  clients: int
  batched: bool
  milliseconds: list[float]
  seconds: float

  def percentile(self, percent: int) -> float:
    """Returns a percentile of the milliseconds."""
    ordered = sorted(self.milliseconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class Loads(NamedTuple):
  """All measurements.

  Attributes:
    loads: for each number of clients.
    ids_milliseconds: of a request with ids, per round.
    text_milliseconds: of the same request as raw text, per round.
    text_tokens: of that request.
  """

  loads: list[Load]
  ids_milliseconds: list[float]
  text_milliseconds: list[float]
  text_tokens: int


def measure(workload: protocol.Workload, seconds: float) -> Loads:
  """Measures the SavedModel in `workload.model_dir` in its own process.

  `seconds` is the duration for each number of clients.

  Raises:
    ValueError: the process failed.
  """
  arguments = [json.dumps(dataclasses.asdict(workload)), str(seconds)]
  done = subprocess.run(
    [sys.executable, "-m", "tools.benchmarks.serving_load", *arguments],
    cwd=_ROOT,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    capture_output=True,
    text=True,
  )
  if done.returncode:
    raise ValueError(f"the clients' program failed: {done.stderr.strip()}")
  loads, *texts = json.loads(done.stdout.splitlines()[-1])
  return Loads([Load(*each) for each in loads], *texts)


def table(loads: Loads) -> str:
  """Returns a table, and a sentence about raw text."""
  rows = [
    (
      str(load.clients),
      "yes" if load.batched else "no",
      f"{len(load.milliseconds) / load.seconds:.1f}",
      *(f"{load.percentile(percent):.0f}" for percent in (50, 95, 99)),
    )
    for load in loads.loads
  ]
  overhead = statistics.median(
    text / ids - 1
    for text, ids in zip(loads.text_milliseconds, loads.ids_milliseconds)
  )
  head = ("clients", "batched", "answers/s", "p50", "p95", "p99, ms")
  return (
    f"{markdown.table(head, rows)}\n\n"
    f"A raw text of {loads.text_tokens} tokens takes "
    f"{statistics.median(loads.text_milliseconds):.1f} ms, the same request as "
    f"ids {statistics.median(loads.ids_milliseconds):.1f} ms: {overhead:+.1%} "
    "in the median round."
  )


def _measure_here(workload: protocol.Workload, seconds: float) -> Loads:
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (registers its operations)

  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(workload.model_dir)
  run = model.signatures["ids"]
  one = dataclasses.replace(workload, batch_size=1)
  features = {
    name: tf.constant(value) for name, value in protocol.request(one).items()
  }
  spec = tf.TensorSpec([None, workload.max_seq_length], tf.int32)

  @tf.nondifferentiable_batch_function(
    num_batch_threads=1,
    max_batch_size=_MAX_BATCH,
    batch_timeout_micros=_TIMEOUT_MICROSECONDS,
    allowed_batch_sizes=[1, 2, 4, _MAX_BATCH],
  )
  def in_batches(input_ids, input_mask, segment_ids):
    return run(
      input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids
    )["pooled_output"]

  batched = tf.function(in_batches, input_signature=[spec] * 3)
  ask = {
    False: lambda: run(**features)["pooled_output"].numpy(),
    True: lambda: batched(*features.values()).numpy(),
  }
  for size in (1, 2, 4, _MAX_BATCH):  # Compiles for every batch size.
    run(**{name: tf.repeat(x, size, 0) for name, x in features.items()})
  loads = [
    _load(ask[is_batched], clients, is_batched, seconds)
    for clients in _CLIENTS
    for is_batched in (False, True)
  ]
  return Loads(loads, *_compare_text(model, workload.max_seq_length))


def _load(ask, clients: int, batched: bool, seconds: float) -> Load:
  ask()
  start = time.perf_counter()
  milliseconds: list[float] = []

  def client() -> None:
    now = start
    while now - start < seconds or not milliseconds:
      now = time.perf_counter()
      ask()
      milliseconds.append(1e3 * (time.perf_counter() - now))

  threads = [threading.Thread(target=client) for _ in range(clients)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return Load(clients, batched, milliseconds, time.perf_counter() - start)


def _compare_text(
  model, max_seq_length: int
) -> tuple[list[float], list[float], int]:
  """Returns milliseconds with ids and with text, and the number of tokens."""
  import tensorflow as tf

  encode, run = model.signatures["encode"], model.signatures["ids"]
  words = ["Servers", "answer", "requests,", "and", "cafés", "open", "at", "9."]
  chosen: list[str] = []
  tokens = 0
  while tokens < max_seq_length:
    chosen.append(words[len(chosen) % len(words)])
    text = " ".join(chosen)
    answer = encode(text=tf.constant([text]))
    if answer["input_ids"].shape[1] == tokens:
      break  # The export truncates longer texts.
    tokens = answer["input_ids"].shape[1]
  features = {
    "input_ids": answer["input_ids"],
    "input_mask": answer["input_mask"],
    "segment_ids": tf.zeros_like(answer["input_ids"]),
  }
  requests = (
    lambda: run(**features)["pooled_output"].numpy(),
    lambda: encode(text=tf.constant([text]))["pooled_output"].numpy(),
  )
  times: tuple[list[float], list[float]] = ([], [])
  for _ in range(_TEXT_ROUNDS):
    for ask, milliseconds in zip(requests, times):
      start = time.perf_counter()
      for _ in range(3):
        ask()
      milliseconds.append(1e3 * (time.perf_counter() - start) / 3)
  return (*times, tokens)


def main() -> None:
  """Prints the measurements as JSON."""
  values, seconds = started_by.arguments(
    protocol.STARTER, started_by.json_object, float
  )
  # Named tuples become lists.
  print(json.dumps(_measure_here(protocol.Workload(**values), seconds)))


if __name__ == "__main__":
  main()
