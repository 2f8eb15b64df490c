"""Measures how fast an exported model answers, and Hugging Face's in PyTorch.

A model with random weights is exported, and converted to a Hugging Face folder;
both answer the same requests, in turns. The export alone is also measured with
raw texts, batches and lengths, and many clients at once.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

from official_albert import distribution, files, modeling, tokenization
from tools import conversion
from tools.benchmarks import comparison, serving_load
from tools.benchmarks.peers import huggingface, protocol
from tools.benchmarks.step import Point
from tools.cli import markdown

_BATCH_SIZES = (1, 8)
_ALL_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (16, 32, 64, 128, 256, 512)
_LENGTHS_BATCH = 8
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


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured, and where it goes; see the flags of tools.benchmark."""

  preset: str
  max_seq_length: int
  precision: str
  rounds: int
  steps: int
  spm_model_file: str
  peers_dir: str
  output_dir: str
  load_seconds: float = serving_load.SECONDS

  def workload(
    self, model_dir: str = "", batch_size: int = 1, max_seq_length: int = 0
  ) -> protocol.Workload:
    """Returns the workload of a served model.

    Raises:
      ValueError: unknown preset or precision, or a size out of range.
    """
    workload = comparison.workload_of(
      self.preset,
      batch_size,
      max_seq_length or self.max_seq_length,
      self.precision,
    )
    return dataclasses.replace(workload, model_dir=model_dir)


class Models(NamedTuple):
  """Folders with the same weights."""

  saved_model: str
  huggingface: str


def run(settings: Settings) -> None:
  """Measures, prints Markdown, and saves it with a plot.

  Raises:
    FileNotFoundError: there is no such SentencePiece model.
    ValueError: unknown sizes, an environment or a model cannot be created, or
      the answers differ.
  """
  machine = distribution.describe_machine()
  report = [machine]

  def add(text: str) -> None:
    print(f"{text}\n", flush=True)
    report.append(text)

  for length in (settings.max_seq_length, *_LENGTHS):
    settings.workload(max_seq_length=length)
  tokenization.SentencePieceTokenizer(settings.spm_model_file)
  python = comparison.make_environment("huggingface", settings.peers_dir)
  with tempfile.TemporaryDirectory() as folder:
    models = make_models(settings, folder)
    for batch_size in _BATCH_SIZES:
      add(latencies(settings, models, batch_size, python))
    add(
      serving_load.table(
        serving_load.measure(
          settings.workload(models.saved_model), settings.load_seconds
        )
      )
    )
    points = throughputs(settings, models.saved_model)
    add(throughput_table(points))
  if settings.output_dir:
    from tools.benchmarks import plots  # Matplotlib takes a second to load.

    os.makedirs(settings.output_dir, exist_ok=True)
    path = os.path.join(settings.output_dir, f"serving-{settings.precision}")
    files.write_text(f"{path}.md", "\n\n".join(report) + "\n")
    numbers = [dataclasses.asdict(point) for point in points]
    files.write_json(f"{path}.json", numbers)
    plots.draw_scaling(points, f"{path}.png", rows=2)


def make_models(settings: Settings, folder: str) -> Models:
  """Exports and converts random weights with this project's programs.

  Raises:
    ValueError: one of them failed.
  """
  source = os.path.join(folder, "random")
  conversion.random_checkpoint.write(
    modeling.AlbertConfig.from_preset(settings.preset), source
  )
  shutil.copy(settings.spm_model_file, os.path.join(source, "30k-clean.model"))
  models = Models(*(os.path.join(folder, name) for name in ("1", "hf")))
  precision = settings.precision.split("_")[-1]
  for program, *arguments in (
    ("convert_checkpoint", "--to=hf", f"--input={source}",
     f"--output={models.huggingface}"),
    ("export_saved_model", "--head=encoder", f"--precision={precision}",
     f"--model_dir={source}", f"--export_dir={models.saved_model}"),
  ):  # fmt: skip
    done = subprocess.run(
      [sys.executable, "-m", f"tools.{program}", *arguments],
      capture_output=True,
      text=True,
    )
    if done.returncode:
      raise ValueError(f"tools.{program} failed: {done.stderr.strip()}")
  return models


_LATENCY_HEAD = (
  *("system", "ms a request", "lowest to highest round", "ours is faster by"),
  *("peak memory", "set up as"),
)


def latencies(
  settings: Settings, models: Models, batch_size: int, python: str
) -> str:
  """Returns a table of milliseconds per request, all systems in turns.

  Raises:
    ValueError: our program failed, or answers differ.
  """
  workload = settings.workload(models.saved_model, batch_size)

  def start(name: str) -> protocol.Peer:
    if name == comparison.OURS:
      return comparison.start(comparison.System("ours"), workload)
    other = dataclasses.replace(workload, model_dir=models.huggingface)
    return comparison.start(SYSTEMS[name], other, python)

  results, _ = comparison.take_turns(
    start,
    peers_of(settings.precision),
    workload.tokens,
    settings.rounds,
    settings.steps,
  )
  check_answers(results, _TOLERANCES[settings.precision])
  title = (
    f"{settings.preset}, {batch_size} x {settings.max_seq_length} tokens, "
    f"{settings.precision}, {workload.threads} threads:"
  )
  rows = [latency_row(result, workload.tokens) for result in results]
  return f"{title}\n\n{markdown.table(_LATENCY_HEAD, rows)}"


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


def check_answers(results: list[comparison.Result], tolerance: float) -> None:
  """Checks that all systems compute the same.

  Raises:
    ValueError: an answer differs.
  """
  first, *others = (result for result in results if not result.failure)
  for other in others:
    difference = abs(first.losses[0] - other.losses[0])
    if not difference <= tolerance:  # Also if it is NaN.
      raise ValueError(
        f"{other.system} computes something else: the mean of its pooled "
        f"output differs by {difference:.2g}."
      )


def throughputs(settings: Settings, saved_model: str) -> list[Point]:
  """Measures the export alone, for several batches and lengths."""
  batch = f"batch size, S {settings.max_seq_length}"
  length = f"length, B {_LENGTHS_BATCH}"
  shapes = [(batch, b, b, settings.max_seq_length) for b in _ALL_BATCH_SIZES]
  shapes += [(length, s, _LENGTHS_BATCH, s) for s in _LENGTHS]
  points = []
  for axis, value, batch_size, max_seq_length in shapes:
    workload = settings.workload(saved_model, batch_size, max_seq_length)
    with comparison.start(comparison.System("ours"), workload) as process:
      timed = [process.run(settings.steps) for _ in range(3)]
    rates = [
      workload.tokens * settings.steps / sum(each.seconds) for each in timed
    ]
    points.append(Point(axis, value, rates, timed[-1].peak_bytes, 0.0, 0.0))
  return points


def throughput_table(points: list[Point]) -> str:
  """Returns a table with a row per point."""
  rows = [
    (
      point.axis,
      str(point.value),
      f"{point.median:,.0f}",
      f"{point.peak_bytes / 2**30:.2f} GiB",
    )
    for point in points
  ]
  return markdown.table(("axis", "at", "tokens/s", "peak memory"), rows)
