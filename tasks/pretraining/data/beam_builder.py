"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

    files -> documents -> tokens -> examples -> buckets -> shards

Beam is for text that takes too long on one machine. The steps call the
functions of the local engine. An element is a few hundred documents, or the
records of a bucket or a shard. Values that depend on the whole input (the
number of a document, the held-out documents, the position of a record in the
order) are counted and passed as a side input. So the shards and the manifest
equal those of the local engine, byte by byte. During a build, the runner
repeats lost work; a failed build starts over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import re
import shlex
import tempfile
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.options import pipeline_options
from apache_beam.runners.portability import fn_api_runner

from official_albert import files, tfrecords
from official_albert.tasks.pretraining.data import (
  build_worker,
  data_statistics,
  dataset_builder,
  documents,
  external_sort,
  output_folder,
  token_store,
)

_RESULT_FILE = "result.json"
_BUCKET_BYTES = 1 << 26
# A full sequence of 512 tokens takes 5.3 bytes per token, shorter ones more.
_BYTES_PER_TOKEN = 8
_MAX_BUCKETS = 1 << 14
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
_SKIPPED, _COUNTS, _SIZES = "skipped", "counts", "sizes"
# A key is (split, number of a bucket or a shard). A part of its records is
# (position among the parts, keys <int64>[N], records).
_Key = tuple[str, int]
_Part = tuple[tuple[int, ...], np.ndarray, list[bytes]]


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
  paths = documents.find_files(settings.input_files)
  for path in [*paths, settings.output_dir]:
    if runner in _REMOTE_RUNNERS and not files.is_remote(path):
      raise ValueError(
        f"the workers of {runner} cannot read {path!r} on this machine: use "
        "a path like gs://bucket/folder."
      )
  job = build_worker.Job(settings, folder="")
  tokenizer = job.tokenizer  # Raises an error before any work.
  model = files.read_bytes(tokenizer.model_file)
  if files.is_remote(settings.output_dir):
    output = _remote_folder(settings.output_dir, settings.overwrite)
    publish: Callable[..., None] = _publish_remotely
  else:
    reader = documents.DocumentReader(paths)
    fingerprint = settings.fingerprint(reader, tokenizer.sha256)
    output = output_folder.staging_folder(
      settings.output_dir, settings.overwrite, {"engine": "beam", **fingerprint}
    )
    publish = output_folder.publish
  with output as folder:
    # Workers may run in another folder.
    folder, *inputs = map(files.absolute, (folder, *paths))
    result_path = os.path.join(folder, _RESULT_FILE)
    _run(options, Plan(settings, folder, model), inputs, result_path)
    manifest = _read_result(job, paths, result_path)
    publish(settings.output_dir, manifest, tokenizer.model_file)
  return manifest


@contextlib.contextmanager
def _remote_folder(folder: str, overwrite: bool) -> Iterator[str]:
  """Opens an output folder on storage that cannot rename folders.

  Shards are written to their final paths. The manifest is written last, and
  readers ignore shards without it.
  """

  def clear() -> None:
    # The tokenizer may be the one of this build.
    output_folder.remove_dataset(folder, tfrecords.TOKENIZER_FILES.values())
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


def _publish_remotely(
  folder: str, manifest: tfrecords.Manifest, tokenizer_file: str
) -> None:
  files.copy(tokenizer_file, os.path.join(folder, manifest.tokenizer.file))
  tfrecords.write_manifest(folder, manifest)


def _run(
  options: pipeline_options.PipelineOptions,
  plan: Plan,
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
  logger = logging.getLogger("apache_beam")
  before = logger.level
  try:
    logger.setLevel(logging.WARNING)
    pipeline = beam.Pipeline(runner=runner, options=options)
    _add_steps(pipeline, plan, paths, result_path)
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
    field = "vocab_file" if plan.settings.vocab_file else "spm_model_file"
    own: Any = {field: path}
    settings = dataclasses.replace(plan.settings, **own)
    job = build_worker.Job(settings, plan.folder)
    _ = job.vocabulary  # Load it while the file exists.
    return job


def _add_steps(
  pipeline: beam.Pipeline, plan: Plan, paths: Sequence[str], result_path: str
) -> None:
  """Adds all steps to a pipeline; the last one writes `result_path`."""
  read = (
    pipeline
    | "Files" >> beam.Create(list(enumerate(paths)))
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read"
    >> beam.FlatMap(_read_texts, plan).with_outputs(_SKIPPED, main="texts")
  )
  # (file, chunk of the file, token_store.Documents)
  chunks = (
    read["texts"]
    # Otherwise one worker would tokenize a whole file.
    | "SpreadTexts" >> beam.Reshuffle()
    | "Tokenize" >> beam.Map(_tokenize, plan)
    | "SpreadTokens" >> beam.Reshuffle()
  )
  order = (
    chunks
    | "CountChunks" >> beam.MapTuple(_count_chunk)
    | "AllCounts" >> beam.combiners.ToList()
    | "Order" >> beam.Map(_put_in_order, plan)
  )
  made = chunks | "Make" >> beam.FlatMap(
    _make_examples, beam.pvalue.AsSingleton(order), plan
  ).with_outputs(_COUNTS, _SIZES, main="records")
  sizes = made[_SIZES] | "BucketSizes" >> beam.CombinePerKey(sum)
  in_order = (
    made["records"]
    | "Buckets" >> beam.GroupByKey()
    | "Sort" >> beam.FlatMap(_sort_bucket, beam.pvalue.AsDict(sizes), plan)
  )
  # Shards without records are written too.
  no_records: Any = ((0,), np.zeros(0, np.int64), [])
  every_shard = [
    ((name, index), no_records)
    for name, (_, num_shards) in plan.settings.splits.items()
    for index in range(num_shards)
  ]
  shards = (
    (in_order, pipeline | "Shards" >> beam.Create(every_shard))
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, plan)
  )
  counts = made[_COUNTS] | "AddUp" >> beam.CombinePerKey(
    functools.partial(sum, start=data_statistics.Counts())
  )
  _ = (
    pipeline
    | "Once" >> beam.Create([None])
    | "Result"
    >> beam.Map(
      _write_result,
      result_path,
      beam.pvalue.AsList(shards),
      beam.pvalue.AsDict(counts),
      beam.pvalue.AsList(read[_SKIPPED]),
    )
  )


def _read_texts(element: tuple[int, str], plan: Plan):
  """Yields (file number, chunk number, texts), and skipped documents aside."""
  number, path = element
  reader = documents.DocumentReader([path], plan.settings.reading)
  for index, texts in enumerate(reader.batches()):
    yield number, index, texts
  yield beam.pvalue.TaggedOutput(_SKIPPED, (number, reader.skipped))


def _tokenize(element, plan: Plan):
  file, index, texts = element
  return file, index, _open_job(plan).tokenize_texts(texts)


def _count_chunk(file: int, index: int, tokens: token_store.Documents):
  return file, index, tokens.hashes, len(tokens.ids)


def _put_in_order(
  counts: Iterable[tuple[int, int, np.ndarray, int]], plan: Plan
) -> tuple[dict[tuple[int, int], int], np.ndarray, dict[str, int]]:
  """Numbers the documents and decides which ones are held out.

  `counts` are the file, the chunk, the hashes of the documents and the number
  of tokens of each chunk.

  Returns:
    The number of the first document of each (file, chunk), the numbers of the
    held-out documents, and the number of buckets of each split.
  """
  first_numbers, num_documents, num_tokens = {}, 0, 0
  hashes = [np.zeros(0, np.uint64)]
  for file, index, here, tokens_here in sorted(counts, key=lambda x: x[:2]):
    first_numbers[file, index] = num_documents
    num_documents += len(here)
    num_tokens += tokens_here
    hashes.append(here)
  numbers = token_store.split_documents(
    plan.settings.input_files,
    np.concatenate(hashes),
    plan.settings.heldout_share,
    plan.settings.examples.sentence_pair,
  )
  buckets = {}
  for name, chosen in numbers.items():
    duplicates, _ = plan.settings.splits[name]
    share = len(chosen) / num_documents
    size = int(num_tokens * share * duplicates * _BYTES_PER_TOKEN)
    wanted = min(max(1, -(-size // _BUCKET_BYTES)), _MAX_BUCKETS)
    buckets[name] = external_sort.power_of_two(wanted)
  heldout = numbers.get(token_store.HELDOUT, np.zeros(0, np.int64))
  return first_numbers, heldout, buckets


def _make_examples(element, order, plan: Plan):
  """Yields (key of a bucket, part), and counts and bucket sizes aside."""
  file, index, tokens = element
  first_numbers, heldout, num_buckets = order
  job = _open_job(plan)
  first = first_numbers[file, index]
  numbers = np.arange(first, first + len(tokens))
  is_heldout = np.isin(numbers, heldout)
  for name in plan.settings.splits:
    mine = is_heldout if name == token_store.HELDOUT else ~is_heldout
    if not mine.any():
      continue
    split = token_store.Split(tokens, numbers[mine], first)
    for duplicate in range(plan.settings.splits[name][0]):
      made = job.make_examples(split, duplicate, 0, len(split))
      yield beam.pvalue.TaggedOutput(_COUNTS, (name, made.counts))
      buckets = external_sort.bucket_of(made.keys, num_buckets[name])
      for bucket in np.unique(buckets).tolist():
        places = np.flatnonzero(buckets == bucket)
        key = (name, bucket)
        yield beam.pvalue.TaggedOutput(_SIZES, (key, len(places)))
        # Equal keys are ordered by (duplicate, document), as in the local
        # engine.
        place = (duplicate, int(split.numbers[0]))
        records = [made.records[i] for i in places]
        yield key, (place, made.keys[places], records)


def _sort_bucket(
  element: tuple[_Key, Iterable[_Part]], sizes: Mapping[_Key, int], plan: Plan
) -> Iterator[tuple[_Key, _Part]]:
  """Yields (key of a shard, sorted part); `sizes` lists all buckets' sizes."""
  (name, bucket), parts = element
  parts = sorted(parts, key=lambda part: part[0])
  keys = np.concatenate([part[1] for part in parts])
  records = list(itertools.chain.from_iterable(part[2] for part in parts))
  places = np.argsort(keys, kind="stable")
  own = {b: count for (split, b), count in sizes.items() if split == name}
  first = sum(count for b, count in own.items() if b < bucket)
  _, num_shards = plan.settings.splits[name]
  for shard in range(num_shards):
    start, end = dataset_builder.shard_range(
      sum(own.values()), shard, num_shards
    )
    start, end = max(start, first), min(end, first + len(keys))
    if start < end:
      chosen = places[start - first : end - first]
      part = ((start,), keys[chosen], [records[i] for i in chosen])
      yield (name, shard), part


def _write_shard(
  element: tuple[_Key, Iterable[_Part]], plan: Plan
) -> tuple[str, int, dict[str, Any]]:
  """Returns the split, the number and the manifest's entry of the shard."""
  (name, index), parts = element
  job = _open_job(plan)
  _, num_shards = plan.settings.splits[name]
  path = os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
  with tfrecords.ShardWriter(path, job.schema) as shard:
    for _, _, records in sorted(parts, key=lambda part: part[0]):
      for record in records:
        shard.write_encoded(record)
  return name, index, dataclasses.asdict(shard.result)


def _write_result(
  unused_element: None,
  path: str,
  shards: Sequence[tuple[str, int, dict[str, Any]]],
  counts: Mapping[str, data_statistics.Counts],
  skipped: Sequence[tuple[int, documents.Skipped]],
) -> None:
  """Writes a file with the values that the driver needs for the manifest."""
  total = documents.Skipped()
  for _, part in sorted(skipped, key=lambda pair: pair[0]):
    total.add(part)
  value = {
    "shards": sorted(shards, key=lambda shard: shard[:2]),
    "counts": {name: part.to_json() for name, part in counts.items()},
    "skipped": dataclasses.asdict(total),
  }
  files.write_json(path, value)


def _read_result(
  job: build_worker.Job, paths: Sequence[str], result_path: str
) -> tfrecords.Manifest:
  result = json.loads(files.read_text(result_path))
  files.remove(result_path)
  splits = {}
  for name in job.settings.splits:
    counts = data_statistics.Counts.from_json(result["counts"][name])
    shards = [entry for split, _, entry in result["shards"] if split == name]
    splits[name] = dataset_builder.make_split(job, name, shards, counts)
  skipped = documents.Skipped(**result["skipped"])
  return dataset_builder.make_manifest(job, paths, splits, skipped)
