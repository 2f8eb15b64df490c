"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

    files -> blocks of text -> (by shard) documents -> records

The steps call the functions of `build_worker`, so the shards and the manifest
equal those of the local engine, byte by byte. A shard has to fit into the
memory of a worker. During a build, the runner repeats lost work; a failed build
starts over.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import shlex
from typing import Any, Iterator, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.options import pipeline_options
from apache_beam.runners.portability import fn_api_runner

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  dataset_builder,
  documents,
  token_store,
)
from official_albert.tasks.pretraining.data.settings import (
  HELDOUT,
  TRAIN,
  BuildSettings,
)

# Beam's long error messages contain the error of the failed step, alone or at
# the end of a chain of tracebacks.
_STEP_ERROR = re.compile(
  r"^(?:\w+\.)*(ValueError|FileNotFoundError|OSError|PermissionError): (.*?)"
  r"(?: \[while running|\n\n(?:During handling of|The above exception))",
  re.MULTILINE | re.DOTALL,
)
# Beam does not know it by its short name.
_DASK_RUNNER = "apache_beam.runners.dask.dask_runner.DaskRunner"
# The split and the index of a shard.
_Shard = tuple[str, int]


def build_dataset_with_beam(
  settings: BuildSettings, runner: str = "DirectRunner", beam_options: str = ""
) -> tfrecords.Manifest:
  """Builds a dataset and returns its manifest; ignores `num_workers`.

  `runner` is a name such as "DataflowRunner", and `beam_options` are further
  options of the pipeline, in command-line syntax.
  """
  options = pipeline_options.PipelineOptions(
    shlex.split(beam_options),
    runner=_DASK_RUNNER if runner == "DaskRunner" else runner,
  )
  with dataset_builder.open_build(settings, engine="beam") as opened:
    job, reader, _ = opened
    dataset_builder.remove_files(settings.output_dir, [tfrecords.MANIFEST_FILE])
    # Workers may run in another folder.
    folder = files.absolute(settings.output_dir)
    job.settings = dataclasses.replace(settings, output_dir=folder)
    inputs = [(files.absolute(x), y) for x, y in reader.weights.items()]
    _run(options, job, inputs)
    return dataset_builder.finish(job, reader.weights)


def _run(
  options: pipeline_options.PipelineOptions,
  job: build_worker.Job,
  inputs: Sequence[tuple[str, float]],
) -> None:
  """Runs the pipeline; an error of a step is raised as by the local engine."""
  runner, logger = None, logging.getLogger("apache_beam")
  logger.setLevel(logging.INFO)  # A remote runner tells about its job.
  name = options.view_as(pipeline_options.StandardOptions).runner
  if name == "DirectRunner":
    # For this name, Beam would first try to download another runner. It also
    # logs the traceback of errors, which are reported as one sentence here.
    runner = fn_api_runner.FnApiRunner()
    logger.setLevel(logging.CRITICAL)
  try:
    pipeline = beam.Pipeline(runner=runner, options=options)
    _add_steps(pipeline, job, inputs)
    result = pipeline.run()
    result.wait_until_finish()
    if client := getattr(result, "client", None):  # Dask's stays open.
      client.close()
  except Exception as error:
    # It may be the error of the step itself, raised in this process.
    text = f"{type(error).__name__}: {error} [while running"
    found = _STEP_ERROR.search(text)
    if not found:
      raise
    kind = ValueError if found[1] == "ValueError" else OSError
    raise kind(found[2].strip()) from error


def _add_steps(
  pipeline: beam.Pipeline,
  job: build_worker.Job,
  inputs: Sequence[tuple[str, float]],
) -> None:
  """Adds all steps to a pipeline.

  No step has side inputs or several outputs, which Beam's runner on Dask
  computes once for each element or mixes.
  """
  # Shards without records are written too.
  every_shard = [
    ((name, index), None)
    for name, shards in job.settings.shards.items()
    for index in range(len(shards))
  ]
  grouped = (
    pipeline
    | "Files" >> beam.Create(inputs)
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read" >> beam.FlatMap(_read_blocks, job.settings.reading)
    # Otherwise one worker would tokenize a whole file.
    | "SpreadBlocks" >> beam.Reshuffle()
    | "Tokenize" >> beam.FlatMap(_tokenize, job),
    pipeline | "Every" >> beam.Create(every_shard),
  )
  _ = (
    grouped
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, job)
  )


def _read_blocks(
  file: tuple[str, float], settings: documents.ReaderSettings
) -> Iterator[documents.Block]:
  return documents.DocumentReader(dict([file]), settings).blocks()


def _tokenize(
  block: documents.Block, job: build_worker.Job
) -> Iterator[tuple[_Shard, Any]]:
  """Yields the tokens and the row of each document with each of its shards."""
  found = job.tokenize(block)
  for index, document in enumerate(found):
    row = found.rows[index : index + 1]
    name = HELDOUT if row["is_heldout"][0] else TRAIN
    num_shards = len(job.settings.shards[name])
    shards = {
      int(token_store.shards_of(row["text"], duplicate, num_shards)[0])
      for duplicate in range(row["copies"][0])
    }
    yield from (
      ((name, shard), (token_store.mark(document), row)) for shard in shards
    )


def _write_shard(
  element: tuple[_Shard, Sequence[Any]], job: build_worker.Job
) -> None:
  """Writes a shard, given its documents."""
  shard, items = element
  found = [(np.zeros(0, np.int32), np.zeros(0, token_store.ROW))]
  found += [item for item in items if item is not None]
  columns = map(np.concatenate, zip(*found))
  job.write_shard(token_store.Documents(*columns), *shard)
