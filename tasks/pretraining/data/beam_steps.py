"""The steps of a build as Apache Beam runs them.

    files -> documents -> tokens -> examples -> buckets -> shards

The steps call the functions of the local engine. An element is a few hundred
documents, or the records of a bucket or a shard; its arrays are byte strings,
which every runner can handle. What depends on the whole input (the number of a
document, the held-out documents, the place of a record in the order) is counted
and passed as a side input. So the shards are those of the local engine, byte by
byte.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import operator
import os
import tempfile
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import apache_beam as beam
import numpy as np

import tfrecords
from tasks.pretraining.data import (
  build_worker,
  data_statistics,
  dataset_builder,
  documents,
  external_sort,
  split_builder,
  token_store,
)

_BUCKET_BYTES = 1 << 26
_BYTES_PER_TOKEN = 8  # A full sequence of 512 has 5.3, shorter ones more.
_MAX_BUCKETS = 1 << 14
SKIPPED = "skipped"  # An output of `read_texts`.


class Chunk(NamedTuple):
  """Some tokenized documents of a file, each with at least one token.

  Attributes:
    file, index: the number of the file and of the chunk in it.
    ids, lengths, segments: bytes of the arrays of `token_store.Documents`.
  """

  file: int
  index: int
  ids: bytes
  lengths: bytes
  segments: bytes

  @property
  def num_documents(self) -> int:
    return len(self.segments) // 4

  def unpack(self, vocab_size: int) -> token_store.Documents:
    return token_store.Documents(
      np.frombuffer(self.ids, token_store.id_dtype(vocab_size)),
      np.frombuffer(self.lengths, np.int32),
      np.frombuffer(self.segments, np.int32),
    )


class Order(NamedTuple):
  """What is known when all text is tokenized.

  Attributes:
    first_numbers: for each file <int64>[chunks], the number of each chunk's
      first document in the dataset.
    heldout_numbers: ascending document numbers, <int64>.
    num_buckets: for each split; a power of two.
  """

  first_numbers: list[np.ndarray]
  heldout_numbers: np.ndarray
  num_buckets: dict[str, int]


class Part(NamedTuple):
  """Some records of a bucket or a shard.

  Attributes:
    first: the part's place among those with the same keys, or in the shard.
    records: the records and their keys.
  """

  first: tuple[int, ...]
  records: external_sort.Records


@dataclasses.dataclass(frozen=True)
class Plan:
  """What the steps know before any text is read.

  Attributes:
    settings: settings of the dataset.
    job: what workers know. The shards are written to its `folder`.
    tokenizer_model: content of the job's tokenizer file, which only the driver
      has.
  """

  settings: dataset_builder.BuildSettings
  job: build_worker.Job
  tokenizer_model: bytes

  @property
  def splits(self) -> tuple[str, ...]:
    if self.settings.heldout_share:
      return token_store.TRAIN, token_store.HELDOUT
    return (token_store.TRAIN,)


@functools.lru_cache(maxsize=2)
def _open_job(plan: Plan) -> build_worker.Job:
  """Returns the job with a tokenizer file on this machine; cached."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokenizer")
    with open(path, "wb") as file:
      file.write(plan.tokenizer_model)
    field = "vocab_file" if plan.job.vocab_file else "spm_model_file"
    job = dataclasses.replace(plan.job, **{field: path})
    _ = job.vocabulary  # Load it while the file exists.
    return job


def read_texts(element: tuple[int, str], plan: Plan) -> Iterator[Any]:
  """Maps (file number, path) to (file number, chunk number, texts).

  The output `SKIPPED` has (file number, what could not be read).
  """
  number, path = element
  reader = documents.DocumentReader([path], plan.settings.reading)
  for index, texts in enumerate(reader.batches()):
    yield number, index, texts
  yield beam.pvalue.TaggedOutput(SKIPPED, (number, reader.skipped))


def tokenize(element: tuple[int, int, list[list[str]]], plan: Plan) -> Chunk:
  """Tokenizes an element of `read_texts`."""
  file, index, texts = element
  made = build_worker.tokenize_texts(_open_job(plan), texts)
  return Chunk(file, index, *(part.tobytes() for part in made))


def count_chunk(chunk: Chunk) -> tuple[int, int, int, int]:
  """Returns the file, index, documents and bytes of ids of a chunk."""
  return chunk.file, chunk.index, chunk.num_documents, len(chunk.ids)


def put_in_order(
  counts: Iterable[tuple[int, int, int, int]], plan: Plan, num_files: int
) -> Order:
  """Numbers the documents and decides which ones are held out.

  Raises:
    ValueError: there are too few documents.
  """
  counts = np.array(sorted(counts), np.int64).reshape(-1, 4)
  total = int(counts[:, 2].sum())
  if not total:
    raise ValueError(
      f"no text in {plan.settings.input_files}: there must be at least one "
      "document."
    )
  numbers = token_store.split_documents(
    total,
    plan.settings.heldout_share,
    plan.settings.random_seed,
    plan.settings.examples.sentence_pair,
  )
  firsts = np.cumsum(counts[:, 2]) - counts[:, 2]
  buckets = {}
  for name in plan.splits:
    duplicates, _ = plan.settings.duplicates_and_shards(name)
    share = plan.settings.heldout_share if name == token_store.HELDOUT else 1
    ids_bytes = duplicates * share * int(counts[:, 3].sum())
    wanted = int(ids_bytes * _BYTES_PER_TOKEN / 2 / _BUCKET_BYTES)
    buckets[name] = min(_MAX_BUCKETS, 1 << wanted.bit_length())
  return Order(
    [firsts[counts[:, 0] == number] for number in range(num_files)],
    numbers.get(token_store.HELDOUT, np.zeros(0, np.int64)),
    buckets,
  )


class MakeExamples(beam.DoFn):
  """Maps a chunk to elements ((split, bucket), Part).

  Other outputs are `COUNTS`: (split, ExampleCounts), `TEXT`: (split,
  TextCounts) and `SIZES`: ((split, bucket), number of records).
  """

  COUNTS, TEXT, SIZES = "counts", "text", "sizes"

  def __init__(self, plan: Plan):
    self._plan = plan

  def process(self, chunk: Chunk, order: Order) -> Iterator[Any]:
    job = _open_job(self._plan)
    texts = chunk.unpack(job.vocabulary.size).unpack()
    first = int(order.first_numbers[chunk.file][chunk.index])
    numbers = np.arange(first, first + len(texts))
    is_heldout = np.isin(numbers, order.heldout_numbers)
    for name in self._plan.splits:
      mine = is_heldout if name == token_store.HELDOUT else ~is_heldout
      if mine.any():
        split = token_store.Split(texts, np.flatnonzero(mine), first)
        yield from self._make(job, name, split, order.num_buckets[name])

  def _make(
    self,
    job: build_worker.Job,
    name: str,
    split: token_store.Split,
    num_buckets: int,
  ) -> Iterator[Any]:
    text = data_statistics.TextCounts.of(split, job.vocabulary.size)
    yield beam.pvalue.TaggedOutput(self.TEXT, (name, text))
    duplicates, _ = self._plan.settings.duplicates_and_shards(name)
    for duplicate in range(duplicates):
      made = build_worker.make_examples(
        job, split, build_worker.Unit(name, duplicate, 0, len(split))
      )
      yield beam.pvalue.TaggedOutput(self.COUNTS, (name, made.counts))
      buckets = external_sort.bucket_of(made.keys, num_buckets)
      for bucket in np.unique(buckets).tolist():
        places = np.flatnonzero(buckets == bucket)
        key = (name, bucket)
        yield beam.pvalue.TaggedOutput(self.SIZES, (key, len(places)))
        records = external_sort.Records.pack(
          made.keys[places], [made.records[place] for place in places]
        )
        yield key, Part((duplicate, int(split.numbers[0])), records)


def sort_bucket(
  element: tuple[tuple[str, int], Iterable[Part]],
  sizes: Mapping[tuple[str, int], int],
  plan: Plan,
) -> Iterator[tuple[tuple[str, int], Part]]:
  """Maps ((split, bucket), parts) to elements ((split, shard), sorted Part).

  Args:
    element: all records of a bucket.
    sizes: the number of records of every bucket.
    plan: plan of the build.
  """
  (name, bucket), parts = element
  # Equal keys are ordered by (duplicate, document), as in the local engine.
  parts = sorted(parts, key=lambda part: part.first)
  unpacked = [part.records.unpack() for part in parts]
  keys = np.concatenate([part_keys for part_keys, _ in unpacked])
  records = list(itertools.chain.from_iterable(part for _, part in unpacked))
  places = np.argsort(keys, kind="stable")
  own = {b: count for (split, b), count in sizes.items() if split == name}
  first = sum(count for b, count in own.items() if b < bucket)
  _, num_shards = plan.settings.duplicates_and_shards(name)
  for shard in range(num_shards):
    start, end = split_builder.shard_range(sum(own.values()), shard, num_shards)
    start, end = max(start, first), min(end, first + len(keys))
    if start < end:
      chosen = places[start - first : end - first]
      packed = external_sort.Records.pack(
        keys[chosen], [records[place] for place in chosen]
      )
      yield (name, shard), Part((start,), packed)


def write_shard(
  element: tuple[tuple[str, int], Iterable[Part]], plan: Plan
) -> tuple[str, int, dict[str, Any]]:
  """Writes a shard and returns its split, number and manifest entry."""
  (name, index), parts = element
  job = _open_job(plan)
  _, num_shards = plan.settings.duplicates_and_shards(name)
  path = os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
  with tfrecords.ShardWriter(path, job.schema) as shard:
    for part in sorted(parts, key=lambda part: part.first):
      for record in part.records.unpack()[1]:
        shard.write_encoded(record)
  return name, index, dataclasses.asdict(shard.result)


def add_up(values: Iterable[Any]) -> Any:
  """Returns the sum of at least one ExampleCounts or TextCounts."""
  return functools.reduce(operator.add, values)


def write_result(
  unused_element: None,
  plan: Plan,
  path: str,
  shards: Sequence[tuple[str, int, dict[str, Any]]],
  counts: Mapping[str, data_statistics.ExampleCounts],
  text: Mapping[str, data_statistics.TextCounts],
  skipped: Sequence[tuple[int, documents.Skipped]],
) -> None:
  """Writes what the driver needs for the manifest to a file."""
  import tensorflow as tf

  value = {
    name: {
      "shards": [
        entry
        for split, _, entry in sorted(shards, key=lambda shard: shard[:2])
        if split == name
      ],
      "counts": counts[name].to_json(),
      "text": [
        text[name].documents,
        text[name].segments,
        text[name].pieces.tolist(),
      ],
    }
    # In the order of the manifest.
    for name in plan.splits
  }
  total = documents.Skipped()
  for _, part in sorted(skipped, key=lambda pair: pair[0]):
    total.add_all(part)
  value["skipped"] = dataclasses.asdict(total)
  with tf.io.gfile.GFile(path, "w") as file:
    file.write(json.dumps(value))


def build(
  pipeline: beam.Pipeline, plan: Plan, paths: Sequence[str], result_path: str
) -> None:
  """Adds all steps to a pipeline, which writes `result_path` last."""
  read = (
    pipeline
    | "Files" >> beam.Create(list(enumerate(paths)))
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read"
    >> beam.FlatMap(read_texts, plan).with_outputs(SKIPPED, main="texts")
  )
  chunks = (
    read["texts"]
    # Otherwise one worker would tokenize a whole file.
    | "SpreadTexts" >> beam.Reshuffle()
    | "Tokenize" >> beam.Map(tokenize, plan)
    | "SpreadTokens" >> beam.Reshuffle()
  )
  order = (
    chunks
    | "CountChunks" >> beam.Map(count_chunk)
    | "AllCounts" >> beam.combiners.ToList()
    | "Order" >> beam.Map(put_in_order, plan, len(paths))
  )
  made = chunks | "Make" >> beam.ParDo(
    MakeExamples(plan), beam.pvalue.AsSingleton(order)
  ).with_outputs(
    MakeExamples.COUNTS,
    MakeExamples.TEXT,
    MakeExamples.SIZES,
    main="records",
  )
  sizes = made[MakeExamples.SIZES] | "BucketSizes" >> beam.CombinePerKey(sum)
  in_order = (
    made["records"]
    | "Buckets" >> beam.GroupByKey()
    | "Sort" >> beam.FlatMap(sort_bucket, beam.pvalue.AsDict(sizes), plan)
  )
  # Shards without records are written too.
  no_records = Part((0,), external_sort.Records(b"", b"", b""))
  every_shard = [
    ((name, index), no_records)
    for name in plan.splits
    for index in range(plan.settings.duplicates_and_shards(name)[1])
  ]
  shards = (
    (in_order, pipeline | "Shards" >> beam.Create(every_shard))
    | beam.Flatten()
    | "ByShard" >> beam.GroupByKey()
    | "Write" >> beam.Map(write_shard, plan)
  )
  counts, text = (
    made[name] | f"AddUp_{name}" >> beam.CombinePerKey(add_up)
    for name in (MakeExamples.COUNTS, MakeExamples.TEXT)
  )
  _ = (
    pipeline
    | "Once" >> beam.Create([None])
    | "Result"
    >> beam.Map(
      write_result,
      plan,
      result_path,
      beam.pvalue.AsList(shards),
      beam.pvalue.AsDict(counts),
      beam.pvalue.AsDict(text),
      beam.pvalue.AsList(read[SKIPPED]),
    )
  )
