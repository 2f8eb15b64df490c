"""Reads all records of some files: shows the first ones, counts all."""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf

from official_albert import tokenization
from tasks.pretraining import data_statistics
from tfrecords import reader, schemas
from tools import record_text

_BATCH = 256


def infer_schema(path: str) -> tuple[schemas.Feature, ...]:
  """The schema of a file without a manifest, from its first record.

  Raises:
    ValueError: there is none, or it is no pretraining record.
  """
  record = next(reader.read_records(path), None)
  if record is None:
    raise ValueError(f"{path} has no records.")
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:  # DecodeError, of several protobuf versions.
    raise ValueError(f"{path} does not hold tf.train.Example.") from error
  lengths = [
    len(features[name].int64_list.value) if name in features else 0
    for name in ("input_ids", "masked_lm_positions")
  ]
  if not all(lengths):
    raise ValueError(
      f"{path} holds no pretraining records; their features are "
      f"{', '.join(sorted(features))}."
    )
  return schemas.pretraining_schema(*lengths)


def batches(
  paths: Sequence[str], schema: Sequence[schemas.Feature]
) -> Iterator[dict[str, np.ndarray]]:
  """Features of up to 256 records at a time.

  Raises:
    ValueError: a record is damaged or does not fit the schema.
  """
  spec = reader.parse_spec(schema)
  for path in paths:
    records = reader.read_records(path)
    while True:
      batch = [record for _, record in zip(range(_BATCH), records)]
      if not batch:
        break
      try:
        parsed = tf.io.parse_example(batch, spec)
      except tf.errors.InvalidArgumentError as error:
        raise ValueError(
          f"{path} has a record that does not fit the schema: {error.message}"
        ) from error
      yield {name: value.numpy() for name, value in parsed.items()}


def survey(
  paths: Sequence[str],
  schema: Sequence[schemas.Feature],
  tokenizer: tokenization.Tokenizer,
  num_examples: int,
) -> dict[str, Any]:
  """Prints the first examples; returns the statistics of all.

  Args:
    paths: the files.
    schema: of their records.
    tokenizer: the one that they were made with.
    num_examples: how many to print.

  Raises:
    ValueError: a record is damaged, does not fit the schema, or was made with
      a larger vocabulary.
  """
  counts = data_statistics.ExampleCounts(np.zeros(0, np.int64))
  for features in batches(paths, schema):
    first = counts.instances
    for row in range(min(num_examples - first, len(features["input_ids"]))):
      record = {name: value[row] for name, value in features.items()}
      print(
        f"\nExample {first + row}: {record_text.describe(record, tokenizer)}"
      )
    counts.add(data_statistics.count_examples(features, tokenizer.mask_id))
  statistics = data_statistics.summarize_examples(counts)
  del statistics["dropped_chunks"], statistics["ngram_length_share"]
  return statistics
