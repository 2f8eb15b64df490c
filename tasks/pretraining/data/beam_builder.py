"""Builds the dataset of `dataset_builder` with a runner of Apache Beam.

    files -> documents -> (by text) occurrences -> examples -> (by shard) shards

The steps call the functions of `build_worker`, so the shards and the manifest
equal those of the local engine, byte by byte. A shard has to fit into the
memory of a worker. During a build, the runner repeats lost work; a failed build
starts over.
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
  example_runs,
  output_folder,
  token_store,
)

_RESULT_FILE = "result.json"
# Documents whose examples are made together.
_BATCH = 256
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
_SKIPPED, _COUNTS = "skipped", "counts"
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
    reader = documents.DocumentReader(weights)
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
  made = (
    by_text
    | "Batch" >> beam.BatchElements(max_batch_size=_BATCH)
    | "Make"
    >> beam.FlatMap(_make_examples, limit, plan).with_outputs(
      _COUNTS, main="examples"
    )
  )
  # Shards without records are written too.
  every_shard: list[Any] = [
    ((name, index), ([], []))
    for name, num_shards in plan.settings.splits.items()
    for index in range(num_shards)
  ]
  shards = (
    (made["examples"], pipeline | "Shards" >> beam.Create(every_shard))
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(_write_shard, plan)
  )
  counts = made[_COUNTS] | "AddUp" >> beam.CombinePerKey(_add_up)
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


def _make_examples(batch, limit: int, plan: Plan):
  """Yields ((split, shard), (keys, records)), and counts aside."""
  job, settings = _open_job(plan), plan.settings
  chosen: dict[str, list[tuple[int, int]]] = {x: [] for x in settings.splits}
  repeated = dict.fromkeys(chosen, 0)
  found: list[token_store.Documents] = []
  for text, equal in batch:
    name = token_store.HELDOUT if text <= limit else token_store.TRAIN
    repeated[name] += len(equal) - 1
    if settings.drop_duplicates:
      equal = equal[:1]
    tokens = [int(document.hashes[0, 1]) for document in equal]
    for index, document in enumerate(equal):
      occurrence = index - tokens.index(tokens[index])
      chosen[name].append((len(found), occurrence))
      found.append(document)
  if not found:
    return
  together = token_store.concatenate(found)
  for name, rows in chosen.items():
    is_train = name == token_store.TRAIN
    most = max((together.copies[i] for i, _ in rows), default=0)
    counts = _Counts()
    for duplicate in range(most if is_train else 1):
      here = (
        (i, int(together.hashes[i, 1]), occurrence)
        for i, occurrence in rows
        if together.copies[i] > duplicate
      )
      made = job.make_examples(together, here, duplicate)
      counts += made.counts
      shards = example_runs.shard_of(made.keys, settings.splits[name])
      for shard in np.unique(shards).tolist():
        places = np.flatnonzero(shards == shard).tolist()
        records = [made.records[place] for place in places]
        yield (name, shard), (made.keys[places].tolist(), records)
    yield beam.pvalue.TaggedOutput(_COUNTS, (name, (counts, repeated[name])))


def _add_up(parts):
  counts, repeated = zip(*parts) if parts else ((), ())
  return sum(counts, _Counts()), sum(repeated)


def _write_shard(element: tuple[tuple[str, int], Any], plan: Plan):
  """Returns the split, the number and the manifest's entry of the shard."""
  (name, index), parts = element
  keyed = sorted(itertools.chain.from_iterable(zip(*part) for part in parts))
  path = os.path.join(
    plan.folder, tfrecords.shard_name(name, index, plan.settings.splits[name])
  )
  shard = _open_job(plan).write_shard(path, (record for _, record in keyed))
  return name, index, dataclasses.asdict(shard)


def _write_result(unused, path: str, shards, counts, skipped) -> None:
  """Writes a file with the values that the driver needs for the manifest."""
  total = documents.Skipped()
  for _, part in sorted(skipped, key=lambda pair: pair[0]):
    total.add(part)
  value = {
    "shards": sorted(shards, key=lambda shard: shard[:2]),
    "counts": {
      name: (part.to_json(), repeated)
      for name, (part, repeated) in counts.items()
    },
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
    counts, repeated = result["counts"][name]
    shards = [
      tfrecords.Shard(**entry)
      for split, _, entry in result["shards"]
      if split == name
    ]
    splits[name] = job.make_split(
      name, shards, _Counts.from_json(counts), repeated
    )
  skipped = documents.Skipped(**result["skipped"])
  return job.make_manifest(weights, splits, skipped)
