"""Latency and memory of exported models beside Hugging Face's.

A model with random weights is exported, as a SavedModel and for LiteRT, and
converted to a Hugging Face folder. All answer the same requests in turns.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import tempfile
from typing import Sequence

from official_albert import files, machine, modeling, tokenization
from official_albert.tools.benchmarks import data, turns
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.conversion import conversion

# TFLite files have a fixed batch of one sequence, in float32.
_TFLITE = {"tflite": "none", "tflite_int8": "int8"}
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
  peers_dir: str,
  output_dir: str,
) -> None:
  """Measures, prints tables, and saves those of the requests; see the flags."""
  names = turns.choose(systems, turns.SERVED, list(turns.SERVED))
  turns.check_comparable(preset, precision)
  turns.workload_of(preset, 1, max_seq_length, precision)
  tokenization.SentencePieceTokenizer(spm_model_file)
  hf_python = turns.find_environment(map(turns.SERVED.get, names), peers_dir)
  with tempfile.TemporaryDirectory() as folder:
    models = _make_models(
      *(preset, spm_model_file, max_seq_length, precision, folder)
    )

    def start(workload: protocol.Workload, name: str) -> protocol.Peer:
      model_dir = models["hf" if name.startswith("hf") else name]
      of_system = dataclasses.replace(workload, model_dir=model_dir)
      return turns.start(turns.SERVED[name], of_system, hf_python)

    for batch_size in _BATCH_SIZES:
      workload = turns.workload_of(
        preset, batch_size, max_seq_length, precision
      )
      results = turns.take_turns(
        [x for x in names if batch_size == 1 or x not in _TFLITE],
        functools.partial(start, workload),
        *(workload.tokens, repeats, steps),
      )
      check_answers(results, _TOLERANCES[precision])
      title = (
        f"{preset}, {batch_size} x {max_seq_length} tokens, {precision}, "
        f"{workload.threads} threads: {machine.describe_machine()}"
      )
      cells = functools.partial(_cells, workload.tokens)
      turns.save(
        output_dir,
        f"serving-{preset}-{batch_size}x{max_seq_length}-{precision}",
        f"{title}\n\n{turns.table(_HEAD, results, cells)}\n",
        *(workload, results),
      )


def _make_models(
  preset: str,
  spm_model_file: str,
  max_seq_length: int,
  precision: str,
  folder: str,
) -> dict[str, str]:
  """Writes a random model in all formats; returns the folder of each."""
  source, hf = (os.path.join(folder, x) for x in ("tf1", "hf"))
  conversion.write_random(modeling.AlbertConfig.from_preset(preset), source)
  files.copy(spm_model_file, os.path.join(source, "30k-clean.model"))
  data.run_program(
    "convert_checkpoint", "--to=hf", f"--input={source}", f"--output={hf}"
  )
  models = {"hf": hf}
  exports = {
    "saved_model": [
      "--head=encoder",
      f"--precision={precision.split('_')[-1]}",
    ],
    **{
      name: [
        *("--head=encoder", "--format=tflite"),
        f"--quantization={quantization}",
        f"--sequence_length={max_seq_length}",
      ]
      for name, quantization in _TFLITE.items()
    },
  }
  for name, flags in exports.items():
    models[name] = os.path.join(folder, name)
    data.run_program(
      *("export_saved_model", f"--model_dir={source}"),
      *(f"--export_dir={models[name]}", *flags),
    )
  return {**models, "c_api": models["saved_model"]}


def _cells(tokens: int, result: turns.Result) -> Sequence[str]:
  """Returns the cells of a row, given the tokens of a request."""
  times = sorted(1e3 * tokens / rate for rate in result.tokens_per_second)
  return (
    f"{statistics.median(times):.1f}",
    f"{times[0]:.1f} to {times[-1]:.1f}",
    result.ratio(),
    f"{result.peak_bytes / 2**30:.2f} GiB",
    f"{result.start_seconds:.1f}",
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
