"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

    files -> blocks of text -> (by shard) documents -> records

The steps call the functions of `build_worker`, so the shards and the manifest
equal those of the local engine, byte by byte. A shard has to fit into the
memory of a worker. During a build, the runner repeats lost work; a failed build
starts over.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import re
import shlex
import tempfile
from typing import Any, Iterator, Sequence

import apache_beam as beam
from apache_beam.options import pipeline_options
from apache_beam.runners.portability import fn_api_runner

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  documents,
  output_folder,
  token_store,
)

# Beam's long error messages contain the error of the failed step, alone or at
# the end of a chain of tracebacks.
_STEP_ERROR = re.compile(
  r"^(?:\w+\.)*(ValueError|FileNotFoundError|OSError|PermissionError): (.*?)"
  r"(?: \[while running|\n\n(?:During handling of|The above exception))",
  re.MULTILINE | re.DOTALL,
)
# Runners whose workers always run on other machines.
_REMOTE_RUNNERS = ("DataflowRunner",)
_LONG_NAMES = {  # Of a runner that Beam does not know by its short one.
  "DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner"
}
_SKIPPED = "skipped"  # What is grouped besides the documents of each shard.
_Counts = data_statistics.Counts
# The split and the index of a shard.
_Shard = tuple[str, int]


def build_dataset_with_beam(
  settings: build_worker.BuildSettings,
  runner: str = "DirectRunner",
  beam_options: str = "",
) -> tfrecords.Manifest:
  """Builds a dataset and returns its manifest; ignores `num_workers`.

  `runner` is a name such as "DataflowRunner", and `beam_options` are further
  options of the pipeline, in command-line syntax.
  """
  options = pipeline_options.PipelineOptions(
    shlex.split(beam_options), runner=_LONG_NAMES.get(runner, runner)
  )
  direct = options.view_as(pipeline_options.DirectOptions)
  if direct.direct_running_mode == "multi_threading":
    raise ValueError(
      "direct_running_mode multi_threading silently loses records: use "
      "in_memory or multi_processing."
    )
  if settings.examples.sentence_pair == "nsp" or (
    settings.examples.masking == "compat"
  ):
    raise ValueError(
      "sentence_pair nsp and masking compat take segments from any other "
      "document, which Beam's workers cannot read: use --engine=local."
    )
  weights = documents.find_weighted_files(settings.input_files)
  for path in [*weights, settings.output_dir]:
    if runner in _REMOTE_RUNNERS and not files.is_remote(path):
      raise ValueError(
        f"the workers of {runner} cannot read {path!r} on this machine: use "
        "a path like gs://bucket/folder."
      )
  job = build_worker.Job(settings)
  tokenizer = job.tokenizer  # Raises an error before any work.
  reader = documents.DocumentReader(weights, settings.reading)
  fingerprint = settings.fingerprint(reader, tokenizer.sha256)
  with output_folder.unfinished(
    settings.output_dir, settings.overwrite, {"engine": "beam", **fingerprint}
  ) as staging:
    files.copy(
      tokenizer.model_file,
      os.path.join(staging, tfrecords.TOKENIZER_FILES[tokenizer.kind]),
    )
    output_folder.remove_manifest(settings.output_dir)
    # Workers may run in another folder.
    folder = files.absolute(settings.output_dir)
    plan = Plan(settings, folder, files.read_bytes(tokenizer.model_file))
    inputs = [(files.absolute(path), weights[path]) for path in weights]
    result = os.path.join(
      folder if files.is_remote(folder) else files.absolute(staging),
      "result.json",
    )
    try:
      _run(options, plan, inputs, result)
      found = files.read_json(result, list[list[Any]], "start again")
      skipped = documents.Skipped(**found.pop()[1])
      splits = {
        name: _make_split(job, name, [x for x in found if x[0][0] == name])
        for name in settings.splits
      }
    except BaseException:
      shards = [
        tfrecords.shard_name(name, index, num_shards)
        for name, num_shards in settings.splits.items()
        for index in range(num_shards)
      ]
      output_folder.remove_files(settings.output_dir, shards)
      raise
    finally:
      if files.exists(result):
        files.remove(result)
    manifest = job.make_manifest(weights, splits, skipped)
    output_folder.finish(settings.output_dir, staging, manifest)
  return manifest


def _make_split(
  job: build_worker.Job, name: str, found: Sequence[Any]
) -> tfrecords.Split:
  """Returns the manifest's entry of a split, given the results of its shards.

  Beam's steps see one document at a time, so unlike `split_documents` they hold
  out what the hashes say, however few documents that are.
  """
  _, entries, counts, repeats = zip(*found)
  total = sum(map(_Counts.from_json, counts), _Counts())
  if not total.documents:
    where = files.quote_paths(job.settings.input_files)
    raise ValueError(
      f"the {name} split gets none of the documents of {where}, which are too "
      "few for --engine=beam: use --engine=local, or another --heldout_share."
    )
  shards = [tfrecords.Shard(**entry) for entry in entries]
  return job.make_split(name, shards, total, sum(repeats))


def _run(
  options: pipeline_options.PipelineOptions,
  plan: Plan,
  inputs: Sequence[tuple[str, float]],
  result_path: str,
) -> None:
  name = options.view_as(pipeline_options.StandardOptions).runner
  # Show the messages of a remote runner about its job.
  runner, level = None, logging.INFO
  if name == "DirectRunner":
    # For this name, Beam would first try to download another runner. It also
    # logs the traceback of errors, which are reported as one sentence here.
    runner, level = fn_api_runner.FnApiRunner(), logging.CRITICAL
  logger = logging.getLogger("apache_beam")
  before = logger.level
  try:
    logger.setLevel(logging.WARNING)
    pipeline = beam.Pipeline(runner=runner, options=options)
    _add_steps(pipeline, plan, inputs, result_path)
    logger.setLevel(level)
    result = pipeline.run()
    result.wait_until_finish()
    if client := getattr(result, "client", None):  # Dask's stays open.
      client.close()
  except Exception as error:
    if isinstance(error, (ValueError, OSError)):  # Raised in this process.
      message = str(error).split(" [while running")[0]
      raise type(error)(message) from error
    found = _STEP_ERROR.search(str(error))
    if not found:
      raise
    kind = ValueError if found[1] == "ValueError" else OSError
    raise kind(found[2].strip()) from error
  finally:
    logger.setLevel(before)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The information that all steps have before any text is read.

  `folder` is that of the shards. `tokenizer_model` is the content of the
  tokenizer file, which only the driver can read.
  """

  settings: build_worker.BuildSettings
  folder: str
  tokenizer_model: bytes


@functools.lru_cache(maxsize=2)
def _open_job(plan: Plan) -> build_worker.Job:
  """Returns the job, with the tokenizer in a local file; cached."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokenizer")
    with open(path, "wb") as file:
      file.write(plan.tokenizer_model)
    job = build_worker.Job(plan.settings.with_tokenizer(path))
    _ = job.vocabulary  # Load it while the file exists.
    return job


def _add_steps(
  pipeline: beam.Pipeline,
  plan: Plan,
  inputs: Sequence[tuple[str, float]],
  result_path: str,
) -> None:
  """Adds all steps to a pipeline; the last one writes `result_path`.

  No step has side inputs or several outputs, which Beam's runner on Dask
  computes once for each element or mixes.
  """
  # Shards without records are written too.
  every_key = [(_SKIPPED, 0)] + [
    (name, index)
    for name, num_shards in plan.settings.splits.items()
    for index in range(num_shards)
  ]
  grouped = (
    pipeline
    | "Files" >> beam.Create(list(enumerate(inputs)))
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read" >> beam.FlatMap(_read_blocks, plan)
    # Otherwise one worker would tokenize a whole file.
    | "SpreadBlocks" >> beam.Reshuffle()
    | "Tokenize" >> beam.FlatMap(_tokenize, plan),
    pipeline | "Every" >> beam.Create([(key, None) for key in every_key]),
  )
  _ = (
    grouped
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, plan)
    | "Gather" >> beam.GroupByKey()
    | "Result" >> beam.Map(_write_result, result_path)
  )


def _read_blocks(
  element: tuple[int, tuple[str, float]], plan: Plan
) -> Iterator[tuple[int, documents.Block]]:
  """Yields the blocks of a file, and the number of the file."""
  number, (path, weight) = element
  reader = documents.DocumentReader({path: weight}, plan.settings.reading)
  for block in reader.blocks():
    yield number, block


def _tokenize(
  element: tuple[int, documents.Block], plan: Plan
) -> Iterator[tuple[_Shard, Any]]:
  """Yields each document with each of its shards, and what is skipped."""
  number, block = element
  found, skipped = _open_job(plan).tokenize(block)
  if skipped.count:
    yield (_SKIPPED, 0), (number, block.first_line, skipped)
  bound = token_store.heldout_bound(plan.settings.heldout_share)
  for index in range(len(found)):
    document = found.alone(index)
    row, name = document.rows, token_store.TRAIN
    if int(row["text"][0]) < bound:
      row["copies"], name = 1, token_store.HELDOUT
    num_shards = plan.settings.splits[name]
    for shard in {
      int(token_store.shards_of(row["text"], duplicate, num_shards)[0])
      for duplicate in range(row["copies"][0])
    }:
      yield (name, shard), document


def _write_shard(
  element: tuple[_Shard, Sequence[Any]], plan: Plan
) -> tuple[None, Any]:
  """Returns a shard's key, entry and counts, and how many texts it repeats.

  For the key of what is skipped, returns all of that.
  """
  key, items = element
  found = [item for item in items if item is not None]
  if key[0] == _SKIPPED:
    total = documents.Skipped()
    for *_, skipped in sorted(found, key=lambda item: item[:2]):
      total.add(skipped)
    return None, (key, dataclasses.asdict(total))
  name, index = key
  settings, job = plan.settings, _open_job(plan)
  num_shards = settings.splits[name]
  nothing, _ = job.tokenize(documents.Block("", 1, b""))
  corpus = token_store.concatenate([nothing, *found])
  split = token_store.arrange(corpus.rows, settings.drop_duplicates)
  made = job.make_examples(corpus, split, index, num_shards)
  path = os.path.join(
    plan.folder, tfrecords.shard_name(name, index, num_shards)
  )
  entry = dataclasses.asdict(job.write_shard(path, made))
  # A text is counted in the shard of its first duplicate.
  first = token_store.shards_of(split.repeated, 0, num_shards)
  return None, (key, entry, made.counts.to_json(), int(sum(first == index)))


def _write_result(element: tuple[None, Sequence[Any]], path: str) -> None:
  """Writes what the driver needs, the shards in order, then what is skipped."""
  _, found = element
  in_order = sorted(found, key=lambda x: (x[0][0] == _SKIPPED, *x[0]))
  files.write_json(path, in_order)
