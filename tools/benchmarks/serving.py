"""Latency, memory and first answer of exported models beside Hugging Face's.

A model with random weights is exported, as a SavedModel and for LiteRT, and
converted to a Hugging Face folder. All answer the same requests in turns. Then
new processes answer one question each, from their start to their end.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import sys
import tempfile
from typing import Sequence

from official_albert import files, machine, modeling, tokenization
from official_albert.tools.benchmarks import data, turns
from official_albert.tools.benchmarks.peers import protocol
from official_albert.tools.cli import printing
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
# What each system is asked, in the lines that its documentation shows. {hf} is
# a folder in Hugging Face's format, {text} a SavedModel with --signatures=text.
_FIRST_ANSWERS = {
  "official_albert": """
import official_albert as albert
model = albert.load({hf!r})
print(model.fill_mask("The default [MASK] is None.", top_k=3))
""",
  "saved_model": """
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load({text!r}).signatures["fill_mask"]
print(model(text=tf.constant(["The default [MASK] is None."])))
""",
  "c_api": """
from official_albert.tools.benchmarks import c_api_loader
model = c_api_loader.CApiModel({text!r})
print(model.run("fill_mask", {{"text": ["The default [MASK] is None."]}}))
""",
  "hf_pipeline": """
from transformers import pipeline
model = pipeline("fill-mask", model={hf!r})
print(model("The default [MASK] is None.", top_k=3))
""",
}


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
  hf_python = turns.make_environment(map(turns.SERVED.get, names), peers_dir)
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
    print(_first_answers(models, hf_python, repeats))


def _make_models(
  preset: str,
  spm_model_file: str,
  max_seq_length: int,
  precision: str,
  folder: str,
) -> dict[str, str]:
  """Writes a random model in all formats; returns the folder of each."""
  source, hf, text = (os.path.join(folder, x) for x in ("tf1", "hf", "text"))
  conversion.write_random(modeling.AlbertConfig.from_preset(preset), source)
  files.copy(spm_model_file, os.path.join(source, "30k-clean.model"))
  data.run_program(
    "convert_checkpoint", "--to=hf", f"--input={source}", f"--output={hf}"
  )
  models = {"hf": hf, "text": text}
  exports = {
    "text": ["--signatures=text"],
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


def _first_answers(models: dict[str, str], hf_python: str, repeats: int) -> str:
  """Returns a table of new processes with one question each, in turns."""
  ran: dict[str, list[data.ProgramRun]] = {}
  # tf.keras is what the package of the process needs.
  environment = {
    k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"
  }
  for _ in range(repeats):
    for name, code in _FIRST_ANSWERS.items():
      python = hf_python if name.startswith("hf") else sys.executable
      if python:
        command = [python, "-c", code.format(**models)]
        done = data.run_command(name, command, env=environment)
        ran.setdefault(name, []).append(done)
  rows = []
  for name, processes in ran.items():
    seconds = sorted(process.seconds for process in processes)
    peak = statistics.median(process.peak_bytes for process in processes)
    rows.append(
      (
        *(name, f"{statistics.median(seconds):.1f}"),
        f"{seconds[0]:.1f} to {seconds[-1]:.1f}",
        f"{peak / 2**30:.2f} GiB",
      )
    )
  head = ("first fill_mask", "seconds", "lowest to highest", "peak memory")
  return printing.table(head, rows)
