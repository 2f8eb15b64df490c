"""TFRecords: schemas, the manifest, writing, reading and length buckets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "bucketed_reader": ["read_bucketed_dataset"],
    "reader": ["check_shards", "parse_spec", "read_dataset", "read_records"],
    "schemas": [
      "Feature",
      "MANIFEST_FILE",
      "Manifest",
      "Shard",
      "Split",
      "TOKENIZER_FILE",
      "TOKENIZER_FILES",
      "TokenizerInfo",
      "classification_schema",
      "multiple_choice_schema",
      "pretraining_schema",
      "read_manifest",
      "regression_schema",
      "shard_name",
      "span_schema",
      "unmasked_schema",
      "write_manifest",
    ],
    "writer": ["ShardWriter", "encode_examples"],
  },
)
