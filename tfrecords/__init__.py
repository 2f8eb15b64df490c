"""TFRecords: schemas, the manifest and writing; none of them loads TensorFlow.

`reader` and `bucketed_reader` make datasets of them.
"""

from official_albert.tfrecords.schemas import (
  MANIFEST_FILE,
  Feature,
  Manifest,
  Shard,
  Split,
  TokenizerInfo,
  finetuning_schema,
  pretraining_schema,
  read_manifest,
  shard_name,
  unmasked_schema,
  write_manifest,
)
from official_albert.tfrecords.writer import encode_examples, write_shard
