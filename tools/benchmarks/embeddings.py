"""Vectors of texts by a run and its export, beside sentence-transformers."""

from __future__ import annotations

import dataclasses
import os
import tempfile

from official_albert import checkpoints, files
from official_albert.config import AlbertConfig, Pooling
from official_albert.tools.benchmarks import turns
from official_albert.tools.cli import command_line
from official_albert.tools.conversion import conversion

# Of the mean sizes of the numbers in vectors of length 1.
_TOLERANCE = 1e-6
_FORMATS = {"run": "official_albert", "sentence_transformers": "hf"}


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints a table, and saves it if there is a folder."""
  workload = case = options.workload()
  texts = files.read_bytes(options.input_files).decode().splitlines()
  with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "tf1")
    conversion.write_random(AlbertConfig.from_dict(workload.config), source)
    files.copy(options.spm_model_file, os.path.join(source, "30k-clean.model"))
    checkpoint = checkpoints.read_checkpoint(source)
    checkpoint.head, checkpoint.pooling = "embedding", Pooling()
    checkpoint.max_seq_length = workload.max_seq_length
    for name, kind in _FORMATS.items():
      files.make_folder(os.path.join(folder, name))
      checkpoints.WRITERS[kind](checkpoint, os.path.join(folder, name))
    command_line.run_program(
      *("export_saved_model", f"--model_dir={folder}/run"),
      f"--export_dir={folder}/exports",
    )
    files.write_text(os.path.join(folder, "texts.txt"), "\n".join(texts))
    # A step is a pass over all texts, so that rates are those of texts.
    workload = dataclasses.replace(
      workload,
      batch_size=len(texts),
      max_seq_length=1,
      models_dir=folder,
      settings={"batch_size": options.batch_size},
    )
    names = ["embed", *(options.systems or turns.DEFAULTS[benchmark])]
    results = turns.take_turns(names, workload, options)
  first, *others = (result.results[0] for result in results)
  if not all(abs(first - x) <= _TOLERANCE for x in others):  # Also if NaN.
    raise ValueError(f"the means of vectors differ: {first}, {others}.")
  rows = [
    {name.replace("token", "text"): value for name, value in row.items()}
    for row in (result.row(len(texts), 1) for result in results)
  ]
  name = turns.case_name(benchmark, options.preset, case)
  turns.report(options, name, case, results, rows)
