"""Shows what is in a folder of pretraining records, or in single files.

    python -m tools.inspect_tfrecords --input_dir=data --num_examples=2

Prints the first examples of each split as text, with what is to be predicted
in braces ({shown:label}; {=label} is shown as it is), and statistics counted
from the records themselves. Every record is read, so damage is found, and
named by file.
"""

from __future__ import annotations

import os
from typing import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import flags

from official_albert import tokenization
from tasks.pretraining import data_statistics, documents
from tfrecords import reader, schemas
from tools import command_line, record_text

_INPUT_DIR = flags.DEFINE_string(
  "input_dir", None, "Folder of tools.create_pretraining_data."
)
_INPUT_FILES = flags.DEFINE_string(
  "input_files", None, "Instead: names and globs of files, comma-separated."
)
_NUM_EXAMPLES = flags.DEFINE_integer(
  "num_examples", 2, "Examples shown of each split."
)
_SPM_MODEL_FILE = flags.DEFINE_string(
  "spm_model_file", None, "Default: the folder's tokenizer.model."
)

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


def inspect(
  paths: Sequence[str],
  schema: Sequence[schemas.Feature],
  tokenizer: tokenization.SentencePieceTokenizer,
  num_examples: int,
) -> dict:
  """Prints the first examples; returns the statistics of all."""
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


def main(argv: Sequence[str]) -> None:
  del argv
  if bool(_INPUT_DIR.value) == bool(_INPUT_FILES.value):
    raise ValueError("give either --input_dir or --input_files, and not both.")
  if _NUM_EXAMPLES.value < 0:
    raise ValueError(f"--num_examples is {_NUM_EXAMPLES.value}, below 0.")
  lower_case = True
  if _INPUT_DIR.value:
    directory = _INPUT_DIR.value
    manifest = schemas.read_manifest(directory)
    lower_case = manifest.tokenizer.lower_case
    splits = {}
    for name, split in manifest.splits.items():
      reader.check_shards(directory, split.shards)
      paths = [os.path.join(directory, shard.file) for shard in split.shards]
      splits[name] = (paths, manifest.features)
  else:
    paths = documents.find_files(_INPUT_FILES.value)
    directory = os.path.dirname(paths[0])
    splits = {"files": (paths, infer_schema(paths[0]))}
  model_file = _SPM_MODEL_FILE.value or os.path.join(
    directory, schemas.TOKENIZER_FILE
  )
  tokenizer = tokenization.SentencePieceTokenizer(model_file, lower_case)
  statistics = {}
  for name, (paths, schema) in splits.items():
    print(f"\n== {name}: {len(paths)} files ==")
    statistics[name] = inspect(paths, schema, tokenizer, _NUM_EXAMPLES.value)
  print()
  print(data_statistics.format_table(statistics))


if __name__ == "__main__":
  command_line.run(main)
