"""The format of records and of their manifest, for writers and readers.

A `Feature` describes a part of a record. A `Manifest` (`dataset.json`, written
last) describes a folder of records. This module does not import TensorFlow.

Feature names are those of google-research/albert create_pretraining_data.py,
whose records can be read with the same schema.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Literal, Mapping, Optional, Sequence, Union

from official_albert import files, tokenization

MANIFEST_FILE = "dataset.json"
# Of a feature: 32 times those of four sequences of 512 tokens.
_MAX_LENGTH = 1 << 16

_ADVICE = "use a folder that tools.create_pretraining_data has finished"


@dataclasses.dataclass(frozen=True)
class Feature:
  """A feature of a record, with a fixed shape."""

  name: str
  dtype: Literal["int64", "float32"]
  shape: tuple[int, ...]

  def __post_init__(self):
    if min(self.shape, default=0) < 0 or self.length > _MAX_LENGTH:
      raise ValueError(
        f"the shape is {list(self.shape)!r:.40}, but must have from 0 to "
        f"{_MAX_LENGTH:,} values"
      )

  @property
  def length(self) -> int:
    """The number of values."""
    return math.prod(self.shape)


def pretraining_schema(
  max_seq_length: int, max_predictions_per_seq: int
) -> tuple[Feature, ...]:
  """Returns the schema with S = max_seq_length, P = max_predictions_per_seq.

  `next_sentence_labels` is 0 for segments in order, and 1 for swapped segments
  (SOP) or a random second segment (NSP).
  """
  *text, label = unmasked_schema(max_seq_length)
  predictions = (max_predictions_per_seq,)
  return (
    *text,
    Feature("masked_lm_positions", "int64", predictions),
    Feature("masked_lm_ids", "int64", predictions),
    Feature("masked_lm_weights", "float32", predictions),
    label,
  )


def unmasked_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """Returns the schema for dynamic masking, with S = max_seq_length.

  Segments are in order and labeled 0; training may swap them (SOP).
  """
  names = ("input_ids", "input_mask", "segment_ids", "token_boundary")
  return (
    *(Feature(name, "int64", (max_seq_length,)) for name in names),
    Feature("next_sentence_labels", "int64", (1,)),
  )


def shard_name(split: str, index: int, num_shards: int) -> str:
  """Returns, for example, `train-00007-of-00256.tfrecord`."""
  return f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"


@dataclasses.dataclass(frozen=True)
class Shard:
  """A file: its name in the folder, number of records and size in bytes."""

  file: str
  records: int
  bytes: int

  def __post_init__(self):
    if os.path.basename(self.file) != self.file or self.records < 0:
      raise ValueError(f"{self} is not a shard of the folder")


@dataclasses.dataclass(frozen=True)
class Split:
  """Shards for one purpose, and the statistics of their records."""

  shards: tuple[Shard, ...]
  statistics: Mapping[str, Union[int, float, Mapping[str, Union[int, float]]]]

  @property
  def records(self) -> int:
    return sum(shard.records for shard in self.shards)


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
  """The tokenizer of the records, whose file lies beside the manifest."""

  sha256: str
  vocab_size: int
  lower_case: bool
  kind: Literal["sentencepiece", "wordpiece"] = "sentencepiece"
  keep_accents: Optional[bool] = None
  split_chinese: bool = True
  max_word_characters: int = tokenization.TextRules.max_word_characters

  def __post_init__(self):
    _ = self.rules  # Checks them.

  @classmethod
  def of(cls, tokenizer: tokenization.Tokenizer) -> TokenizerInfo:
    """Returns the description of `tokenizer`."""
    return cls(
      tokenizer.sha256,
      tokenizer.vocab_size,
      kind=tokenizer.kind,  # type: ignore[arg-type]
      **tokenizer.rules.to_dict(),
    )

  @property
  def rules(self) -> tokenization.TextRules:
    """How text is changed before it is tokenized."""
    return tokenization.TextRules.of(dataclasses.asdict(self))

  @property
  def file(self) -> str:
    """The name of the tokenizer's file."""
    return tokenization.TOKENIZER_FILES[self.kind]


@dataclasses.dataclass(frozen=True)
class Manifest:
  """A description of a folder of records."""

  task: str
  max_seq_length: int
  max_predictions_per_seq: int
  features: tuple[Feature, ...]
  tokenizer: TokenizerInfo
  settings: Mapping[str, Any]
  random_seed: int
  splits: Mapping[str, Split]
  format_version: Literal[1] = 1

  def __post_init__(self):
    if self.task != "pretraining":
      return
    length = self.max_seq_length
    masked = pretraining_schema(length, self.max_predictions_per_seq)
    # BERT's records have no token_boundary.
    plain = [x for x in masked if x.name != "token_boundary"]
    if {*self.features} not in map(
      set, (masked, plain, unmasked_schema(length))
    ):
      raise ValueError(
        "the features are not those of pretraining with max_seq_length "
        f"{length} and max_predictions_per_seq {self.max_predictions_per_seq}"
      )

  def split(self, name: str) -> Split:
    """Returns the split `name`; raises ValueError if it does not exist."""
    if name not in self.splits:
      raise ValueError(
        f"the data has no split {name!r}, only "
        f"{', '.join(sorted(self.splits)) or 'none at all'}: for a held-out "
        "split, build it with --heldout_share above 0."
      )
    return self.splits[name]


def write_manifest(directory: str, manifest: Manifest) -> None:
  """Writes `dataset.json`."""
  value = dataclasses.asdict(manifest)
  for name, split in manifest.splits.items():
    value["splits"][name]["records"] = split.records
  path = os.path.join(directory, MANIFEST_FILE)
  files.write_json(path, value, ensure_ascii=False, allow_nan=False)


def read_manifest(directory: str) -> Manifest:
  """Reads and checks `dataset.json`.

  >>> from official_albert import tfrecords
  >>> manifest = tfrecords.read_manifest("quickstart/records/64")
  >>> manifest.split("train").shards[0].file
  'train-00000-of-00003.tfrecord'
  >>> manifest.features[0]
  Feature(name='input_ids', dtype='int64', shape=(64,))

  Raises:
    FileNotFoundError: the folder or its manifest does not exist.
    ValueError: a field is wrong.
  """
  path = os.path.join(directory, MANIFEST_FILE)
  try:
    content = files.read_bytes(path)
  except (FileNotFoundError, NotADirectoryError) as error:
    raise FileNotFoundError(f"{path} does not exist: {_ADVICE}.") from error
  return files.parse_json(content, path, Manifest, _ADVICE)


def finetuning_schema(
  shape: Sequence[int], *labels: Feature
) -> tuple[Feature, ...]:
  """Returns the schema of fine-tuning: token sequences of a shape, and labels.

  The names of the sequences are the original's. The new `example_id` is the
  position of the example in its split, to match it with its prediction.
  """
  names = ("input_ids", "input_mask", "segment_ids")
  return (
    *(Feature(name, "int64", tuple(shape)) for name in names),
    Feature("example_id", "int64", ()),
    *labels,
  )
