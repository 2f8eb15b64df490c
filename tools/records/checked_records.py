"""Reads, checks and counts all records of some files.

Shared by tools.inspect_tfrecords and tools.adopt_tfrecords. The first invalid
record raises an error that names it.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple, Optional, Sequence

import tfrecords
from tools.cli import progress_line
from tools.records import record_check, record_survey


class Split(NamedTuple):
  """Files of records.

  Attributes:
    paths: the files.
    schema: of the records.
    manifest: of the folder, if there is one.
    described: the manifest's entry for this split.
  """

  paths: Sequence[str]
  schema: tuple[tfrecords.Feature, ...]
  manifest: Optional[tfrecords.Manifest] = None
  described: Optional[tfrecords.Split] = None

  @property
  def length(self) -> int:
    """Tokens per record, S."""
    return next(f.length for f in self.schema if f.name == "input_ids")

  @property
  def has_masks(self) -> bool:
    """Whether the records are masked."""
    return any(feature.name == "masked_lm_ids" for feature in self.schema)


def checked_batches(
  path: str, split: Split, tokenizer
) -> Iterator[record_survey.Batch]:
  """Yields the records of a file after checking them.

  Raises:
    ValueError: a record is invalid; the message names it.
  """
  settings = split.manifest.settings if split.manifest else {}
  whole_words = bool(settings.get("do_whole_word_mask"))
  for batch in record_survey.batches(
    path, split.schema, exact=split.manifest is not None
  ):
    problem = record_check.find_problem(batch.features, tokenizer, whole_words)
    if problem:
      row, what = problem
      raise ValueError(
        f"{path}, record {batch.first + row} (counted from 0), {what}."
      )
    yield batch


def first_examples(
  split: Split, tokenizer, count: int
) -> Iterator[dict[str, Any]]:
  """Yields the features of the first `count` records."""
  for path in split.paths if count else ():
    for _, features in checked_batches(path, split, tokenizer):
      for row in range(min(count, len(features["input_ids"]))):
        yield {name: value[row] for name, value in features.items()}
        count -= 1
      if not count:
        return


def survey(
  name: str, split: Split, tokenizer, line: progress_line.ProgressLine
) -> record_survey.Survey:
  """Checks and counts every record of a split.

  Raises:
    ValueError: a record is invalid, or the manifest is wrong.
  """
  result = record_survey.Survey(split.length, tokenizer)
  sizes = [os.path.getsize(path) for path in split.paths]
  for index, path in enumerate(split.paths):
    count = 0
    for first, features in checked_batches(path, split, tokenizer):
      result.add(features)
      count = first + len(features["input_ids"])
      records = split.described.shards[index].records if split.described else 0
      part = min(1.0, count / records) if records else 0.5
      line.show(
        f"checking {name}",
        (sum(sizes[:index]) + part * sizes[index]) / max(1, sum(sizes)),
        result.counts.tokens,
        f"{result.counts.instances:,} records, "
        f"file {index + 1} of {len(sizes)}",
      )
    result.records.append(count)
    if split.described and count != split.described.shards[index].records:
      raise ValueError(
        f"{path} has {count:,} records, but the manifest says "
        f"{split.described.shards[index].records:,}: copy the folder again."
      )
  if split.described:
    problem = record_check.compare_statistics(
      split.described.statistics, result.statistics()
    )
    if problem:
      raise ValueError(f"the manifest {problem} (split {name!r}).")
  return result


def of_files(paths: Sequence[str]) -> Split:
  """Returns files without a manifest; the first record defines the schema."""
  return Split(paths, record_survey.infer_schema(paths[0]))


def read_splits(directory: str) -> dict[str, Split]:
  """Returns the splits of a folder after checking the sizes of its files."""
  manifest = tfrecords.read_manifest(directory)
  splits = {}
  for name, described in manifest.splits.items():
    tfrecords.check_shards(directory, described.shards)
    paths = [os.path.join(directory, shard.file) for shard in described.shards]
    splits[name] = Split(paths, manifest.features, manifest, described)
  return splits
