"""Measures the latency of an exported model and of Hugging Face's in PyTorch.

A model with random weights is exported and also converted to a Hugging Face
folder. Both answer the same requests in turns. The export alone is also
measured with raw texts, several batch sizes and lengths, and many clients.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Callable, Sequence

from official_albert import distribution, files, modeling, tokenization
from tools import conversion
from tools.benchmarks import comparison, serving_load, step
from tools.benchmarks.peers import huggingface, protocol
from tools.cli import printing

_BATCH_SIZES = (1, 8)
_ALL_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (16, 32, 64, 128, 256, 512)
_LENGTHS_BATCH = 8
_LOAD_SECONDS = 8.0
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
  *("system", "ms a request", "lowest to highest round", "ours is faster by"),
  *("peak memory", "set up as"),
)
# Returns the workload of a model folder, a batch size and a length.
_Workloads = Callable[[str, int, int], protocol.Workload]


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
  report = [distribution.describe_machine()]

  def add(text: str) -> None:
    print(f"{text}\n", flush=True)
    report.append(text)

  def workload(
    model_dir: str, batch_size: int, length: int
  ) -> protocol.Workload:
    made = comparison.workload_of(preset, batch_size, length, precision)
    return dataclasses.replace(made, model_dir=model_dir)

  for length in (max_seq_length, *_LENGTHS):
    workload("", 1, length)
  tokenization.SentencePieceTokenizer(spm_model_file)
  python = comparison.make_environment("huggingface", peers_dir)
  with tempfile.TemporaryDirectory() as folder:
    saved_model, hf = make_models(preset, precision, spm_model_file, folder)
    for batch_size in _BATCH_SIZES:
      ours = workload(saved_model, batch_size, max_seq_length)
      results = latencies(ours, hf, python, repeats, steps)
      rows = [latency_row(result, ours.tokens) for result in results]
      add(
        f"{preset}, {batch_size} x {max_seq_length} tokens, {precision}, "
        f"{ours.threads} threads:\n\n{printing.table(_HEAD, rows)}"
      )
    one = workload(saved_model, 1, max_seq_length)
    add(serving_load.measure(one, _LOAD_SECONDS))
    points = throughputs(workload, saved_model, max_seq_length, steps)
  rows = [
    (p.axis, p.value, f"{p.median:,.0f}", f"{p.peak_bytes / 2**30:.2f} GiB")
    for p in points
  ]
  add(printing.table(("axis", "at", "tokens/s", "peak memory"), rows))
  if output_dir:
    path = os.path.join(output_dir, f"serving-{precision}")
    files.write_text(f"{path}.md", "\n\n".join(report) + "\n")
    files.write_json(f"{path}.json", [point._asdict() for point in points])
    step.draw_scaling(points, f"{path}.png", trace=False)


def make_models(
  preset: str, precision: str, spm_model_file: str, folder: str
) -> list[str]:
  """Exports and converts random weights with this project's programs.

  Returns:
    The folders of the export and of the Hugging Face model.
  """
  source = os.path.join(folder, "random")
  config = modeling.AlbertConfig.from_preset(preset)
  conversion.write_random(config, source)
  shutil.copy(spm_model_file, os.path.join(source, "30k-clean.model"))
  saved_model, hf = (os.path.join(folder, name) for name in ("1", "hf"))
  export_precision = precision.split("_")[-1]
  for program, *arguments in (
    ("convert_checkpoint", "--to=hf", f"--input={source}", f"--output={hf}"),
    ("export_saved_model", "--head=encoder", f"--precision={export_precision}")
    + (f"--model_dir={source}", f"--export_dir={saved_model}"),
  ):
    done = subprocess.run(
      [sys.executable, "-m", f"tools.{program}", *arguments],
      capture_output=True,
      text=True,
    )
    if done.returncode:
      raise ValueError(f"tools.{program} failed: {done.stderr.strip()}")
  return [saved_model, hf]


def latencies(
  ours: protocol.Workload, hf: str, python: str, rounds: int, steps: int
) -> list[comparison.Result]:
  """Measures requests to all systems in turns."""

  def start(name: str) -> protocol.Peer:
    if name == comparison.OURS:
      return comparison.start(comparison.System("ours"), ours)
    other = dataclasses.replace(ours, model_dir=hf)
    return comparison.start(SYSTEMS[name], other, python)

  peers = peers_of(ours.precision)
  results, _ = comparison.take_turns(start, peers, ours.tokens, rounds, steps)
  check_answers(results, _TOLERANCES[ours.precision])
  return results


def peers_of(precision: str) -> list[str]:
  """Returns the systems for a precision; "half" is never float32."""
  return [
    name
    for name, system in SYSTEMS.items()
    if system.variant != "half" or precision != "float32"
  ]


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
    f"{result.peak_bytes / 2**30:.2f} GiB",
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


def throughputs(
  workload: _Workloads, saved_model: str, max_seq_length: int, steps: int
) -> list[step.Point]:
  """Measures the export alone, for several batches and lengths."""
  batch = f"batch size, S {max_seq_length}"
  shapes = [(batch, b, b, max_seq_length) for b in _ALL_BATCH_SIZES]
  length = f"length, B {_LENGTHS_BATCH}"
  shapes += [(length, s, _LENGTHS_BATCH, s) for s in _LENGTHS]
  points = []
  for axis, value, *shape in shapes:
    work = workload(saved_model, *shape)
    with comparison.start(comparison.System("ours"), work) as process:
      timed = [process.run(steps) for _ in range(3)]
    rates = [work.tokens * steps / sum(each.seconds) for each in timed]
    points.append(step.Point(axis, value, rates, timed[-1].peak_bytes))
  return points
