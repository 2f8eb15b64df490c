"""Reads pretraining records batch by batch, and counts what is in them.

Records may be this project's, with masks or without, or those of
google-research/albert and of BERT, whose features have the same names.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

import tfrecords
from tasks.pretraining import data

_BATCH = 256
# Without these a record cannot be shown; BERT's have no token_boundary.
_ALWAYS = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
_MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class Batch(NamedTuple):
  """Records `first`, counted from 0, and up to 255 behind it of a file.

  `features` are <int64>[N, ...] and <float32>[N, ...] by name.
  """

  first: int
  features: dict[str, np.ndarray]


def infer_schema(path: str) -> tuple[tfrecords.Feature, ...]:
  """The schema of a file without a manifest, from its first record.

  Features that pretraining has no use for are left out.

  Raises:
    ValueError: there is no record, or it is no pretraining record.
  """
  record = next(tfrecords.read_records(path), None)
  if record is None:
    raise ValueError(f"{path} has no records.")
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:  # DecodeError, of several protobuf versions.
    raise ValueError(f"{path} does not hold tf.train.Example.") from error
  lengths = {
    name: len(feature.int64_list.value) for name, feature in features.items()
  }
  has_masks = all(name in lengths for name in _MASKED)
  if not all(lengths.get(name) for name in _ALWAYS) or not (
    has_masks or "token_boundary" in lengths
  ):
    raise ValueError(
      f"{path} holds no pretraining records; their features are "
      f"{', '.join(sorted(features)) or 'none'}."
    )
  return tuple(
    feature
    for feature in tfrecords.pretraining_schema(
      lengths["input_ids"], lengths.get("masked_lm_positions", 1)
    )
    if feature.name in lengths and (has_masks or feature.name not in _MASKED)
  )


def batches(
  path: str, schema: Sequence[tfrecords.Feature], exact: bool = False
) -> Iterator[Batch]:
  """The records of a file.

  Args:
    path: the file.
    schema: what a record holds.
    exact: whether it may hold nothing else.

  Raises:
    ValueError: a record is damaged or does not fit the schema; the message
      has the file and the record.
  """
  spec = tfrecords.parse_spec(schema)
  names = {feature.name for feature in schema}
  records = tfrecords.read_records(path)
  first = 0
  while True:
    serialized = list(itertools.islice(records, _BATCH))
    if not serialized:
      return
    try:
      parsed = tf.io.parse_example(serialized, spec)
      problem = ""
    except tf.errors.InvalidArgumentError as error:
      problem = error.message  # Does not say which record.
    if problem or exact:  # The parser takes no notice of other features.
      for number, record in enumerate(serialized, start=first):
        found = _misfit(record, schema if problem else (), names, exact)
        if found:
          raise ValueError(
            f"{path}, record {number} (counted from 0), does not fit the "
            f"schema: {found}."
          )
    if problem:
      raise ValueError(f"{path} does not fit the schema: {problem}.")
    yield Batch(first, {name: value.numpy() for name, value in parsed.items()})
    first += len(serialized)


def _misfit(
  record: bytes,
  schema: Sequence[tfrecords.Feature],
  names: set[str],
  exact: bool,
) -> str:
  """What is wrong with a serialized record, or nothing."""
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception:  # DecodeError, of several protobuf versions.
    return "it is no tf.train.Example"
  for feature in schema:
    if feature.name not in features:
      return f"it has no {feature.name}"
    values = features[feature.name]
    is_float = feature.dtype == "float32"
    values = values.float_list if is_float else values.int64_list
    count = len(values.value)
    if count != feature.length:
      return (
        f"its {feature.name} has {count} values of {feature.dtype}, not "
        f"{feature.length}"
      )
  unknown = set(features) - names if exact else ()
  return f"it also has {', '.join(sorted(unknown))}" if unknown else ""


class Survey:
  """What has been counted in records of S tokens.

  Attributes:
    counts: sums, as they are taken while records are made.
    lengths: <int64>[S + 1], examples by their number of tokens.
    positions: <int64>[S], predictions by their place.
    run_words: <int64>[S], runs of masked tokens by the words that they begin.
      Two n-grams side by side are one run.
    label_0, label_1: examples by label.
    records: of each file that was read to its end; whoever reads adds them.
  """

  def __init__(self, max_seq_length: int, tokenizer):
    self.counts = data.ExampleCounts(np.zeros(0, np.int64))
    self.lengths = np.zeros(max_seq_length + 1, np.int64)
    self.positions = np.zeros(max_seq_length, np.int64)
    self.run_words = np.zeros(max_seq_length, np.int64)
    self.records = []
    self._tokenizer = tokenizer

  @property
  def label_1(self) -> int:
    return self.counts.label_1

  @property
  def label_0(self) -> int:
    return self.counts.instances - self.counts.label_1

  def add(self, features: Mapping[str, np.ndarray]) -> None:
    """Counts N records that `record_check` has nothing against."""
    features = with_no_masks(features)
    self.counts += data.count_examples(features, self._tokenizer.mask_id)
    size = len(self.positions)
    self.lengths += np.bincount(
      features["input_mask"].sum(axis=1), minlength=size + 1
    )
    row, column = np.nonzero(features["masked_lm_weights"] > 0)
    position = features["masked_lm_positions"][row, column]
    self.positions += np.bincount(position, minlength=size)
    starts = self._tokenizer.word_start_table[put_labels_back(features)]
    # A column of zeros parts the rows, so that all can be one line.
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
    """By the names that a manifest gives them."""
    statistics = data.summarize_examples(self.counts)
    # Known only while records are made.
    for name in (
      "dropped_chunks",
      "truncated_tokens",
      "truncated_share",
      "ngram_length_share",
    ):
      statistics.pop(name, None)
    return statistics


def with_no_masks(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The same, with empty features of masks where there are none."""
  nothing = np.zeros((len(features["input_ids"]), 0), np.int64)
  return {**dict.fromkeys(_MASKED, nothing), **features}


def put_labels_back(features: Mapping[str, np.ndarray]) -> np.ndarray:
  """<int64>[N, S]: the ids before they were masked."""
  features = with_no_masks(features)
  restored = features["input_ids"].copy()
  row, column = np.nonzero(features["masked_lm_weights"] > 0)
  place = features["masked_lm_positions"][row, column]
  restored[row, place] = features["masked_lm_ids"][row, column]
  return restored
