"""How fast an exported model answers, beside Hugging Face's in PyTorch.

A model with random weights is exported, and converted to a folder of Hugging
Face; both answer the same requests, round by round in turn. Then the export
alone: raw texts beside ids, batches and lengths, and many clients at once.
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

from official_albert import files, modeling, tokenization
from tools import conversion
from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks import scaling, serving_load
from tools.benchmarks.peers import environments as peer_venvs
from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import results as peer_results
from tools.benchmarks.peers import rounds as peer_rounds
from tools.benchmarks.peers import serving as peer_serving
from tools.cli import markdown

_BATCH_SIZES = (1, 8)
_ALL_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_LENGTHS = (16, 32, 64, 128, 256, 512)
_LENGTHS_BATCH = 8
# How far the means of pooled outputs, numbers between -1 and 1, may be apart.
_TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 0.01}
# PyTorch as installed, and with the memory kept that it gives back otherwise.
SYSTEMS = {
  f"hf_{variant}{suffix}": (variant, environment)
  for variant in peer_serving.VARIANTS
  for suffix, environment in (
    ("", {}),
    ("_malloc", benchmark_peers.KEEP_MEMORY),
  )
}


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured, and where it goes; see the flags of tools.benchmark."""

  preset: str = "albert_base_v2"
  max_seq_length: int = 128
  precision: str = "mixed_bfloat16"
  rounds: int = 5
  steps: int = 10
  spm_model_file: str = ""
  peers_dir: str = "~/.cache/official_albert/peers"
  output_dir: str = ""
  machine: str = ""
  load_seconds: float = serving_load.SECONDS


class Models(NamedTuple):
  """Folders of the same weights."""

  saved_model: str
  huggingface: str


def run(settings: Settings) -> None:
  """Measures, prints Markdown, and saves it with the plot.

  Raises:
    ValueError: an environment or a model cannot be made, or answers differ.
  """
  report = [settings.machine]

  def say(text: str) -> None:
    print(f"{text}\n", flush=True)
    report.append(text)

  check(settings)
  python = peer_venvs.make("huggingface", settings.peers_dir)
  with tempfile.TemporaryDirectory() as folder:
    models = make_models(settings, folder)
    for batch_size in _BATCH_SIZES:
      say(latencies(settings, models, batch_size, python))
    loads = serving_load.measure(
      _own(settings, models, 1), settings.load_seconds
    )
    say(serving_load.table(loads))
    points = throughputs(settings, models)
    say(throughput_table(points))
  if settings.output_dir:
    os.makedirs(settings.output_dir, exist_ok=True)
    name = os.path.join(settings.output_dir, f"serving-{settings.precision}")
    files.write_text(f"{name}.md", "\n\n".join(report) + "\n")
    figures = [dataclasses.asdict(point) for point in points]
    files.write_json(f"{name}.json", figures)
    from tools.benchmarks import plots

    plots.draw_scaling(points, f"{name}.png", rows=2)


def check(settings: Settings) -> None:
  """Refuses what is of no use, before minutes are spent.

  Raises:
    FileNotFoundError: there is no such SentencePiece model.
    ValueError: unknown sizes, or it is no such model.
  """
  for length in (settings.max_seq_length, *_LENGTHS):
    _workload(settings, 1, length)
  tokenization.SentencePieceTokenizer(settings.spm_model_file)


def make_models(settings: Settings, folder: str) -> Models:
  """Random weights, exported and converted by the project's own programs.

  Raises:
    ValueError: one of them failed.
  """
  first = os.path.join(folder, "random")
  conversion.random_checkpoint.write(
    modeling.AlbertConfig.from_preset(settings.preset), first
  )
  shutil.copy(settings.spm_model_file, os.path.join(first, "30k-clean.model"))
  models = Models(*(os.path.join(folder, name) for name in ("1", "hf")))
  precision = settings.precision.split("_")[-1]
  for arguments in (
    ("convert_checkpoint", "--to=hf", f"--input={first}",
     f"--output={models.huggingface}"),
    ("export_saved_model", "--head=encoder", f"--precision={precision}",
     f"--model_dir={first}", f"--export_dir={models.saved_model}"),
  ):  # fmt: skip
    done = subprocess.run(
      [sys.executable, "-m", f"tools.{arguments[0]}", *arguments[1:]],
      capture_output=True,
      text=True,
    )
    if done.returncode:
      raise ValueError(f"tools.{arguments[0]} failed: {done.stderr.strip()}")
  return models


def _workload(
  settings: Settings, batch_size: int, length: int = 0
) -> peer_protocol.Workload:
  return benchmark_peers.workload_of(
    settings.preset,
    batch_size,
    length or settings.max_seq_length,
    settings.precision,
  )


def _own(settings: Settings, models: Models, batch_size: int, length: int = 0):
  return dataclasses.replace(
    _workload(settings, batch_size, length), model_dir=models.saved_model
  )


def latencies(
  settings: Settings, models: Models, batch_size: int, python: str
) -> str:
  """A table of milliseconds a request, all systems in turn.

  Raises:
    ValueError: this project's program failed, or answers differ.
  """
  workload = _own(settings, models, batch_size)

  def start(name: str) -> peer_process.PeerProcess:
    if name == peer_results.OURS:
      return peer_process.PeerProcess(
        sys.executable, peer_serving.__name__, workload
      )
    variant, environment = SYSTEMS[name]
    return peer_process.PeerProcess(
      python,
      peer_serving.__name__,
      dataclasses.replace(
        workload, variant=variant, model_dir=models.huggingface
      ),
      environment,
    )

  results, _ = peer_rounds.compare(
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
  """The systems that compute in a precision; "half" is never float32."""
  return [
    name
    for name, (variant, _) in SYSTEMS.items()
    if variant != "half" or precision != "float32"
  ]


_LATENCY_HEAD = (
  *("system", "ms a request", "lowest to highest round", "ours is faster by"),
  *("peak memory", "set up as"),
)


def latency_row(result: peer_results.Result, tokens: int) -> tuple[str, ...]:
  """Returns the cells of a row; `tokens` are those of a request."""
  if result.failure:
    return result.system, f"failed: {result.failure}"
  times = sorted(1e3 * tokens / rate for rate in result.tokens_per_second)
  ratio = "1"
  if result.system != peer_results.OURS:
    ratio = f"{statistics.median(result.ratios):.2f}"
    ratio += f" ({min(result.ratios):.2f} to {max(result.ratios):.2f})"
  return (
    result.system,
    f"{statistics.median(times):.1f}",
    f"{times[0]:.1f} to {times[-1]:.1f}",
    ratio,
    f"{result.peak_bytes / 2**30:.2f} GiB",
    result.about,
  )


def check_answers(results: list[peer_results.Result], tolerance: float) -> None:
  """Refuses to compare programs that do not compute the same.

  Raises:
    ValueError: they don't.
  """
  first, *others = (result for result in results if not result.failure)
  for other in others:
    difference = abs(first.losses[0] - other.losses[0])
    if not difference <= tolerance:
      raise ValueError(
        f"{other.system} answers something else: the mean of its pooled output "
        f"differs by {difference:.2g}."
      )


def throughputs(settings: Settings, models: Models) -> list[scaling.Point]:
  """The export alone, for batches and lengths."""
  batch = f"batch size, S {settings.max_seq_length}"
  length = f"length, B {_LENGTHS_BATCH}"
  places = [(batch, b, b, settings.max_seq_length) for b in _ALL_BATCH_SIZES]
  places += [(length, s, _LENGTHS_BATCH, s) for s in _LENGTHS]
  points = []
  for axis, value, batch_size, max_seq_length in places:
    workload = _own(settings, models, batch_size, max_seq_length)
    with peer_process.PeerProcess(
      sys.executable, peer_serving.__name__, workload
    ) as process:
      timed = [process.run(settings.steps) for _ in range(3)]
    rates = [
      workload.tokens * settings.steps / sum(each.seconds) for each in timed
    ]
    points.append(
      scaling.Point(axis, value, rates, timed[-1].peak_bytes, 0.0, 0.0)
    )
  return points


def throughput_table(points: list[scaling.Point]) -> str:
  """Returns a table with a row for each point."""
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
