"""Measures an exported model with many clients, and raw texts instead of ids.

Runs in a process that imports only TensorFlow. Each client is a thread that
waits for its answer before its next request. Optionally the operation that
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
from typing import Callable, Sequence

import numpy as np

from tools.benchmarks.peers import protocol
from tools.cli import child_programs, printing

_CLIENTS = (1, 2, 4, 8, 16)
_MAX_BATCH = 8
_TIMEOUT_MICROSECONDS = 2000
_TEXT_ROUNDS = 15
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_HEAD = ("clients", "batched", "answers/s", "p50", "p95", "p99, ms")


def measure(workload: protocol.Workload, seconds: float) -> str:
  """Measures the SavedModel in `workload.model_dir` in its own process.

  Args:
    workload: the requests.
    seconds: duration for each number of clients.

  Returns:
    Markdown: a table, and a sentence about raw text.
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
  return done.stdout.strip()


def row(
  clients: int, batched: bool, milliseconds: Sequence[float], seconds: float
) -> tuple[str, ...]:
  """Returns the cells of a row, given the time of each answer and of all."""
  percentiles = np.percentile(milliseconds, (50, 95, 99), method="higher")
  return (
    str(clients),
    "yes" if batched else "no",
    f"{len(milliseconds) / seconds:.1f}",
    *(f"{percentile:.0f}" for percentile in percentiles),
  )


def compare_text(
  ids: Sequence[float], text: Sequence[float], tokens: int
) -> str:
  """Returns a sentence, given milliseconds per round of the same request."""
  overhead = statistics.median(b / a - 1 for a, b in zip(ids, text))
  return (
    f"A raw text of {tokens} tokens takes {statistics.median(text):.1f} ms, "
    f"the same request as ids {statistics.median(ids):.1f} ms: {overhead:+.1%} "
    "in the median round."
  )


def _measure_clients(model, workload: protocol.Workload, seconds: float) -> str:
  import tensorflow as tf

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
  requests = {
    False: lambda: run(**features)["pooled_output"].numpy(),
    True: lambda: batched(*features.values()).numpy(),
  }
  for size in (1, 2, 4, _MAX_BATCH):  # Compiles for every batch size.
    run(**{name: tf.repeat(x, size, 0) for name, x in features.items()})
  rows = [
    row(clients, is_batched, *_load(request, clients, seconds))
    for clients in _CLIENTS
    for is_batched, request in requests.items()
  ]
  return printing.table(_HEAD, rows)


def _load(
  request: Callable, clients: int, seconds: float
) -> tuple[list[float], float]:
  """Returns the milliseconds of each answer, and the seconds of all."""
  request()
  start = time.perf_counter()
  milliseconds: list[float] = []

  def client() -> None:
    now = start
    while now - start < seconds or not milliseconds:
      now = time.perf_counter()
      request()
      milliseconds.append(1e3 * (time.perf_counter() - now))

  threads = [threading.Thread(target=client) for _ in range(clients)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return milliseconds, time.perf_counter() - start


def _measure_text(model, max_seq_length: int) -> str:
  import tensorflow as tf

  encode, run = model.signatures["encode"], model.signatures["ids"]
  words = ["Servers", "answer", "requests,", "and", "cafés", "open", "at", "9."]
  chosen: list[str] = []
  tokens = 0
  while tokens < max_seq_length:
    chosen.append(words[len(chosen) % len(words)])
    text = tf.constant([" ".join(chosen)])
    answer = encode(text=text)
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
    lambda: encode(text=text)["pooled_output"].numpy(),
  )
  times: tuple[list[float], list[float]] = ([], [])
  for _ in range(_TEXT_ROUNDS):
    for request, milliseconds in zip(requests, times):
      start = time.perf_counter()
      for _ in range(3):
        request()
      milliseconds.append(1e3 * (time.perf_counter() - start) / 3)
  return compare_text(*times, tokens)


def main() -> None:
  """Prints what `measure` returns."""
  values, seconds = child_programs.arguments(
    protocol.STARTER, child_programs.json_object, float
  )
  import tensorflow as tf
  import tensorflow_text  # noqa: F401 (registers its operations)

  workload = protocol.Workload(**values)
  tf.config.threading.set_intra_op_parallelism_threads(workload.threads)
  model = tf.saved_model.load(workload.model_dir)
  table = _measure_clients(model, workload, seconds)
  print(f"{table}\n\n{_measure_text(model, workload.max_seq_length)}")


if __name__ == "__main__":
  main()
