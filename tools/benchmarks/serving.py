"""Measures the latency of an exported model and of Hugging Face's in PyTorch.

A model with random weights is exported and also converted to a Hugging Face
folder. Both answer the same requests in turns. The export alone is also
measured with many clients, raw texts, and several batch sizes and lengths.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import threading
import time
from typing import Callable, Sequence

import numpy as np

from official_albert import distribution, files, modeling, tokenization
from official_albert.tools import conversion
from official_albert.tools.benchmarks import comparison, data, step
from official_albert.tools.benchmarks.peers import huggingface, protocol
from official_albert.tools.cli import printing

_BATCH_SIZES = (1, 8)
_ALL_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (16, 32, 64, 128, 256, 512)
_BATCH = 8  # Of each length.
# Largest difference between the means of pooled outputs, which are between -1
# and 1.
_TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 0.01}
# PyTorch as installed, and with malloc tuned.
SYSTEMS = {
  f"hf_{variant}{suffix}": comparison.System(
    "huggingface", variant, "huggingface", environment
  )
  for variant in huggingface.SERVING_VARIANTS
  for suffix, environment in (("", {}), ("_malloc", comparison.MALLOC_TUNED))
}
_HEAD = (
  *("system", "ms a request", "lowest to highest round", "ours, times as fast"),
  *("peak memory", "set up as"),
)
_CLIENTS = (1, 2, 4, 8, 16)
_CLIENTS_HEAD = ("clients", "batched", "answers/s", "p50", "p95", "p99, ms")
_CLIENTS_SECONDS = 8.0  # For each number of clients.
_SERVER_BATCHES = (1, 2, 4, 8)
_SERVER_TIMEOUT_MICROSECONDS = 2000
_TEXT_ROUNDS = 15


def run(
  preset: str,
  max_seq_length: int,
  precision: str,
  repeats: int,
  steps: int,
  spm_model_file: str,
  peers_dir: str,
  output_dir: str,
) -> None:
  """Measures, prints Markdown, and saves it with a plot; see the flags."""
  machine = distribution.describe_machine()
  report, compared = [machine], {}

  def add(text: str) -> None:
    print(f"{text}\n", flush=True)
    report.append(text)

  # Refuses wrong flags before the installation.
  comparison.workload_of(preset, 1, max_seq_length, precision)
  tokenization.SentencePieceTokenizer(spm_model_file)
  python = comparison.make_environment("huggingface", peers_dir)
  with tempfile.TemporaryDirectory() as folder:
    source, hf = make_random_model(preset, spm_model_file, folder)
    saved_model = os.path.join(folder, "1")
    data.run_program(
      *("export_saved_model", "--head=encoder"),
      f"--precision={precision.split('_')[-1]}",
      *(f"--model_dir={source}", f"--export_dir={saved_model}"),
    )

    def workload(batch_size: int, length: int) -> protocol.Workload:
      made = comparison.workload_of(preset, batch_size, length, precision)
      return dataclasses.replace(made, model_dir=saved_model)

    for batch_size in _BATCH_SIZES:
      ours = workload(batch_size, max_seq_length)
      compared[batch_size] = results = latencies(
        ours, hf, python, repeats, steps
      )
      rows = [latency_row(result, ours.tokens) for result in results]
      add(
        f"{preset}, {batch_size} x {max_seq_length} tokens, {precision}, "
        f"{ours.threads} threads:\n\n{printing.table(_HEAD, rows)}"
      )
    # The export alone.
    axis = f"batch size, S {max_seq_length}"
    shapes = [(axis, b, b, max_seq_length) for b in _ALL_BATCH_SIZES]
    axis = f"length, B {_BATCH}"
    shapes += [(axis, s, _BATCH, s) for s in _LENGTHS]
    points = [
      step.Point(axis, value, comparison.measure(workload(*shape), 3, steps))
      for axis, value, *shape in shapes
    ]
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers its operations)

    model = tf.saved_model.load(saved_model)
    add(measure_clients(model, workload(1, max_seq_length)))
    add(measure_text(model, max_seq_length))
  rows = [
    (p.axis, p.value, f"{p.result.median:,.0f}", p.result.peak) for p in points
  ]
  add(printing.table(("axis", "at", "tokens/s", "peak memory"), rows))
  if output_dir:
    path = os.path.join(output_dir, f"serving-{precision}")
    files.write_text(f"{path}.md", "\n\n".join(report) + "\n")
    files.write_json(f"{path}.json", [point.to_json() for point in points])
    title = f"{preset} served, {precision}, {machine}"
    step.draw_scaling(points, title, f"{path}.png", trace=False)
    for batch_size, results in compared.items():
      title = f"{batch_size} x {max_seq_length} tokens, {precision}, {machine}"
      comparison.draw(title, results, f"{path}-{batch_size}.png")


def make_random_model(
  preset: str, spm_model_file: str, folder: str
) -> tuple[str, str]:
  """Writes random weights for TF1 and Hugging Face; returns both folders."""
  source, hf = (os.path.join(folder, name) for name in ("random", "hf"))
  conversion.write_random(modeling.AlbertConfig.from_preset(preset), source)
  files.copy(spm_model_file, os.path.join(source, "30k-clean.model"))
  data.run_program(
    "convert_checkpoint", "--to=hf", f"--input={source}", f"--output={hf}"
  )
  return source, hf


def latencies(
  ours: protocol.Workload, hf: str, python: str, rounds: int, steps: int
) -> list[comparison.Result]:
  """Measures requests to all systems in turns; "half" is never float32."""

  def start(name: str) -> protocol.Peer:
    if name == comparison.OURS:
      return comparison.start(comparison.System("ours"), ours)
    other = dataclasses.replace(ours, model_dir=hf)
    return comparison.start(SYSTEMS[name], other, python)

  peers = [
    name
    for name, system in SYSTEMS.items()
    if system.variant != "half" or ours.precision != "float32"
  ]
  results = comparison.take_turns(start, peers, ours.tokens, rounds, steps)
  check_answers(results, _TOLERANCES[ours.precision])
  return results


def latency_row(result: comparison.Result, tokens: int) -> tuple[str, ...]:
  """Returns the cells of a row, given the tokens of a request."""
  if result.failure:
    return result.system, f"failed: {result.failure}"
  times = sorted(1e3 * tokens / rate for rate in result.tokens_per_second)
  return (
    result.system,
    f"{statistics.median(times):.1f}",
    f"{times[0]:.1f} to {times[-1]:.1f}",
    result.ratio(),
    result.peak,
    result.about,
  )


def check_answers(
  results: Sequence[comparison.Result], tolerance: float
) -> None:
  """Checks that all systems compute the same outputs."""
  first, *others = (result for result in results if not result.failure)
  for other in others:
    difference = abs(first.losses[0] - other.losses[0])
    if not difference <= tolerance:  # Also if it is NaN.
      raise ValueError(
        f"{other.system} computes something else: the mean of its pooled "
        f"output differs by {difference:.2g}."
      )


def measure_clients(model, workload: protocol.Workload) -> str:
  """Returns a table of the latencies that many clients see.

  Each client is a thread that waits for its answer before its next request.
  Every second row uses the operation by which TensorFlow Serving combines
  single requests into batches.
  """
  import tensorflow as tf

  run = model.signatures["ids"]
  one = dataclasses.replace(workload, batch_size=1)
  features = {
    name: tf.constant(value) for name, value in protocol.request(one).items()
  }
  spec = tf.TensorSpec([None, workload.max_seq_length], tf.int32)

  @tf.nondifferentiable_batch_function(
    num_batch_threads=1,
    max_batch_size=_SERVER_BATCHES[-1],
    batch_timeout_micros=_SERVER_TIMEOUT_MICROSECONDS,
    allowed_batch_sizes=list(_SERVER_BATCHES),
  )
  def in_batches(input_ids, input_mask, segment_ids):
    return run(
      input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids
    )["pooled_output"]

  batched = tf.function(in_batches, input_signature=[spec] * 3)
  requests = {
    "no": lambda: run(**features)["pooled_output"].numpy(),
    "yes": lambda: batched(*features.values()).numpy(),
  }
  for size in _SERVER_BATCHES:  # Compiles for every batch size.
    run(**{name: tf.repeat(x, size, 0) for name, x in features.items()})
  rows = []
  for clients in _CLIENTS:
    for is_batched, request in requests.items():
      times, seconds = _answer(request, clients)
      percentiles = np.percentile(times, (50, 95, 99), method="higher")
      cells = [f"{percentile:.0f}" for percentile in percentiles]
      rate = f"{len(times) / seconds:.1f}"
      rows.append((clients, is_batched, rate, *cells))
  return printing.table(_CLIENTS_HEAD, rows)


def _answer(request: Callable, clients: int) -> tuple[list[float], float]:
  """Returns the milliseconds of each answer, and the seconds of all."""
  request()
  start = time.perf_counter()
  milliseconds: list[float] = []

  def client() -> None:
    now = start
    while now - start < _CLIENTS_SECONDS or not milliseconds:
      now = time.perf_counter()
      request()
      milliseconds.append(1e3 * (time.perf_counter() - now))

  threads = [threading.Thread(target=client) for _ in range(clients)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return milliseconds, time.perf_counter() - start


def measure_text(model, max_seq_length: int) -> str:
  """Returns a sentence that compares raw text with the same request as ids."""
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
  rounds: tuple[list[float], list[float]] = ([], [])
  for _ in range(_TEXT_ROUNDS):
    for request, milliseconds in zip(requests, rounds):
      start = time.perf_counter()
      for _ in range(3):
        request()
      milliseconds.append(1e3 * (time.perf_counter() - start) / 3)
  overhead = statistics.median(text / ids - 1 for ids, text in zip(*rounds))
  ids_median, text_median = map(statistics.median, rounds)
  return (
    f"A raw text of {tokens} tokens takes {text_median:.1f} ms, the same "
    f"request as ids {ids_median:.1f} ms: {overhead:+.1%} in the median round."
  )
