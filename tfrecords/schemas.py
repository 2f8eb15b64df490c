"""The format of records and of their manifest, for writers and readers.

A `Feature` describes a part of a record. A `Manifest` (`dataset.json`, written
last) describes a folder of records. This module does not import TensorFlow.

Feature names are those of google-research/albert create_pretraining_data.py,
whose records can be read with the same schema.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import typing
from typing import Any, Mapping

from official_albert import files, tokenization

MANIFEST_FILE = "dataset.json"
TOKENIZER_FILES = tokenization.TOKENIZER_FILES
TOKENIZER_FILE = TOKENIZER_FILES["sentencepiece"]
FORMAT_VERSION = 1
DTYPES = ("int64", "float32")

_ADVICE = "build the folder again with tools.create_pretraining_data"


@dataclasses.dataclass(frozen=True)
class Feature:
  """A feature of a record, of dtype "int64" or "float32" and fixed shape."""

  name: str
  dtype: str
  shape: tuple[int, ...]

  def __post_init__(self):
    if self.dtype not in DTYPES:
      raise ValueError(
        f"feature {self.name!r} has dtype {self.dtype!r}, but must be "
        f"{' or '.join(DTYPES)}."
      )
    if any(size < 0 for size in self.shape):
      raise ValueError(f"feature {self.name!r} has shape {self.shape}.")

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
  sequence = (max_seq_length,)
  return (
    Feature("input_ids", "int64", sequence),
    Feature("input_mask", "int64", sequence),
    Feature("segment_ids", "int64", sequence),
    Feature("token_boundary", "int64", sequence),
    Feature("next_sentence_labels", "int64", (1,)),
  )


def shard_name(split: str, index: int, num_shards: int) -> str:
  """Returns, for example, `train-00007-of-00256.tfrecord`."""
  return f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"


@dataclasses.dataclass(frozen=True)
class Shard:
  """A file: its name in the folder, number of records and size in bytes.

  The size reveals an incomplete file at once, instead of a data loss error
  hours later.
  """

  file: str
  records: int
  bytes: int

  def __post_init__(self):
    if os.path.basename(self.file) != self.file or not self.file:
      raise ValueError(f"the shard file {self.file!r} is not a file name.")
    if self.records < 0 or self.bytes < 0:
      raise ValueError(f"the shard {self.file} has a negative count.")


@dataclasses.dataclass(frozen=True)
class Split:
  """Shards for one purpose, and the statistics of their records."""

  shards: tuple[Shard, ...]
  statistics: Mapping[str, Any]

  def __post_init__(self):
    if len({shard.file for shard in self.shards}) < len(self.shards):
      raise ValueError("a split lists a shard twice.")

  @property
  def records(self) -> int:
    return sum(shard.records for shard in self.shards)


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
  """The tokenizer of the records, whose file lies beside the manifest."""

  sha256: str
  vocab_size: int
  lower_case: bool
  kind: str = "sentencepiece"

  def __post_init__(self):
    if self.kind not in TOKENIZER_FILES:
      raise ValueError(
        f"tokenizer: kind must be one of {', '.join(TOKENIZER_FILES)}, not "
        f"{self.kind!r}."
      )

  @property
  def file(self) -> str:
    """The name of the tokenizer's file."""
    return TOKENIZER_FILES[self.kind]


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
  value = {"format_version": FORMAT_VERSION, **dataclasses.asdict(manifest)}
  for name, split in manifest.splits.items():
    value["splits"][name]["records"] = split.records
  path = os.path.join(directory, MANIFEST_FILE)
  files.write_json(path, value, ensure_ascii=False, allow_nan=False)


def read_manifest(directory: str) -> Manifest:
  """Reads and checks `dataset.json`.

  Raises:
    FileNotFoundError: the folder or its manifest does not exist.
    ValueError: a field is wrong, or the manifest has another format version.
  """
  path = os.path.join(directory, MANIFEST_FILE)
  if not os.path.isfile(path):
    what = "has no" if os.path.isdir(directory) else "is not a folder with a"
    raise FileNotFoundError(
      f"{directory!r} {what} {MANIFEST_FILE}: use a folder that "
      "tools.create_pretraining_data has finished."
    )
  try:
    with open(path, encoding="utf-8") as file:
      value = json.load(file)
  except ValueError as error:  # JSONDecodeError and UnicodeDecodeError.
    raise ValueError(f"{path} is not JSON ({error}): {_ADVICE}.") from error
  is_object = isinstance(value, dict)
  version = value.pop("format_version", None) if is_object else None
  if version != FORMAT_VERSION:
    raise ValueError(
      f"{path} has format_version {version!r}, but this code reads version "
      f"{FORMAT_VERSION}: {_ADVICE}, or use the code that wrote it."
    )
  try:
    return _from_json(Manifest, value, "the manifest")
  except ValueError as error:
    raise ValueError(f"{path}: {error} {_ADVICE.capitalize()}.") from error


def _from_json(kind: Any, value: Any, where: str) -> Any:
  """Converts a JSON value to `kind`, and checks names and types."""
  outer, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
  expected = {tuple: list, typing.get_origin(Mapping): dict}.get(outer, outer)
  expected = dict if dataclasses.is_dataclass(expected) else expected
  if kind is not Any and type(value) is not expected:
    raise ValueError(
      f"{where} must be of type {expected.__name__}, not {value!r}."
    )
  if outer is tuple:
    return tuple(_from_json(inner[0], v, f"an item of {where}") for v in value)
  if expected is dict and inner:
    return {
      k: _from_json(inner[1], v, f"{where}.{k}") for k, v in value.items()
    }
  if not dataclasses.is_dataclass(outer):
    return value
  # A split also has the sum of its shards' records.
  records = value.pop("records", None) if outer is Split else None
  types = typing.get_type_hints(outer)
  # Older manifests have no kind of tokenizer.
  required = {
    field.name
    for field in dataclasses.fields(outer)
    if field.default is dataclasses.MISSING
  }
  for problem, names in (
    ("unknown", value.keys() - types.keys()),
    ("missing", required - value.keys()),
  ):
    if names:
      raise ValueError(f"{where}: {problem} {', '.join(sorted(names))}.")
  built = outer(
    **{k: _from_json(types[k], v, f"{where}.{k}") for k, v in value.items()}
  )
  if outer is Split and records != built.records:
    raise ValueError(
      f"{where}.records is {records}, but its shards have {built.records}."
    )
  return built


def _inputs(*shape: int) -> tuple[Feature, ...]:
  # The features of all fine-tuning tasks, named as in the original. The new
  # `example_id` is the position of the example in its split, to match it with
  # its prediction.
  return (
    Feature("input_ids", "int64", shape),
    Feature("input_mask", "int64", shape),
    Feature("segment_ids", "int64", shape),
    Feature("example_id", "int64", ()),
  )


def classification_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """Returns the schema of a sequence or a pair with a class number."""
  return (*_inputs(max_seq_length), Feature("label_ids", "int64", ()))


def regression_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """Returns the schema of a sequence or a pair with a real number."""
  return (*_inputs(max_seq_length), Feature("label_ids", "float32", ()))


def span_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """Returns the schema of a question with a window of its context.

  `p_mask` is 1 where no answer may begin or end. For a window without the
  answer, `is_impossible` is 1 and both positions are 0, that of [CLS].
  """
  return (
    *_inputs(max_seq_length),
    Feature("p_mask", "float32", (max_seq_length,)),
    Feature("start_positions", "int64", ()),
    Feature("end_positions", "int64", ()),
    Feature("is_impossible", "int64", ()),
  )


def multiple_choice_schema(
  max_seq_length: int, options: int
) -> tuple[Feature, ...]:
  """Returns the schema of a sequence for each option and the right option."""
  inputs = _inputs(options, max_seq_length)
  return (*inputs, Feature("label_ids", "int64", ()))
