from .bucketed_reader import read_bucketed_dataset as read_bucketed_dataset
from .reader import (
  check_shards as check_shards,
  parse_spec as parse_spec,
  read_dataset as read_dataset,
  read_records as read_records,
)
from .schemas import (
  Feature as Feature,
  MANIFEST_FILE as MANIFEST_FILE,
  Manifest as Manifest,
  Shard as Shard,
  Split as Split,
  TOKENIZER_FILE as TOKENIZER_FILE,
  TOKENIZER_FILES as TOKENIZER_FILES,
  TokenizerInfo as TokenizerInfo,
  classification_schema as classification_schema,
  multiple_choice_schema as multiple_choice_schema,
  pretraining_schema as pretraining_schema,
  read_manifest as read_manifest,
  regression_schema as regression_schema,
  shard_name as shard_name,
  span_schema as span_schema,
  unmasked_schema as unmasked_schema,
  write_manifest as write_manifest,
)
from .writer import (
  ShardWriter as ShardWriter,
  encode_examples as encode_examples,
)
