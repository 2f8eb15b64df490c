"""Reads, checks and counts pretraining records.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names. The first
invalid record raises an error that names it.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

import tfrecords
from tasks.pretraining import data
from tools.cli import printing
from tools.records import record_check

_BATCH = 256
# Required to show a record; BERT's records have no token_boundary.
_ALWAYS = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
# Statistics that are only known while records are made.
_NOT_COUNTED = (
  "dropped_chunks",
  "truncated_tokens",
  "truncated_share",
  "ngram_length_share",
)
# The tolerance for another order of sums and for fewer digits.
_TOLERANCE = 1e-6
_BARS = 64  # Largest number of bins of lengths and positions.
_MOST_WORDS = 10


class Split(NamedTuple):
  """Files of records.

  Attributes:
    paths: the files.
    schema: the schema of the records.
    manifest: the manifest of the folder, if there is one.
    described: the manifest's entry for this split.
  """

  paths: Sequence[str]
  schema: tuple[tfrecords.Feature, ...]
  manifest: Optional[tfrecords.Manifest] = None
  described: Optional[tfrecords.Split] = None


def read_splits(directory: str) -> dict[str, Split]:
  """Returns the splits of a folder after checking the sizes of its files."""
  manifest = tfrecords.read_manifest(directory)
  splits = {}
  for name, described in manifest.splits.items():
    tfrecords.check_shards(directory, described.shards)
    paths = [os.path.join(directory, shard.file) for shard in described.shards]
    splits[name] = Split(paths, manifest.features, manifest, described)
  return splits


def of_files(paths: Sequence[str]) -> Split:
  """Returns files without a manifest; the first record defines the schema.

  Features that pretraining does not use are ignored.

  Raises:
    ValueError: there is no record, or it is not a pretraining record.
  """
  record = next(tfrecords.read_records(paths[0]), None)
  if record is None:
    raise ValueError(f"{paths[0]} has no records.")
  lengths = {
    name: len(feature.int64_list.value)
    for name, feature in _parse_features(record, paths[0]).items()
  }
  has_masks = all(name in lengths for name in record_check.MASKED)
  if not all(lengths.get(name) for name in _ALWAYS) or not (
    has_masks or "token_boundary" in lengths
  ):
    raise ValueError(
      f"{paths[0]} holds no pretraining records; their features are "
      f"{', '.join(sorted(lengths)) or 'none'}."
    )
  schema = tfrecords.pretraining_schema(
    lengths["input_ids"], lengths.get("masked_lm_positions", 1)
  )
  names = {*lengths} - {*(() if has_masks else record_check.MASKED)}
  return Split(paths, tuple(f for f in schema if f.name in names))


def _parse_features(record: bytes, what: str) -> Mapping[str, Any]:
  try:
    return tf.train.Example.FromString(record).features.feature
  except Exception as error:  # DecodeError differs between protobuf versions.
    raise ValueError(f"{what} is no tf.train.Example.") from error


def read_batches(
  path: str, split: Split, tokenizer
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
  """Yields the records of a file after checking them.

  Records of a folder with a manifest must have no other features.

  Yields:
    The number of the first record, from 0, and the features by name, <int64>
    and <float32>[N, ...].

  Raises:
    ValueError: a record is invalid; the message names it.
  """
  spec = tfrecords.parse_spec(split.schema)
  settings = split.manifest.settings if split.manifest else {}
  whole_words = bool(settings.get("do_whole_word_mask"))
  records = tfrecords.read_records(path)
  first = 0
  while serialized := list(itertools.islice(records, _BATCH)):
    for number, record in enumerate(serialized, first):
      what = f"{path}, record {number} (counted from 0),"
      found = _parse_features(record, what) if split.manifest else {}
      if unknown := set(found) - set(spec):
        raise ValueError(f"{what} also has {', '.join(sorted(unknown))}.")
    try:
      parsed = tf.io.parse_example(serialized, spec)
    except tf.errors.InvalidArgumentError:
      # The error does not name the record.
      for number, record in enumerate(serialized, first):
        try:
          tf.io.parse_single_example(record, spec)
        except tf.errors.InvalidArgumentError as error:
          raise ValueError(
            f"{path}, record {number} (counted from 0), does not fit the "
            f"schema: {error.message}"
          ) from error
      raise
    features = {name: value.numpy() for name, value in parsed.items()}
    problem = record_check.find_problem(features, tokenizer, whole_words)
    if problem:
      row, message = problem
      raise ValueError(
        f"{path}, record {first + row} (counted from 0), {message}."
      )
    yield first, features
    first += len(serialized)


def first_examples(
  split: Split, tokenizer, count: int
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the features of the first `count` records."""
  rows = (
    {name: value[row] for name, value in features.items()}
    for path in split.paths
    for _, features in read_batches(path, split, tokenizer)
    for row in range(len(features["input_ids"]))
  )
  return itertools.islice(rows, count)


class Survey:
  """Counts of records of S tokens.

  Attributes:
    counts: the sums that are also counted when records are made.
    lengths: <int64>[S + 1], examples by number of tokens.
    positions: <int64>[S], predictions by position.
    run_words: <int64>[S], runs of masked tokens by number of words. Adjacent
      n-grams are one run.
    records: records of each file.
  """

  def __init__(self, max_seq_length: int, tokenizer):
    self.counts = data.Counts()
    self.lengths = np.zeros(max_seq_length + 1, np.int64)
    self.positions = np.zeros(max_seq_length, np.int64)
    self.run_words = np.zeros(max_seq_length, np.int64)
    self.records = []
    self._tokenizer = tokenizer

  def add(self, features: Mapping[str, np.ndarray]) -> None:
    """Counts N valid records."""
    self.counts += data.count_examples(features, self._tokenizer.mask_id)
    features = record_check.with_masks(features)
    size = len(self.positions)
    self.lengths += np.bincount(
      features["input_mask"].sum(axis=1), minlength=size + 1
    )
    row, column = np.nonzero(features["masked_lm_weights"] > 0)
    position = features["masked_lm_positions"][row, column]
    self.positions += np.bincount(position, minlength=size)
    original = record_check.put_labels_back(features)
    starts = self._tokenizer.word_start_table[original]
    # A column of zeros separates the rows, so they can be flattened.
    chosen = np.zeros((len(starts), size + 1), np.int8)
    chosen[row, position] = 1
    change = np.diff(chosen.ravel(), prepend=0)
    padded = np.pad(starts, ((0, 0), (0, 1))).ravel()
    before = np.concatenate([[0], np.cumsum(padded)])
    words = (
      before[np.flatnonzero(change < 0)] - before[np.flatnonzero(change > 0)]
    )
    self.run_words += np.bincount(words, minlength=size)

  def statistics(self) -> dict[str, Any]:
    """Returns the statistics by their names in a manifest."""
    statistics = data.summarize_examples(self.counts)
    return {k: v for k, v in statistics.items() if k not in _NOT_COUNTED}


def survey(
  name: str, split: Split, tokenizer, line: printing.ProgressLine
) -> Survey:
  """Checks and counts every record of a split.

  Raises:
    ValueError: a record is invalid, or the manifest is wrong.
  """
  length = next(f.length for f in split.schema if f.name == "input_ids")
  result = Survey(length, tokenizer)
  sizes = [os.path.getsize(path) for path in split.paths]
  for index, path in enumerate(split.paths):
    count = 0
    stated = split.described.shards[index].records if split.described else None
    for first, features in read_batches(path, split, tokenizer):
      result.add(features)
      count = first + len(features["input_ids"])
      part = min(1.0, count / stated) if stated else 0.5
      line.show(
        f"checking {name}",
        (sum(sizes[:index]) + part * sizes[index]) / max(1, sum(sizes)),
        result.counts.tokens,
        f"{result.counts.instances:,} records, "
        f"file {index + 1} of {len(sizes)}",
      )
    result.records.append(count)
    if stated not in (None, count):
      raise ValueError(
        f"{path} has {count:,} records, but the manifest says {stated:,}: copy "
        "the folder again."
      )
  stated = split.described.statistics if split.described else {}
  for key, number in result.statistics().items():
    other = stated.get(key, number)
    if not isinstance(other, (int, float)) or not np.isclose(
      other, number, rtol=_TOLERANCE, atol=_TOLERANCE
    ):
      raise ValueError(
        f"the manifest says {key} {other!r}, but its records have {number!r} "
        f"(split {name!r})."
      )
  return result


def plot(
  surveys: Mapping[str, Survey],
  output_file: str,
  ngram_shares: Mapping[str, Mapping[str, float]],
) -> None:
  """Draws the counts of surveys as a PNG with four panels.

  Args:
    surveys: by the name of the split.
    output_file: the PNG.
    ngram_shares: by split, the share of n-grams of each length in words, if the
      manifest has it. Records show only runs, where adjacent n-grams are
      joined.
  """
  pyplot = printing.load_pyplot()

  figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.2))
  lengths, positions, words, labels = axes.ravel()
  width = 0.8 / len(surveys)
  for index, (name, survey) in enumerate(surveys.items()):
    color = f"C{index}"
    shift = (index - (len(surveys) - 1) / 2) * width
    for axis, counts in (
      (lengths, survey.lengths),
      (positions, survey.positions),
    ):
      bin_width = -(-len(counts) // _BARS)
      padded = np.pad(counts, (0, -len(counts) % bin_width))
      shares = _shares(padded.reshape(-1, bin_width).sum(axis=1))
      edges = np.arange(len(shares) + 1) * bin_width
      axis.stairs(shares, edges, fill=True, alpha=0.5, color=color, label=name)
    mean = _shares(survey.lengths) @ np.arange(len(survey.lengths))
    lengths.axvline(mean, color=color, linestyle="--", linewidth=1)
    runs = _shares(survey.run_words)[1 : _MOST_WORDS + 1]
    places = np.arange(1, len(runs) + 1) + shift
    words.bar(places, runs, width, color=color, label=f"{name}: runs")
    shares = ngram_shares.get(name)
    if shares:
      words.plot(
        [int(n) for n in shares],
        list(shares.values()),
        "o--",
        color="gray" if index else "black",
        markersize=4,
        linewidth=1,
        label=f"{name}: n-grams drawn",
      )
    swapped = survey.counts.label_1
    counts = np.array([survey.counts.instances - swapped, swapped])
    bars = labels.bar(np.arange(2) + shift, _shares(counts), width, color=color)
    labels.bar_label(bars, [f"{count:,}" for count in counts], fontsize=8)
  for axis, title, label in (
    (lengths, "sequence length (dashed: mean)", "tokens"),
    (positions, "masked positions", "position"),
    (words, "masked n-grams", "words"),
    (labels, "order label", ""),
  ):
    axis.set_title(title)
    axis.set_xlabel(label)
    axis.set_ylabel("share")
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
  words.set_xticks(range(1, _MOST_WORDS + 1))
  labels.set_xticks([0, 1], ["0: in order", "1: swapped or random"])
  labels.axhline(0.5, color="gray", linestyle="--", linewidth=1)
  labels.set_ylim(0, 1)
  if not any(survey.positions.any() for survey in surveys.values()):
    for axis in (positions, words):
      axis.text(0.5, 0.5, "not masked", transform=axis.transAxes, ha="center")
  lengths.legend()
  words.legend()
  figure.tight_layout()
  printing.save_figure(figure, output_file)


def _shares(counts: np.ndarray) -> np.ndarray:
  return counts / max(1, counts.sum())
