"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

It is for text that takes too long on one machine. The shards and the manifest
are those of the local engine, byte by byte. A failed build starts over; during
a build the runner repeats lost work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
import shlex
import shutil
import tempfile
from typing import Any, Callable, Iterator, Optional, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.options import pipeline_options
from apache_beam.runners.portability import fn_api_runner

import tfrecords
from tasks.pretraining.data import (
  beam_steps,
  build_worker,
  data_statistics,
  dataset_builder,
  documents,
  output_folder,
  split_builder,
)

_RESULT_FILE = "result.json"
# Beam's errors contain the error of a step somewhere in a long text.
_STEP_ERROR = re.compile(
  r"^(?:\w+\.)*(ValueError|FileNotFoundError|OSError|PermissionError): (.*?)"
  r" \[while running",
  re.MULTILINE | re.DOTALL,
)
# Runners whose workers are always on other machines.
_REMOTE_RUNNERS = ("DataflowRunner",)


def build_dataset_with_beam(
  settings: dataset_builder.BuildSettings,
  runner: str = "DirectRunner",
  beam_options: str = "",
) -> tfrecords.Manifest:
  """Builds a dataset.

  Args:
    settings: settings of the dataset; `num_workers` is ignored.
    runner: name of the runner, such as "DataflowRunner".
    beam_options: further options of the pipeline, as on a command line.

  Returns:
    The manifest that has been written.

  Raises:
    ValueError: a setting or the input is invalid.
    OSError: a file cannot be read or written.
  """
  options = _options(runner, beam_options)
  if settings.examples.sentence_pair == "nsp" or (
    settings.examples.masking == "compat"
  ):
    raise ValueError(
      "sentence_pair nsp and masking compat take segments from any other "
      "document, which Beam's workers cannot read: use --engine=local."
    )
  paths = documents.find_files(settings.input_files)
  _check_reachable(runner, [*paths, settings.output_dir])
  job = build_worker.Job(
    settings.spm_model_file,
    settings.do_lower_case,
    settings.examples,
    settings.random_seed,
    folder="",
    vocab_file=settings.vocab_file,
  )
  tokenizer = job.tokenizer  # Raises an error before any work.
  with open(tokenizer.model_file, "rb") as file:
    model = file.read()
  fingerprint = settings.fingerprint(paths, tokenizer.sha256)
  with _output(settings, job, {"engine": "beam", **fingerprint}) as (
    folder,
    publish,
  ):
    plan = beam_steps.Plan(
      dataclasses.replace(settings),
      dataclasses.replace(job, folder=folder),
      model,
    )
    result_path = os.path.join(folder, _RESULT_FILE)
    _run(options, plan, [_absolute(path) for path in paths], result_path)
    manifest = _manifest(settings, job, paths, result_path)
    publish(manifest)
  return manifest


def _options(
  runner: str, beam_options: str
) -> pipeline_options.PipelineOptions:
  options = pipeline_options.PipelineOptions(
    shlex.split(beam_options), runner=runner
  )
  direct = options.view_as(pipeline_options.DirectOptions)
  if direct.direct_running_mode == "multi_threading":
    raise ValueError(
      "direct_running_mode multi_threading silently loses records: use "
      "in_memory or multi_processing."
    )
  return options


def _absolute(path: str) -> str:
  """Returns a path for workers that run in another folder."""
  return path if "://" in path else os.path.abspath(path)


def _check_reachable(runner: str, paths: Sequence[str]) -> None:
  for path in paths:
    if runner in _REMOTE_RUNNERS and "://" not in path:
      raise ValueError(
        f"the workers of {runner} cannot read {path!r} on this machine: use "
        "a path like gs://bucket/folder."
      )


def _run(
  options: pipeline_options.PipelineOptions,
  plan: beam_steps.Plan,
  paths: Sequence[str],
  result_path: str,
) -> None:
  name = options.view_as(pipeline_options.StandardOptions).runner
  # Show the messages of a remote runner about its job.
  runner, level = None, logging.INFO
  if name == "DirectRunner":
    # For this name, Beam would first try to download another runner. It also
    # logs the traceback of errors, which are reported as one sentence here.
    runner, level = fn_api_runner.FnApiRunner(), logging.CRITICAL
  with _log_level(logging.WARNING):
    pipeline = beam.Pipeline(runner=runner, options=options)
    beam_steps.build(pipeline, plan, paths, result_path)
  try:
    with _log_level(level):
      pipeline.run().wait_until_finish()
  except Exception as error:
    raised = _raised_by_step(error)
    if raised is None:
      raise
    raise raised from error


@contextlib.contextmanager
def _log_level(level: int) -> Iterator[None]:
  """Sets the level of Beam's log for a while."""
  logger = logging.getLogger("apache_beam")
  before = logger.level
  logger.setLevel(level)
  try:
    yield
  finally:
    logger.setLevel(before)


def _raised_by_step(error: Exception) -> Optional[Exception]:
  """Finds the error of a step in an error of Beam."""
  if isinstance(error, (ValueError, OSError)):  # Raised in this process.
    return type(error)(str(error).split(" [while running")[0])
  found = _STEP_ERROR.search(str(error))
  if not found:
    return None
  kind = ValueError if found[1] == "ValueError" else OSError
  return kind(found[2].strip())


def _manifest(
  settings: dataset_builder.BuildSettings,
  job: build_worker.Job,
  paths: Sequence[str],
  result_path: str,
) -> tfrecords.Manifest:
  """Makes the manifest from the pipeline's result file.

  Raises:
    ValueError: a split has no example.
  """
  import tensorflow as tf

  with tf.io.gfile.GFile(result_path) as file:
    result = json.loads(file.read())
  splits = {}
  skipped = documents.Skipped(**result.pop("skipped"))
  for name, value in result.items():
    counts = data_statistics.ExampleCounts.from_json(value["counts"])
    split_builder.check_some(name, counts)
    num_documents, num_segments, pieces = value["text"]
    text = data_statistics.TextCounts(
      num_documents, num_segments, np.array(pieces, np.int64)
    )
    splits[name] = tfrecords.Split(
      tuple(tfrecords.Shard(**shard) for shard in value["shards"]),
      dataset_builder.statistics(job, text, counts),
    )
  return dataset_builder.make_manifest(settings, job, paths, splits, skipped)


_Publish = Callable[[tfrecords.Manifest], None]


@contextlib.contextmanager
def _output(
  settings: dataset_builder.BuildSettings,
  job: build_worker.Job,
  fingerprint: dict[str, Any],
) -> Iterator[tuple[str, _Publish]]:
  """Yields the workers' output folder and the function that publishes it."""
  if "://" in settings.output_dir:
    yield from _remote_output(settings, job)
    return
  with output_folder.staging_folder(
    settings.output_dir, settings.overwrite, fingerprint
  ) as staging:

    def publish(manifest: tfrecords.Manifest) -> None:
      shutil.copyfile(
        job.tokenizer.model_file,
        os.path.join(staging, manifest.tokenizer.file),
      )
      output_folder.publish(settings.output_dir, manifest)

    yield os.path.abspath(staging), publish


def _remote_output(
  settings: dataset_builder.BuildSettings, job: build_worker.Job
) -> Iterator[tuple[str, _Publish]]:
  """Does the same for storage on which folders cannot be renamed.

  Shards are written to their final paths. The manifest, without which nobody
  reads them, is still written last.
  """
  from tensorflow.io import gfile

  folder = settings.output_dir
  manifest_path = os.path.join(folder, tfrecords.MANIFEST_FILE)
  if gfile.exists(manifest_path):
    if not settings.overwrite:
      raise ValueError(output_folder.holds_dataset(folder))
    gfile.remove(manifest_path)

  def remove_shards() -> None:
    if gfile.exists(folder):
      for name in gfile.listdir(folder):
        if output_folder.is_shard(name) or name == _RESULT_FILE:
          gfile.remove(os.path.join(folder, name))

  def publish(manifest: tfrecords.Manifest) -> None:
    gfile.remove(os.path.join(folder, _RESULT_FILE))
    tokenizer_path = os.path.join(folder, manifest.tokenizer.file)
    gfile.copy(job.tokenizer.model_file, tokenizer_path, overwrite=True)
    with tempfile.TemporaryDirectory() as local:
      tfrecords.write_manifest(local, manifest)
      gfile.copy(os.path.join(local, tfrecords.MANIFEST_FILE), manifest_path)

  remove_shards()
  gfile.makedirs(folder)
  try:
    yield folder, publish
  except BaseException:
    remove_shards()
    raise
