"""The steps of a build as Apache Beam runs them: the same functions, as DoFns.

    files -> documents -> tokens -> examples -> buckets -> shards

An element is a few hundred documents, the records of a bucket or of a shard;
inside it arrays travel as their bytes. What has to be known of the whole (the
number of a document, who is held out, the place of a record among all) is
counted and comes as a side input, so that the shards are those of the local
engine, byte by byte.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import tempfile
from typing import Any, Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np

import tfrecords
from tasks.pretraining.data import (
  beam_elements,
  build_worker,
  data_statistics,
  dataset_builder,
  documents,
  split_builder,
  token_store,
)

_BUCKET_BYTES = 1 << 26
_BYTES_PER_TOKEN = 8  # As in split_builder: generous.
_MAX_BUCKETS = 1 << 14
SKIPPED = "skipped"  # An output of `read_texts`.


@dataclasses.dataclass(frozen=True)
class Plan:
  """All that the steps are told before any text is read.

  Attributes:
    settings: of the dataset.
    job: what workers know; its `folder` is where the shards go.
    tokenizer_model: content of the job's file, which only the driver has.
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
  """The job with a tokenizer file of this machine; once in a process."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokenizer")
    with open(path, "wb") as file:
      file.write(plan.tokenizer_model)
    field = "vocab_file" if plan.job.vocab_file else "spm_model_file"
    job = dataclasses.replace(plan.job, **{field: path})
    # Loaded while the file is there.
    return job if job.vocabulary.size else job


def read_texts(element: tuple[int, str], plan: Plan) -> Iterator[Any]:
  """(number of a file, its path) -> (number, number of the chunk, texts).

  Output `SKIPPED` beside it: (number of the file, what could not be read).
  """
  number, path = element
  reader = documents.DocumentReader([path], plan.settings.reading)
  for index, texts in enumerate(reader.batches()):
    yield number, index, texts
  yield beam.pvalue.TaggedOutput(SKIPPED, (number, reader.skipped))


def tokenize(
  element: tuple[int, int, list[list[str]]], plan: Plan
) -> beam_elements.Chunk:
  """What `read_texts` yields, tokenized."""
  file, index, texts = element
  made = build_worker.tokenize_texts(_open_job(plan), texts)
  return beam_elements.Chunk(file, index, *(part.tobytes() for part in made))


def count_chunk(chunk: beam_elements.Chunk) -> tuple[int, int, int, int]:
  """Place, documents and bytes of the ids of a chunk."""
  return chunk.file, chunk.index, chunk.num_documents, len(chunk.ids)


def put_in_order(
  counts: Iterable[tuple[int, int, int, int]], plan: Plan, num_files: int
) -> beam_elements.Order:
  """Numbers the documents and decides which are held out.

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
  return beam_elements.Order(
    [firsts[counts[:, 0] == number] for number in range(num_files)],
    numbers.get(token_store.HELDOUT, np.zeros(0, np.int64)),
    buckets,
  )


class MakeExamples(beam.DoFn):
  """A chunk -> ((split, bucket), Records), and counts beside them.

  Outputs `COUNTS`: (split, ExampleCounts); `TEXT`: (split, TextCounts);
  `SIZES`: ((split, bucket), number of records).
  """

  COUNTS, TEXT, SIZES = "counts", "text", "sizes"

  def __init__(self, plan: Plan):
    self._plan = plan

  def process(
    self, chunk: beam_elements.Chunk, order: beam_elements.Order
  ) -> Iterator[Any]:
    job = _open_job(self._plan)
    texts = chunk.documents(job.vocabulary.size)
    first = int(order.first_numbers[chunk.file][chunk.index])
    numbers = np.arange(first, first + len(texts))
    is_heldout = np.isin(numbers, order.heldout_numbers)
    for name in self._plan.splits:
      mine = is_heldout if name == token_store.HELDOUT else ~is_heldout
      if mine.any():
        split = beam_elements.ChunkSplit(
          [texts[index] for index in np.flatnonzero(mine)], numbers[mine]
        )
        yield from self._make(job, name, split, order.num_buckets[name])

  def _make(
    self,
    job: build_worker.Job,
    name: str,
    split: beam_elements.ChunkSplit,
    num_buckets: int,
  ) -> Iterator[Any]:
    text = data_statistics.TextCounts.zero(job.vocabulary.size)
    unused = data_statistics.TextCounts.zero(job.vocabulary.size)
    for document in split:
      unused.move(document, text)
    yield beam.pvalue.TaggedOutput(self.TEXT, (name, text))
    shift = 63 - (num_buckets.bit_length() - 1)
    duplicates, _ = self._plan.settings.duplicates_and_shards(name)
    for duplicate in range(duplicates):
      made = build_worker.make_examples(
        job, split, build_worker.Unit(name, duplicate, 0, len(split))
      )
      yield beam.pvalue.TaggedOutput(self.COUNTS, (name, made.counts))
      buckets = made.keys >> shift
      for bucket in np.unique(buckets).tolist():
        places = np.flatnonzero(buckets == bucket)
        yield beam.pvalue.TaggedOutput(
          self.SIZES, ((name, bucket), len(places))
        )
        yield (
          (name, bucket),
          beam_elements.Records.pack(
            (duplicate, int(split.numbers[0])),
            made.keys[places],
            [made.records[place] for place in places],
          ),
        )


def sort_bucket(
  element: tuple[tuple[str, int], Iterable[beam_elements.Records]],
  sizes: Mapping[tuple[str, int], int],
  plan: Plan,
) -> Iterator[tuple[tuple[str, int], beam_elements.Records]]:
  """((split, bucket), Records) -> ((split, shard), Records in order).

  Args:
    element: all records of a bucket.
    sizes: the number of records of every bucket.
    plan: of the build.
  """
  (name, bucket), parts = element
  # As they come to the local engine, which keeps the order of equal keys.
  parts = sorted(parts, key=lambda part: part.first)
  keys = np.concatenate([np.frombuffer(part.keys, np.int64) for part in parts])
  records = list(itertools.chain.from_iterable(part.unpack() for part in parts))
  places = np.argsort(keys, kind="stable")
  own = {b: count for (split, b), count in sizes.items() if split == name}
  first = sum(count for b, count in own.items() if b < bucket)
  _, num_shards = plan.settings.duplicates_and_shards(name)
  for shard in range(num_shards):
    start, end = split_builder.shard_range(sum(own.values()), shard, num_shards)
    start, end = max(start, first), min(end, first + len(keys))
    if start < end:
      chosen = places[start - first : end - first]
      yield (
        (name, shard),
        beam_elements.Records.pack(
          (start,), keys[chosen], [records[i] for i in chosen]
        ),
      )


def write_shard(
  element: tuple[tuple[str, int], Iterable[beam_elements.Records]], plan: Plan
) -> tuple[str, int, dict[str, Any]]:
  """Writes a shard; returns its split, its number and its manifest entry."""
  (name, index), parts = element
  job = _open_job(plan)
  _, num_shards = plan.settings.duplicates_and_shards(name)
  path = os.path.join(job.folder, tfrecords.shard_name(name, index, num_shards))
  with tfrecords.ShardWriter(path, job.schema) as shard:
    for part in sorted(parts, key=lambda part: part.first):
      for record in part.unpack():
        shard.write_encoded(record)
  return name, index, dataclasses.asdict(shard.result)


def write_result(
  unused_element: None,
  plan: Plan,
  path: str,
  shards: Sequence[tuple[str, int, dict[str, Any]]],
  counts: Mapping[str, data_statistics.ExampleCounts],
  text: Mapping[str, data_statistics.TextCounts],
  skipped: Sequence[tuple[int, documents.Skipped]],
) -> None:
  """Leaves what the manifest needs for the driver, who may be far away."""
  import tensorflow as tf

  value = {
    name: {
      "shards": [
        entry
        for split, _, entry in sorted(shards, key=lambda shard: shard[:2])
        if split == name
      ],
      "counts": split_builder.counts_to_json(counts[name]),
      "text": [
        text[name].documents,
        text[name].segments,
        text[name].pieces.tolist(),
      ],
    }
    # Not in the order in which they come.
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
  """Adds all steps to a pipeline; `result_path` is what it writes last."""
  read = (
    pipeline
    | "Files" >> beam.Create(list(enumerate(paths)))
    | "SpreadFiles" >> beam.Reshuffle()
    | "Read"
    >> beam.FlatMap(read_texts, plan).with_outputs(SKIPPED, main="texts")
  )
  chunks = (
    read["texts"]
    # Else a large file would be tokenized by one worker.
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
  # A shard without records is a file too.
  every_shard = [
    ((name, index), beam_elements.Records((0,), b"", b"", b""))
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
    made[name] | f"AddUp_{name}" >> beam.CombinePerKey(beam_elements.add_up)
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
