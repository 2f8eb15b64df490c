"""Reads pretraining records in batches and counts their contents.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

import tfrecords
from tasks.pretraining import data

_BATCH = 256
# Required to show a record; BERT's records have no token_boundary.
_ALWAYS = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
_MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class Batch(NamedTuple):
  """Up to 256 consecutive records of a file.

  Attributes:
    first: number of the first record, from 0.
    features: <int64>[N, ...] and <float32>[N, ...] by name.
  """

  first: int
  features: dict[str, np.ndarray]


def infer_schema(path: str) -> tuple[tfrecords.Feature, ...]:
  """Infers the schema of a file from its first record.

  Ignores features that pretraining does not use.

  Raises:
    ValueError: there is no record, or it is not a pretraining record.
  """
  record = next(tfrecords.read_records(path), None)
  if record is None:
    raise ValueError(f"{path} has no records.")
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:  # DecodeError differs between protobuf versions.
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
  """Yields the records of a file.

  Args:
    path: the file.
    schema: of the records.
    exact: whether other features are errors.

  Raises:
    ValueError: a record is damaged or does not fit the schema; the message
      names the file and the record.
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
      problem = error.message  # Does not name the record.
    if problem or exact:  # The parser ignores other features.
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
  """Describes what is wrong with a serialized record; "" if nothing."""
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception:  # DecodeError differs between protobuf versions.
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
  """Counts of records of S tokens.

  Attributes:
    counts: the sums that are also counted when records are made.
    lengths: <int64>[S + 1], examples by number of tokens.
    positions: <int64>[S], predictions by position.
    run_words: <int64>[S], runs of masked tokens by number of words. Adjacent
      n-grams are one run.
    records: records per completely read file, appended by the reader.
  """

  def __init__(self, max_seq_length: int, tokenizer):
    self.counts = data.Counts()
    self.lengths = np.zeros(max_seq_length + 1, np.int64)
    self.positions = np.zeros(max_seq_length, np.int64)
    self.run_words = np.zeros(max_seq_length, np.int64)
    self.records = []
    self._tokenizer = tokenizer

  @property
  def label_1(self) -> int:
    """Examples with label 1."""
    return self.counts.label_1

  @property
  def label_0(self) -> int:
    """Examples with label 0."""
    return self.counts.instances - self.counts.label_1

  def add(self, features: Mapping[str, np.ndarray]) -> None:
    """Counts N valid records."""
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
    # These are known only when records are made.
    for name in (
      "dropped_chunks",
      "truncated_tokens",
      "truncated_share",
      "ngram_length_share",
    ):
      statistics.pop(name, None)
    return statistics


def with_no_masks(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns features with empty masks if there are none."""
  nothing = np.zeros((len(features["input_ids"]), 0), np.int64)
  return {**dict.fromkeys(_MASKED, nothing), **features}


def put_labels_back(features: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns the ids before masking, <int64>[N, S]."""
  features = with_no_masks(features)
  restored = features["input_ids"].copy()
  row, column = np.nonzero(features["masked_lm_weights"] > 0)
  place = features["masked_lm_positions"][row, column]
  restored[row, place] = features["masked_lm_ids"][row, column]
  return restored
