"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

    files -> documents -> (by text) occurrences -> (by shard) examples, records

The steps call the functions of `build_worker`, so the shards and the manifest
equal those of the local engine, byte by byte. A shard has to fit into the
memory of a worker. During a build, the runner repeats lost work; a failed build
starts over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import shlex
import tempfile
from typing import Any, Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
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

_RESULT_FILE = "result.json"
# Beam's long error messages contain the error of the failed step, alone or at
# the end of a chain of tracebacks.
_STEP_ERROR = re.compile(
  r"^(?:\w+\.)*(ValueError|FileNotFoundError|OSError|PermissionError): (.*?)"
  r"(?: \[while running|\n\n(?:During handling of|The above exception))",
  re.MULTILINE | re.DOTALL,
)
# Runners whose workers always run on other machines.
_REMOTE_RUNNERS = ("DataflowRunner",)
# Outputs of steps besides their main one.
_SKIPPED, _REPEATED = "skipped", "repeated"
_Counts = data_statistics.Counts


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
    shlex.split(beam_options), runner=runner
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
  model = files.read_bytes(tokenizer.model_file)
  if files.is_remote(settings.output_dir):
    output = _remote_folder(settings.output_dir, settings.overwrite)
  else:
    reader = documents.DocumentReader(weights, settings.reading)
    fingerprint = settings.fingerprint(reader, tokenizer.sha256)
    output = output_folder.staging_folder(
      settings.output_dir, settings.overwrite, {"engine": "beam", **fingerprint}
    )
  with output as folder:
    # Workers may run in another folder.
    folder = files.absolute(folder)
    inputs = [(files.absolute(path), weights[path]) for path in weights]
    result_path = os.path.join(folder, _RESULT_FILE)
    _run(options, Plan(settings, folder, model), inputs, result_path)
    manifest = _read_result(job, weights, result_path)
    if files.is_remote(settings.output_dir):
      copy = os.path.join(folder, manifest.tokenizer.file)
      files.copy(tokenizer.model_file, copy)
      tfrecords.write_manifest(folder, manifest)
    else:
      output_folder.publish(settings.output_dir, manifest, tokenizer.model_file)
  return manifest


@contextlib.contextmanager
def _remote_folder(folder: str, overwrite: bool) -> Iterator[str]:
  """Opens an output folder on storage that cannot rename folders.

  Shards are written to their final paths. The manifest is written last, and
  readers ignore shards without it.
  """

  def clear() -> None:
    # The tokenizer may be the one of this build.
    kept = {*tfrecords.TOKENIZER_FILES.values()}
    output_folder.remove_dataset(folder, kept)
    with contextlib.suppress(FileNotFoundError):
      files.remove(os.path.join(folder, _RESULT_FILE))

  files.check_folder(folder)
  if not overwrite:
    output_folder.refuse_dataset(folder)
  clear()
  try:
    yield folder
  except BaseException:
    clear()
    raise


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
    pipeline.run().wait_until_finish()
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
    job = build_worker.Job(plan.settings).with_tokenizer(path)
    _ = job.vocabulary  # Load it while the file exists.
    return job


def _add_steps(
  pipeline: beam.Pipeline,
  plan: Plan,
  inputs: Sequence[tuple[str, float]],
  result_path: str,
) -> None:
  """Adds all steps to a pipeline; the last one writes `result_path`."""
  read = (
    pipeline
    | "Files" >> beam.Create(list(enumerate(inputs)))
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read"
    >> beam.FlatMap(_read_texts, plan).with_outputs(_SKIPPED, main="texts")
  )
  by_text = (
    read["texts"]
    # Otherwise one worker would tokenize a whole file.
    | "SpreadTexts" >> beam.Reshuffle()
    | "Tokenize" >> beam.FlatMap(_tokenize, plan)
    | "ByText" >> beam.GroupByKey()
    | "Equal" >> beam.MapTuple(_number)
  )
  limit = beam.pvalue.AsSingleton(
    by_text
    | "Texts" >> beam.MapTuple(lambda text, found: (text, len(found)))
    | "AllTexts" >> beam.combiners.ToList()
    | "Limit" >> beam.Map(_heldout_limit, plan)
  )
  used = by_text | "Shards" >> beam.FlatMap(_spread, limit, plan).with_outputs(
    _REPEATED, main="documents"
  )
  # Shards without records are written too.
  every_shard = [
    ((name, index), None)
    for name, num_shards in plan.settings.splits.items()
    for index in range(num_shards)
  ]
  shards = (
    (used["documents"], pipeline | "Every" >> beam.Create(every_shard))
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, plan)
  )
  repeated = used[_REPEATED] | "AddUp" >> beam.CombinePerKey(sum)
  _ = (
    pipeline
    | "Once" >> beam.Create([None])
    | "Result"
    >> beam.Map(
      _write_result,
      result_path,
      beam.pvalue.AsList(shards),
      beam.pvalue.AsDict(repeated),
      beam.pvalue.AsList(read[_SKIPPED]),
    )
  )


def _read_texts(element: tuple[int, tuple[str, float]], plan: Plan):
  """Yields (texts, weight), and the skipped documents aside."""
  number, (path, weight) = element
  reader = documents.DocumentReader([path], plan.settings.reading)
  for texts in reader.batches():
    yield texts, weight
  yield beam.pvalue.TaggedOutput(_SKIPPED, (number, reader.skipped))


def _tokenize(element: tuple[list[list[str]], float], plan: Plan):
  """Yields the hash of each text, and its document alone."""
  found = _open_job(plan).tokenize_texts(*element)
  for index, document in enumerate(found):
    alone = token_store.Documents(
      document.ids,
      np.diff(document.offsets).astype(np.int32),
      np.array([[len(document.ids), len(document.offsets) - 1]]),
      found.hashes[index : index + 1],
      found.copies[index : index + 1],
    )
    yield int(found.hashes[index, 0]), alone


def _number(text: int, found: Iterable[token_store.Documents]):
  """Returns the documents of equal texts in an order of their own."""
  return text, sorted(found, key=lambda document: int(document.hashes[0, 1]))


def _heldout_limit(texts: list[tuple[int, int]], plan: Plan) -> int:
  """Returns the highest hash of a text that is held out, or -1."""
  settings = plan.settings
  if settings.drop_duplicates:
    texts = [(text, 1) for text, _ in texts]
  values, counts = zip(*texts) if texts else ((), ())
  return token_store.heldout_limit(
    files.quote_paths(settings.input_files),
    np.sort(np.repeat(np.array(values, np.uint64), counts)),
    settings.heldout_share,
    settings.examples.sentence_pair,
  )


def _spread(element, limit: int, plan: Plan):
  """Yields ((split, shard), (document, occurrence, duplicate)).

  Aside it yields how many documents of a split repeat a text.
  """
  text, equal = element
  name = token_store.HELDOUT if text <= limit else token_store.TRAIN
  yield beam.pvalue.TaggedOutput(_REPEATED, (name, len(equal) - 1))
  if plan.settings.drop_duplicates:
    equal = equal[:1]
  hashes = np.concatenate([document.hashes[:, 1] for document in equal])
  # Equal hashes are together.
  occurrences = np.arange(len(equal)) - np.searchsorted(hashes, hashes)
  copies = [int(document.copies[0]) for document in equal]
  if name == token_store.HELDOUT:
    copies = [1] * len(copies)
  num_shards = plan.settings.splits[name]
  for duplicate in range(max(copies)):
    shards = token_store.shards_of(hashes, occurrences, duplicate, num_shards)
    for place, document in enumerate(equal):
      if copies[place] > duplicate:
        shard = name, int(shards[place])
        yield shard, (document, int(occurrences[place]), duplicate)


def _write_shard(element: tuple[tuple[str, int], Any], plan: Plan):
  """Returns the split, the index, and the counts and the entry of a shard."""
  (name, index), items = element
  job, num_shards = _open_job(plan), plan.settings.splits[name]
  found, *numbers = zip(*filter(None, items)) if any(items) else ((), (), ())
  hashes = [int(document.hashes[0, 1]) for document in found]
  made = job.make_examples(
    token_store.concatenate(found) if found else [],
    list(zip(range(len(found)), hashes, *numbers)),
  )
  path = os.path.join(
    plan.folder, tfrecords.shard_name(name, index, num_shards)
  )
  shard = dataclasses.asdict(job.write_shard(path, made))
  return name, index, made.counts.to_json(), shard


def _write_result(unused, path: str, shards, repeated, skipped) -> None:
  """Writes a file with the values that the driver needs for the manifest."""
  total = documents.Skipped()
  for _, part in sorted(skipped, key=lambda pair: pair[0]):
    total.add(part)
  value = {
    "shards": sorted(shards, key=lambda shard: shard[:2]),
    "repeated": repeated,
    "skipped": dataclasses.asdict(total),
  }
  files.write_json(path, value)


def _read_result(
  job: build_worker.Job, weights: Mapping[str, float], result_path: str
) -> tfrecords.Manifest:
  result = json.loads(files.read_text(result_path))
  files.remove(result_path)
  splits: dict[str, Any] = {}
  for name in job.settings.splits:
    here = [shard[2:] for shard in result["shards"] if shard[0] == name]
    counts = sum((_Counts.from_json(x) for x, _ in here), _Counts())
    shards = [tfrecords.Shard(**entry) for _, entry in here]
    splits[name] = job.make_split(
      name, shards, counts, result["repeated"].get(name, 0)
    )
  skipped = documents.Skipped(**result["skipped"])
  return job.make_manifest(weights, splits, skipped)
