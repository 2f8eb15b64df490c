"""Latency and memory of an export beside those of Hugging Face's model.

A model with random weights is exported as a SavedModel and converted to a
Hugging Face folder. All systems answer the same requests in turns.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from typing import Sequence

from official_albert import files, tokenization
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import data, turns
from official_albert.tools.conversion import conversion

SYSTEMS = {
  "saved_model": turns.System("exports"),
  "hf_eager": turns.System("huggingface", "eager"),
  "hf_sdpa": turns.System("huggingface", "sdpa"),
  "hf_sdpa_malloc": turns.System("huggingface", "sdpa", turns.MALLOC_TUNED),
}
_BATCH_SIZES = (1, 8)
# Largest difference between the means of pooled outputs, which are between -1
# and 1.
_TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 0.01}


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints tables, and saves them if there is a folder."""
  precision, vocabulary = options.precision, options.spm_model_file
  single = options.workload()
  tokenization.SentencePieceTokenizer(vocabulary)
  names = turns.choose(options.systems, SYSTEMS, list(SYSTEMS))
  with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "tf1")
    conversion.write_random(AlbertConfig.from_dict(single.config), source)
    files.copy(vocabulary, os.path.join(source, "30k-clean.model"))
    data.run_program(
      *("convert_checkpoint", "--to=hf", f"--input={source}"),
      f"--output={folder}/huggingface",
    )
    data.run_program(
      *("export_saved_model", f"--model_dir={source}", "--head=encoder"),
      f"--export_dir={folder}/exports",
      f"--precision={precision.split('_')[-1]}",
    )
    for batch_size in _BATCH_SIZES:
      workload = dataclasses.replace(
        single, batch_size=batch_size, models_dir=folder
      )
      results = turns.take_turns(names, SYSTEMS, workload, options)
      check_answers(results, _TOLERANCES[precision])
      note = f"{workload.threads} threads"
      rows = [_row(x, workload.tokens) for x in results]
      turns.report(options, benchmark, note, rows, workload, results)


def _row(result: turns.Result, tokens: int) -> dict[str, str]:
  times = sorted(1e3 * tokens / rate for rate in result.tokens_per_second)
  if not times:
    return result.cells()
  middle = statistics.median(times)
  text = f"{middle:.1f} ({times[0]:.1f} to {times[-1]:.1f})"
  return result.cells(**{"ms a request": text})


def check_answers(results: Sequence[turns.Result], tolerance: float) -> None:
  """Checks that all systems compute the same outputs."""
  first, *others = (result for result in results if not result.failure)
  for other in others:
    difference = abs(first.results[0] - other.results[0])
    if not difference <= tolerance:  # Also if it is NaN.
      raise ValueError(
        f"{other.system} computes something else: the mean of its pooled "
        f"output differs by {difference:.2g}."
      )
