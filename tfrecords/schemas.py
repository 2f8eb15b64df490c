"""The contract between writers and readers of records.

A `Feature` describes a part of a record. A `Manifest` (`dataset.json`, written
last) describes a folder of records: the shards with their sizes, the schema,
the tokenizer, the settings and the seed. All fields are checked when a manifest
is read. TensorFlow is not imported.

Feature names are those of google-research/albert create_pretraining_data.py,
whose records can be read with the same schema.
"""

from __future__ import annotations

import dataclasses
import json
import os
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

  @property
  def length(self) -> int:
    """The number of values."""
    length = 1
    for size in self.shape:
      length *= size
    return length


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


@dataclasses.dataclass(frozen=True)
class Split:
  """Shards for one purpose, and the statistics of their records."""

  shards: tuple[Shard, ...]
  statistics: Mapping[str, Any]

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
    """Returns the split `name`.

    Raises:
      ValueError: the split does not exist. The message lists those that do.
    """
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
  version = value.get("format_version") if isinstance(value, dict) else None
  if version != FORMAT_VERSION:
    raise ValueError(
      f"{path} has format_version {version!r}, but this code reads version "
      f"{FORMAT_VERSION}: {_ADVICE}, or use the code that wrote it."
    )
  value.pop("format_version")
  try:
    return _manifest(value)
  except ValueError as error:
    raise ValueError(f"{path}: {error} {_ADVICE.capitalize()}.") from error


def _manifest(value: dict[str, Any]) -> Manifest:
  value = _fields(Manifest, value, "the manifest")
  value["features"] = tuple(_feature(feature) for feature in value["features"])
  # Older manifests have no kind, as there was only this one.
  tokenizer = {"kind": "sentencepiece", **value["tokenizer"]}
  value["tokenizer"] = _build(TokenizerInfo, tokenizer, "tokenizer")
  value["splits"] = {
    name: _split(split, f"splits.{name}")
    for name, split in value["splits"].items()
  }
  return Manifest(**value)


def _feature(value: Any) -> Feature:
  fields = _fields(Feature, value, "a feature")
  if not all(_is_count(size) for size in fields["shape"]):
    raise ValueError(f"feature {fields['name']!r} has shape {value['shape']}.")
  return Feature(fields["name"], fields["dtype"], tuple(fields["shape"]))


def _split(value: Any, where: str) -> Split:
  records = value.pop("records", None) if isinstance(value, dict) else None
  fields = _fields(Split, value, where)
  shards = tuple(
    _build(Shard, shard, f"a shard of {where}") for shard in fields["shards"]
  )
  for shard in shards:
    if os.path.basename(shard.file) != shard.file or not shard.file:
      raise ValueError(f"{where} has the shard file {shard.file!r}, a path.")
    if shard.records < 0 or shard.bytes < 0:
      raise ValueError(f"{where} has a negative count for {shard.file}.")
  if len({shard.file for shard in shards}) < len(shards):
    raise ValueError(f"{where} lists a shard twice.")
  split = Split(shards, fields["statistics"])
  if records != split.records:
    raise ValueError(
      f"{where}.records is {records}, but its shards have {split.records}."
    )
  return split


_TYPES = {
  "str": (str, "a string"),
  "int": (int, "an integer"),
  "bool": (bool, "true or false"),
  "tuple": (list, "a list"),
  "Mapping": (dict, "an object"),
  "TokenizerInfo": (dict, "an object"),
}


def _fields(kind: type, value: Any, where: str) -> dict[str, Any]:
  """Checks that `value` has the fields of a dataclass with their JSON types."""
  if not isinstance(value, dict):
    raise ValueError(f"{where} must be an object, not {value!r}.")
  fields = {field.name: field for field in dataclasses.fields(kind)}
  for problem, names in (
    ("unknown", value.keys() - fields.keys()),
    ("missing", fields.keys() - value.keys()),
  ):
    if names:
      raise ValueError(f"{where}: {problem} {', '.join(sorted(names))}.")
  for name, field in fields.items():
    # The annotations are strings: `from __future__ import annotations`.
    wanted, description = _TYPES[field.type.split("[")[0]]
    is_bool = isinstance(value[name], bool)
    if not isinstance(value[name], wanted) or is_bool != (wanted is bool):
      raise ValueError(
        f"{where}: {name} must be {description}, not {value[name]!r}."
      )
  return dict(value)


def _build(kind: type, value: Any, where: str) -> Any:
  return kind(**_fields(kind, value, where))


def _is_count(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _inputs(*shape: int) -> tuple[Feature, ...]:
  """Returns the features of all fine-tuning tasks, named as in the original.

  `example_id` is new: it is the place of the example in its split, which
  connects a prediction with its example.
  """
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
  return (
    *_inputs(options, max_seq_length),
    Feature("label_ids", "int64", ()),
  )
