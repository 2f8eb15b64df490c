"""Latency, memory and start of exports beside those of other systems.

A model with random weights is exported, as SavedModels and as the ONNX and
TFLite files that are asked for, and converted to a Hugging Face folder, from
which other systems make theirs. All processes answer the same requests in
turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import statistics
import tempfile
import time
from typing import Any, Mapping, Sequence

import numpy as np

from official_albert import files, tokenization
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import command_line, printing
from official_albert.tools.conversion import conversion
from official_albert.train_config import whole_numbers

# Largest difference of pooled outputs, which are between -1 and 1, in float32.
_TOLERANCE = 1e-4
# The same on GPUs, which round operands to TF32: an eighth of that of bfloat16.
_TF32_TOLERANCE = 0.01
# Threads of other systems wait so long for more work before they sleep.
_PAUSE_SECONDS = 0.3


@dataclasses.dataclass
class Served:
  """The measurements of one system."""

  system: str
  about: str = ""
  # From the start of a process to its first answer, and its peak memory then.
  first_seconds: list[float] = dataclasses.field(default_factory=list)
  first_bytes: list[int] = dataclasses.field(default_factory=list)
  peak_bytes: int = 0  # Of the process that has answered everything.
  # The sizes of requests, milliseconds of each, difference of the outputs.
  cases: list[dict[str, Any]] = dataclasses.field(default_factory=list)

  def row(self) -> dict[str, str]:
    """Returns a row of the table."""
    gibibytes = [x / 2**30 for x in self.first_bytes]
    row = {
      "system": self.system,
      "first answer, s": printing.spread(self.first_seconds, ".2f"),
      "GiB then": f"{statistics.median(gibibytes):.2f}",
      "GiB in the end": f"{self.peak_bytes / 2**30:.2f}",
    }
    for case in self.cases:
      name = "{batch_size} x {max_seq_length}".format(**case)
      name += ", padded" * case["padded"]
      row[name] = f"{statistics.median(case['milliseconds']):.1f}"
    difference = max(case["difference"] for case in self.cases)
    return row | {"difference": f"{difference:.2g}", "set up as": self.about}


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints a table, and saves it if there is a folder."""
  workload, vocabulary = options.workload(), options.spm_model_file
  if options.precision != "float32":
    raise ValueError(
      "serving has a system for each precision, such as "
      f"--systems=saved_model_bfloat16, and no --precision={options.precision}."
    )
  cases = _cases(options, workload.config["max_position_embeddings"])
  tokenization.SentencePieceTokenizer(vocabulary)
  systems = options.systems or turns.DEFAULTS[benchmark]
  names = list(dict.fromkeys(["saved_model", *systems]))
  head, flag, settings = ("pretraining", 0), "--head=encoder", {}
  if options.classify:
    head, flag = ("classification", 2), "--task=text_classification"
    settings = {"output": "probabilities"}
  for name in names:
    if options.classify and not name.startswith(("saved_model", "hf_")):
      raise ValueError(f"--classify: {name} has only pooled outputs.")
  for name in names:
    turns.SYSTEMS[name].python()
  with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "tf1")
    config = AlbertConfig.from_dict(workload.config)
    conversion.write_random(config, source, *head)
    files.copy(vocabulary, os.path.join(source, "30k-clean.model"))
    export = "export_saved_model", f"--model_dir={source}", flag
    _write_models(export, folder, names, {x["max_seq_length"] for x in cases})
    workload = dataclasses.replace(
      workload, **cases[0], models_dir=folder, settings=settings
    )
    results = [Served(name) for name in names]
    with contextlib.ExitStack() as stack:
      processes = _start(results, workload, options.repeats, stack)
      for case in cases:
        _take_turns(processes, results, case, options)
        # What is measured is kept if a later case fails.
        rows = [result.row() for result in results]
        name = f"{benchmark}-{options.preset}" + "-classify" * options.classify
        turns.report(options, name, workload, results, rows)


def _cases(options: turns.Options, longest: int) -> list[dict[str, Any]]:
  """Returns the sizes of requests, or raises ValueError."""
  batches = whole_numbers("--batch_sizes", options.batch_sizes)
  lengths = whole_numbers(
    "--lengths", options.lengths or str(options.max_seq_length)
  )
  if min(*batches, *lengths) < 1 or max(lengths) > longest:
    raise ValueError(
      f"--batch_sizes and --lengths must be from 1, and {options.preset} takes "
      f"at most {longest} tokens."
    )
  return [
    {"batch_size": batch_size, "max_seq_length": length, "padded": padded}
    for padded, length, batch_size in itertools.product(
      range(1 + options.padded), lengths, batches
    )
    if batch_size > 1 or not padded  # The first row is never padded.
  ]


def _write_models(
  export: Sequence[str], folder: str, names: Sequence[str], lengths: set[int]
) -> None:
  """Exports and converts what the systems serve, from FOLDER/tf1."""
  command_line.run_program(
    *("convert_checkpoint", "--to=hf", f"--input={folder}/tf1"),
    f"--output={folder}/huggingface",
  )
  wanted = set()
  for program, kind in (turns.SYSTEMS[name][:2] for name in names):
    if program in ("exports", "c_api"):
      wanted.add(kind if program == "exports" else f"exports_{kind}")
    elif "openvino_onnx" in kind:
      wanted.add("onnx_none")
  for name in sorted(wanted):
    form, _, kind = name.partition("_")
    to = f"--export_dir={folder}/{name}"
    if form == "exports":
      more = "--signatures=ids", f"--precision={kind}"
      command_line.run_program(*export, to, *more)
      continue
    file = f"--format={form}", f"--quantization={kind}"
    if form == "onnx":
      command_line.run_program(*export, to, *file)
      continue
    for length in lengths:
      size = f"--sequence_length={length}"
      command_line.run_program(*export, f"{to}_{length}", *file, size)


def _start(
  results: Sequence[Served],
  workload: turns.Workload,
  repeats: int,
  stack: contextlib.ExitStack,
) -> list[turns.Process]:
  """Measures first answers in turns; returns the last process of each system.

  A process that is not counted prepares files, and reads them into memory.
  """
  processes = []
  for i in range(1 + repeats):
    for result in results:
      start = time.monotonic()
      system = turns.SYSTEMS[result.system]
      process = turns.Process(result.system, system, workload)
      with contextlib.ExitStack() as own:
        own.enter_context(process)
        answer = process.ask('{"requests": 1}')
        if i:
          result.first_seconds.append(time.monotonic() - start)
          result.first_bytes.append(answer["peak_bytes"])
        result.about = answer["about"]
        if i == repeats:
          stack.push(own.pop_all())
          processes.append(process)
  return processes


def _take_turns(
  processes: Sequence[turns.Process],
  results: Sequence[Served],
  case: Mapping[str, Any],
  options: turns.Options,
) -> None:
  """Sends requests of one size to the systems, in turns."""
  pairs = list(zip(processes, results))
  line = json.dumps({**case, "requests": options.steps})
  expected: Any = None
  for process, result in pairs:
    # Not counted: it includes compilation.
    found = np.array(process.ask(line)["outputs"])
    expected = found if expected is None else expected
    difference = float(abs(found - expected).max())
    is_rounded = re.search("int8|float16", result.system)  # Also bfloat16.
    has_tf32 = os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
    has_tf32 &= "GPU" in result.about
    limit = _TF32_TOLERANCE if has_tf32 else _TOLERANCE
    if not (difference <= limit or is_rounded):  # Also if it is NaN.
      raise ValueError(
        f"{result.system} computes something else: a pooled output differs by "
        f"{difference:.2g}."
      )
    result.cases.append({**case, "milliseconds": [], "difference": difference})
  for i in range(options.repeats):
    for process, result in pairs[::-1] if i % 2 else pairs:
      time.sleep(_PAUSE_SECONDS)
      answer = process.ask(line)
      result.cases[-1]["milliseconds"] += answer["milliseconds"]
      result.peak_bytes = answer["peak_bytes"]
