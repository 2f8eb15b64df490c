"""Reads, checks and counts pretraining records.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names. The first
invalid record raises an error that names it.
"""

from __future__ import annotations

import itertools
import os
from typing import (
  Any,
  Callable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

import numpy as np

from official_albert import files, remote, tfrecords, tokenization
from official_albert.tasks.pretraining import (
  data,
  dynamic_masking,
  record_rules,
)
from official_albert.tfrecords import reader
from official_albert.tools.cli import printing

_BATCH = 256
# Required to show a record; BERT's records have no token_boundary.
_ALWAYS = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
# Statistics that are only known while records are made.
_UNKNOWN = (
  "dropped_chunks",
  "truncated_tokens",
  "truncated_share",
  "ngram_length_share",
)
_SHOWN = 120  # Characters of TensorFlow's messages, which quote records.

_Features = Mapping[str, np.ndarray]


class Split(NamedTuple):
  """Files of records, with the manifest's entry for them if there is one."""

  paths: Sequence[str]
  schema: tuple[tfrecords.Feature, ...]
  manifest: Optional[tfrecords.Manifest] = None
  described: Optional[tfrecords.Split] = None


def read_splits(directory: str) -> dict[str, Split]:
  """Returns the splits of a folder after checking the sizes of its files."""
  manifest = tfrecords.read_manifest(directory)
  splits = {}
  every = [s for split in manifest.splits.values() for s in split.shards]
  reader.check_shards(directory, every)
  for name, described in manifest.splits.items():
    paths = [os.path.join(directory, shard.file) for shard in described.shards]
    splits[name] = Split(paths, manifest.features, manifest, described)
  return splits


def of_files(paths: Sequence[str]) -> Split:
  """Returns files without a manifest; the first record defines the schema.

  Features that pretraining does not use are ignored.
  """
  import tensorflow as tf  # Here and below, so that --help is quick.

  record = next(reader.read_records(paths[0]), None)
  if record is None:
    raise ValueError(f"{paths[0]} has no records.")
  try:
    features = tf.train.Example.FromString(record).features.feature
    lengths = {
      name: len(feature.int64_list.value) for name, feature in features.items()
    }
  # DecodeError differs between protobuf versions; names may not be UTF-8.
  except Exception as error:
    raise ValueError(
      f"{paths[0]}, record 0 (counted from 0), is no tf.train.Example."
    ) from error
  has_masks = all(name in lengths for name in record_rules.MASKED)
  if not all(lengths.get(name) for name in _ALWAYS) or not (
    has_masks or "token_boundary" in lengths
  ):
    raise ValueError(
      f"{paths[0]} holds no pretraining records; their features are "
      f"{files.quote(*sorted(lengths))}."
    )
  schema = tfrecords.pretraining_schema(
    lengths["input_ids"], lengths.get("masked_lm_positions", 1)
  )
  unused = () if has_masks else record_rules.MASKED
  return Split(
    paths,
    tuple(f for f in schema if f.name in lengths and f.name not in unused),
  )


def read_batches(
  path: str, split: Split, tokenizer
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
  """Yields the records of a file after checking them.

  Yields the number of the first record, from 0, and the features by name,
  <int64> and <float32>[N, ...]. A ValueError names an invalid record.
  """
  import tensorflow as tf

  # TensorFlow quotes the record in its message, which need not be UTF-8.
  errors = tf.errors.InvalidArgumentError, UnicodeDecodeError
  spec = reader.parse_spec(split.schema)
  settings = split.manifest.settings if split.manifest else {}
  whole_words = bool(settings.get("do_whole_word_mask"))
  records = reader.read_records(path)
  source = f" in {tfrecords.MANIFEST_FILE}" if split.manifest else ""
  first = 0
  while serialized := list(itertools.islice(records, _BATCH)):
    try:
      parsed = tf.io.parse_example(serialized, spec)
    except errors:
      # The error does not name the record.
      for number, record in enumerate(serialized, first):
        try:
          tf.io.parse_single_example(record, spec)
        except errors as error:
          reason = "it has bytes that are neither numbers nor UTF-8."
          if not isinstance(error, UnicodeDecodeError):
            reason = remote.explain(error.message)[1][:_SHOWN]
          raise ValueError(
            f"{path}, record {number} (counted from 0), does not fit the "
            f"schema{source}: {reason}"
          ) from error
      raise
    features = {name: value.numpy() for name, value in parsed.items()}
    problem = record_rules.find_problem(features, tokenizer, whole_words)
    if problem:
      row, message = problem
      raise ValueError(
        f"{path}, record {first + row} (counted from 0), {message}."
      )
    yield first, features
    first += len(serialized)


def training_draw(split: Split) -> Callable[[_Features, int], _Features]:
  """Returns what training does to records, a function that draws their masks.

  Its arguments are features and the number of their first example. The masks
  and swaps of --masking=dynamic are those of one epoch with the seed 0; other
  records stay as they are.
  """
  settings = split.manifest.settings if split.manifest else {}
  if settings.get("masking") != "dynamic":
    return lambda features, first: features
  import tensorflow as tf

  draw = tf.function(
    dynamic_masking.DynamicMasking(split.manifest, 0, dynamic_masking.TRAIN)
  )

  def apply(features: _Features, first: int) -> _Features:
    # One shape, so that it is traced once.
    count = len(features["input_ids"])
    padded = {
      name: np.resize(value, (_BATCH, *value.shape[1:])).astype(np.int32)
      for name, value in features.items()
    }
    drawn = draw(padded, tf.constant(first, tf.int64))
    return {name: value.numpy()[:count] for name, value in drawn.items()}

  return apply


def first_examples(
  split: Split, tokenizer, count: int
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the features of the first `count` records, as training has them."""
  draw = training_draw(split)
  rows = (
    {name: value[row] for name, value in features.items()}
    for path in split.paths
    for first, batch in read_batches(path, split, tokenizer)
    for features in [draw(batch, first)]
    for row in range(len(features["input_ids"]))
  )
  return itertools.islice(rows, count)


class Survey(NamedTuple):
  """The records as a manifest describes them, and the statistics of training.

  The latter are those after `training_draw`.
  """

  found: tfrecords.Split
  drawn: Mapping[str, Any]


def survey(
  name: str, split: Split, tokenizer, line: printing.ProgressLine
) -> Survey:
  """Checks and counts every record of a split; ValueError if one is invalid."""
  counts, drawn, draw = data.Counts(), data.Counts(), training_draw(split)
  shards = []
  described = split.described or tfrecords.Split((), {})
  for index, path in enumerate(split.paths):
    count = 0
    for first, features in read_batches(path, split, tokenizer):
      masked = draw(features, counts["instances"])
      counts.add(data.count_examples(features, tokenizer.mask_id))
      drawn.add(data.count_examples(masked, tokenizer.mask_id))
      count = first + len(features["input_ids"])
      line.show(
        f"checking {name}",
        index / len(split.paths),
        counts["tokens"],
        f"{counts['instances']:,} records, "
        f"file {index + 1} of {len(split.paths)}",
      )
    size, _ = files.stat(path)
    shards.append(tfrecords.Shard(os.path.basename(path), count, size))
    if split.described and count != described.shards[index].records:
      raise ValueError(
        f"{path} has {count:,} records, but the manifest says "
        f"{described.shards[index].records:,}: copy the folder again."
      )
  found, statistics = (
    {k: v for k, v in data.summarize_examples(x).items() if k not in _UNKNOWN}
    for x in (counts, drawn)
  )
  for key, number in found.items():
    written = described.statistics.get(key, number)
    if written != number:
      folder = os.path.dirname(split.paths[0])
      manifest = os.path.join(folder, tfrecords.MANIFEST_FILE)
      raise ValueError(
        f"{manifest}, the manifest, says {key} {files.quote(written)}, but its "
        f"records have {number!r} (split {files.quote(name)})."
      )
  return Survey(tfrecords.Split(tuple(shards), found), statistics)


def check_adoptable(
  splits: Mapping[str, Split], tokenizer: tokenization.Tokenizer
) -> None:
  """Refuses files that `adopt` cannot make a folder for the training of."""
  paths = [path for split in splits.values() for path in split.paths]
  folders = sorted({*map(os.path.dirname, paths)})
  if len(folders) > 1:
    raise ValueError(
      f"there are files in {folders[0]} and in {folders[1]}: bring them into "
      "one folder, for example by links."
    )
  if files.exists(os.path.join(folders[0], tfrecords.MANIFEST_FILE)):
    raise FileExistsError(
      f"{folders[0]} has a {tfrecords.MANIFEST_FILE} already: remove it if it "
      "does not belong to these records."
    )
  target = os.path.join(folders[0], tfrecords.TOKENIZER_FILES[tokenizer.kind])
  if files.exists(target) and files.sha256(target) != tokenizer.sha256:
    raise FileExistsError(
      f"{target} exists already, but it is not {tokenizer.model_file}: remove "
      "the one that does not belong to the records."
    )


def adopt(
  splits: Mapping[str, Split],
  surveys: Mapping[str, Survey],
  tokenizer: tokenization.Tokenizer,
) -> str:
  """Writes a manifest and the tokenizer beside files; returns their folder."""
  for name, (found, _) in surveys.items():
    if not found.statistics.get("predictions"):
      raise ValueError(
        f"the {name} files have nothing to predict: make masked records of the "
        "text by tools.create_pretraining_data."
      )
  settings: dict[str, Any] = {"adopted": True}  # Others are unknown.
  if not any(x.found.statistics["label_1_share"] for x in surveys.values()):
    settings["sentence_pair"] = "none"  # There is no order to learn.
  schema = splits["train"].schema
  lengths = {feature.name: feature.length for feature in schema}
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=lengths["input_ids"],
    max_predictions_per_seq=lengths["masked_lm_ids"],
    features=schema,
    tokenizer=tfrecords.TokenizerInfo.of(tokenizer),
    settings=settings,
    random_seed=0,
    splits={name: survey.found for name, survey in surveys.items()},
  )
  folder = os.path.dirname(splits["train"].paths[0])
  target = os.path.join(folder, manifest.tokenizer.file)
  if not files.exists(target):
    files.copy(tokenizer.model_file, target)
  tfrecords.write_manifest(folder, manifest)
  return folder
