"""Latency and memory of exported models beside Hugging Face's.

A model with random weights is exported, as a SavedModel and for LiteRT, and
converted to a Hugging Face folder. All answer the same requests in turns.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from typing import Sequence

from official_albert import files, machine, tokenization
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import data, turns
from official_albert.tools.conversion import conversion

SYSTEMS = {
  "saved_model": turns.System("exports", "saved_model"),
  "tflite": turns.System("exports", "tflite"),
  "tflite_int8": turns.System("exports", "tflite"),
  "hf_eager": turns.System("huggingface", "eager"),
  "hf_sdpa": turns.System("huggingface", "sdpa"),
  "hf_sdpa_malloc": turns.System("huggingface", "sdpa", turns.MALLOC_TUNED),
}
_BATCH_SIZES = (1, 8)
# Largest difference between the means of pooled outputs, which are between -1
# and 1.
_TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 0.01}
_INT8_TOLERANCE = 0.01
_HEAD = (
  *("ms a request", "lowest to highest round", "saved_model, times as fast"),
  *("peak memory", "s to the first answer"),
)


def run(
  preset: str,
  max_seq_length: int,
  precision: str,
  systems: Sequence[str],
  repeats: int,
  steps: int,
  spm_model_file: str,
  output_dir: str,
) -> None:
  """Measures, prints tables, and saves those of the requests; see the flags."""
  workload = turns.workload_of(preset, 1, max_seq_length, precision)
  tokenization.SentencePieceTokenizer(spm_model_file)
  names = turns.choose(systems, SYSTEMS, list(SYSTEMS), workload)
  with tempfile.TemporaryDirectory() as folder:
    _make_models(preset, spm_model_file, max_seq_length, precision, folder)
    for batch_size in _BATCH_SIZES:
      workload = dataclasses.replace(workload, batch_size=batch_size)

      def start(name: str, workload=workload) -> turns.Peer:
        kind = "hf" if name.startswith("hf") else name
        model_dir = os.path.join(folder, kind)
        workload = dataclasses.replace(workload, model_dir=model_dir)
        return turns.Peer(name, SYSTEMS[name], workload)

      def cells(result: turns.Result, tokens=workload.tokens) -> Sequence[str]:
        times = sorted(1e3 * tokens / rate for rate in result.tokens_per_second)
        return (
          f"{statistics.median(times):.1f}",
          f"{times[0]:.1f} to {times[-1]:.1f}",
          result.ratio(),
          f"{result.peak_bytes / 2**30:.2f} GiB",
          f"{result.start_seconds:.1f}",
        )

      # TFLite files have a fixed batch of one sequence.
      able = [x for x in names if batch_size == 1 or "tflite" not in x]
      results = turns.take_turns(able, start, repeats, steps)
      check_answers(results, _TOLERANCES[precision])
      size = f"{batch_size}x{max_seq_length}"
      title = (
        f"{preset}, {batch_size} x {max_seq_length} tokens, {precision}, "
        f"{workload.threads} threads: {machine.describe_machine()}"
      )
      turns.report(
        *(output_dir, f"serving-{preset}-{size}-{precision}", title, _HEAD),
        *(cells, workload, results),
      )


def _make_models(
  preset: str,
  spm_model_file: str,
  max_seq_length: int,
  precision: str,
  folder: str,
) -> None:
  """Writes a random model to the folders of the systems, and hf."""
  source = os.path.join(folder, "tf1")
  conversion.write_random(AlbertConfig.from_preset(preset), source)
  files.copy(spm_model_file, os.path.join(source, "30k-clean.model"))
  hf = f"--output={folder}/hf"
  data.run_program("convert_checkpoint", "--to=hf", f"--input={source}", hf)
  tflite = ("--format=tflite", f"--sequence_length={max_seq_length}")
  for name, flags in {
    "saved_model": [f"--precision={precision.split('_')[-1]}"],
    "tflite": [*tflite, "--quantization=none"],  # Always in float32.
    "tflite_int8": [*tflite, "--quantization=int8"],
  }.items():
    data.run_program(
      *("export_saved_model", f"--model_dir={source}", "--head=encoder"),
      *(f"--export_dir={folder}/{name}", *flags),
    )


def check_answers(results: Sequence[turns.Result], tolerance: float) -> None:
  """Checks that all systems compute the same outputs."""
  first, *others = (result for result in results if not result.failure)
  for other in others:
    allowed = max(tolerance, _INT8_TOLERANCE * ("int8" in other.system))
    difference = abs(first.results[0] - other.results[0])
    if not difference <= allowed:  # Also if it is NaN.
      raise ValueError(
        f"{other.system} computes something else: the mean of its pooled "
        f"output differs by {difference:.2g}."
      )
