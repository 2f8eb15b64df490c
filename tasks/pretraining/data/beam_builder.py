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
from typing import Any, Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.options import pipeline_options

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  dataset_builder,
  documents,
  settings,
)

# Beam's long error messages contain the error of the failed step, alone or at
# the end of a chain of tracebacks.
_STEP_ERROR = re.compile(
  r"^(?:\w+\.)*(?:ValueError|OSError|FileNotFoundError|PermissionError): "
  r"(.*?)(?: \[while running|\n\n(?:During handling of|The above exception))",
  re.MULTILINE | re.DOTALL,
)
_RUNNERS = {
  # For the short name, Beam would first try to download another runner.
  "DirectRunner": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
  # Beam does not know the short name.
  "DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner",
}


def build_dataset_with_beam(
  build: settings.BuildSettings, runner: str = "DirectRunner", options: str = ""
) -> tfrecords.Manifest:
  """Builds a dataset and returns its manifest; ignores `num_workers`.

  `runner` is a name such as "DataflowRunner", and `options` are further options
  in command-line syntax. The error of a step is raised as a ValueError.
  """
  # A remote runner tells about its job; the local one logs tracebacks.
  level = logging.CRITICAL if runner == "DirectRunner" else logging.INFO
  logging.getLogger("apache_beam").setLevel(level)
  given = pipeline_options.PipelineOptions(
    shlex.split(options), runner=_RUNNERS.get(runner, runner)
  )
  direct = given.view_as(pipeline_options.DirectOptions)
  if direct.direct_running_mode == "multi_threading":
    raise ValueError(
      "direct_running_mode multi_threading silently loses records: use "
      "in_memory or multi_processing."
    )
  with dataset_builder.open_build(build) as (job, reader, _):
    dataset_builder.remove_files(build.output_dir, [tfrecords.MANIFEST_FILE])
    # Workers may run in another folder.
    folder = files.absolute(build.output_dir)
    job.settings = dataclasses.replace(build, output_dir=folder)
    inputs = [(files.absolute(x), y) for x, y in reader.weights.items()]
    try:
      result = _pipeline(given, job, inputs).run()
      result.wait_until_finish()
    except Exception as error:
      # It may be the error of the step itself, raised in this process.
      text = f"{type(error).__name__}: {error} [while running"
      if found := _STEP_ERROR.search(text):
        raise ValueError(found[1].strip()) from error
      raise
    if client := getattr(result, "client", None):  # Dask's stays open.
      client.close()
    return dataset_builder.finish(job, reader.weights)


def _pipeline(
  options: pipeline_options.PipelineOptions,
  job: build_worker.Job,
  inputs: list[tuple[str, float]],
) -> beam.Pipeline:
  """Returns all steps, which use what Beam's runner on Dask can do.

  It fails with side inputs and with several outputs.
  """
  pipeline = beam.Pipeline(options=options)
  documents_by_shard = (
    pipeline
    | "Files" >> beam.Create(inputs)
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read" >> beam.FlatMap(_read_blocks, job.settings.reading)
    # Otherwise one worker would tokenize a whole file.
    | "SpreadBlocks" >> beam.Reshuffle()
    | "Tokenize" >> beam.FlatMap(_tokenize, job)
  )
  # Shards without documents are written too.
  shards = job.settings.shards.items()
  every = [((x, i), None) for x, names in shards for i in range(len(names))]
  _ = (
    (documents_by_shard, pipeline | "Every" >> beam.Create(every))
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, job)
  )
  return pipeline


def _read_blocks(
  file: tuple[str, float], reading: settings.ReaderSettings
) -> Iterator[documents.Block]:
  return documents.DocumentReader(dict([file]), reading).blocks()


def _tokenize(
  block: documents.Block, job: build_worker.Job
) -> Iterator[tuple[tuple[str, int], build_worker.Tokenized]]:
  """Yields each document with each of its shards."""
  for found in job.tokenize(block):
    name = settings.HELDOUT if found.is_heldout else settings.TRAIN
    num_shards = len(job.settings.shards[name])
    duplicates = np.arange(found.copies)
    shards = build_worker.shards_of(found.text, duplicates, num_shards)
    for shard in np.unique(shards).tolist():
      yield (name, shard), found


def _write_shard(
  element: tuple[tuple[str, int], Iterable[Any]], job: build_worker.Job
) -> None:
  """Writes a shard, given its documents."""
  shard, items = element
  job.write_shard([item for item in items if item is not None], *shard)
