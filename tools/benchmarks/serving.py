"""Latency and memory of an export beside those of Hugging Face's model.

A model with random weights is exported as a SavedModel, and as ONNX files if
they are asked for, and converted to a Hugging Face folder. All systems answer
the same requests in turns.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Sequence

from official_albert import files, tokenization
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import data, turns
from official_albert.tools.conversion import conversion

_BATCH_SIZES = (1, 8)
# Largest difference between the means of pooled outputs, which are between -1
# and 1.
_TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 0.01}


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints tables, and saves them if there is a folder."""
  precision, vocabulary = options.precision, options.spm_model_file
  single = options.workload()
  tokenization.SentencePieceTokenizer(vocabulary)
  names = ["saved_model", *(options.systems or turns.DEFAULTS[benchmark])]
  with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "tf1")
    conversion.write_random(AlbertConfig.from_dict(single.config), source)
    files.copy(vocabulary, os.path.join(source, "30k-clean.model"))
    data.run_program(
      *("convert_checkpoint", "--to=hf", f"--input={source}"),
      f"--output={folder}/huggingface",
    )
    export = "export_saved_model", f"--model_dir={source}", "--head=encoder"
    data.run_program(
      *(*export, f"--export_dir={folder}/exports"),
      f"--precision={precision.split('_')[-1]}",
    )
    for program, kind, *_ in map(turns.SYSTEMS.__getitem__, names):
      if program == "onnx_files":
        data.run_program(
          *(*export, f"--export_dir={folder}/onnx_{kind}", "--format=onnx"),
          f"--quantization={kind}",
        )
    for batch_size in _BATCH_SIZES:
      workload = dataclasses.replace(
        single, batch_size=batch_size, models_dir=folder
      )
      results = turns.take_turns(names, workload, options)
      exact = [x for x in results if x.system != "onnxruntime_int8"]
      check_answers(exact, _TOLERANCES[precision])
      turns.report(options, benchmark, workload, results)


def check_answers(results: Sequence[turns.Result], tolerance: float) -> None:
  """Checks that all systems compute the same outputs."""
  first, *others = results
  for other in others:
    difference = abs(first.results[0] - other.results[0])
    if not difference <= tolerance:  # Also if it is NaN.
      raise ValueError(
        f"{other.system} computes something else: the mean of its pooled "
        f"output differs by {difference:.2g}."
      )
