"""Reads, checks and counts pretraining records.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names. A record is
`[CLS] A [SEP] B [SEP]` and padding. Predictions are in ascending order, inside
the text, and cover whole words. With the labels restored, the text has no
[MASK]. The first invalid record raises an error that names it.
"""

from __future__ import annotations

import dataclasses
import functools
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
from official_albert.tasks.pretraining import data, dynamic_masking
from official_albert.tfrecords import reader
from official_albert.tools.cli import printing

_BATCH = 256
_MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# Required to show a record; BERT's records have no token_boundary.
_ALWAYS = ("input_ids", "input_mask", "segment_ids", "next_sentence_labels")
# Statistics that are only known while records are made.
_NOT_COUNTED = (
  "dropped_chunks",
  "truncated_tokens",
  "truncated_share",
  "ngram_length_share",
)
# [CLS] A [SEP] B [SEP] with one token each in A and B.
_MIN_LENGTH = 5
_SHOWN = 120  # Characters of TensorFlow's messages, which quote records.

_Features = Mapping[str, np.ndarray]
# Cells <bool>[N, columns] that break a rule, a message, and values [N, columns]
# for it. The message may use the `value` of the cell and the column `at`.
_Rule = tuple[np.ndarray, str, np.ndarray]


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
  has_masks = all(name in lengths for name in _MASKED)
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
  unused = () if has_masks else _MASKED
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
    problem = find_problem(features, tokenizer, whole_words)
    if problem:
      row, message = problem
      raise ValueError(
        f"{path}, record {first + row} (counted from 0), {message}."
      )
    yield first, features
    first += len(serialized)


def put_labels_back(features: _Features) -> np.ndarray:
  """Returns the ids before masking, <int64>[N, S]."""
  restored = features["input_ids"].copy()
  row, column = np.nonzero(features["masked_lm_weights"] > 0)
  place = features["masked_lm_positions"][row, column]
  restored[row, place] = features["masked_lm_ids"][row, column]
  return restored


def find_problem(
  features: _Features, tokenizer, whole_words: bool = False
) -> Optional[tuple[int, str]]:
  """Finds the first of N records that breaks a rule; masks may be missing.

  Returns the row and a description that follows "record 7 ...", or None.
  """
  nothing = np.zeros((len(features["input_ids"]), 0), np.int64)
  features = {**dict.fromkeys(_MASKED, nothing), **features}
  text_rules = functools.partial(_text_rules, whole_words=whole_words)
  found = None
  for make_rules in (_shape_rules, _mask_rules, text_rules):
    for bad, message, values in make_rules(features, tokenizer):
      rows = np.flatnonzero(bad.any(axis=1))
      if len(rows) and (found is None or rows[0] < found[0]):
        row, at = int(rows[0]), int(np.argmax(bad[rows[0]]))
        found = row, message.format(value=values[row, at], at=at)
    if found:
      # Later rules use ids and positions as indices, so these must be valid.
      features = {name: value[: found[0]] for name, value in features.items()}
  return found


def _shape_rules(f: _Features, tokenizer) -> Iterator[_Rule]:
  ids, mask, labels = (
    f[name] for name in ("input_ids", "input_mask", "next_sentence_labels")
  )
  lengths = mask.sum(axis=1, keepdims=True)
  real = np.arange(ids.shape[1]) < lengths
  yield mask != real, "has an input_mask that is not ones, then 0", mask
  short = lengths < _MIN_LENGTH
  yield short, "has {value} tokens, too few for [CLS] A [SEP] B [SEP]", lengths
  unknown = (ids < 0) | (ids >= tokenizer.vocab_size)
  yield unknown, "has the unknown id {value} at position {at}", ids
  filled = ~real & (ids != tokenizer.pad_id)
  yield filled, "has the id {value} in its padding, at {at}", ids
  label = "has next_sentence_labels {value}, which must be 0 or 1"
  yield (labels != 0) & (labels != 1), label, labels


def _mask_rules(f: _Features, tokenizer) -> Iterator[_Rule]:
  positions, labels, weights = (f[name] for name in _MASKED)
  count = (weights > 0).sum(axis=1, keepdims=True)
  used = np.arange(weights.shape[1]) < count
  weight = "has masked_lm_weights that are not ones, then 0"
  yield weights != used, weight, weights
  filled = ~used & ((positions != 0) | (labels != 0))
  yield filled, "has something in its unused prediction {at}", labels
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  outside = "has the masked position {value}, which is not in its text"
  yield used & ((positions < 1) | (positions >= last)), outside, positions
  descends = used[:, 1:] & (np.diff(positions, axis=1) <= 0)
  order = "has the masked position {value} out of order: they must ascend"
  yield descends, order, positions[:, 1:]
  unknown = (labels < 0) | (labels >= tokenizer.vocab_size)
  yield unknown, "has the unknown label {value}", labels


def _text_rules(f: _Features, tokenizer, whole_words: bool) -> Iterator[_Rule]:
  ids = put_labels_back(f)
  rows, columns = np.arange(len(ids))[:, None], np.arange(ids.shape[1])
  last = f["input_mask"].sum(axis=1, keepdims=True) - 1
  real = columns <= last
  separators = ids == tokenizer.sep_id
  middle = np.argmax(separators, axis=1)[:, None]
  text = real & ~separators & (columns > 0)
  first_ids, last_ids = ids[:, :1], ids[rows, last]
  begins = first_ids != tokenizer.cls_id
  yield begins, "begins with the id {value}, not [CLS]", first_ids
  ends = last_ids != tokenizer.sep_id
  yield ends, "ends with the id {value}, not [SEP]", last_ids
  count = separators.sum(axis=1, keepdims=True)
  yield count != 2, "has {value} times [SEP], not 2", count
  special = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id]
  unwanted = "has the special id {value} in its text or labels, at {at}"
  yield text & np.isin(ids, special), unwanted, ids
  yield (middle < 2) | (middle >= last - 1), "has an empty A or B", middle
  segments = (
    "has segment_ids {value} at position {at}: they must be 1 for B [SEP], "
    "otherwise 0"
  )
  expected = real & (columns > middle)
  yield f["segment_ids"] != expected, segments, f["segment_ids"]
  starts = real & (tokenizer.word_start_table[ids] | ~text)
  boundary = f.get("token_boundary", starts.astype(np.int64))
  # The original decides by the text of an unknown piece.
  known = ids != tokenizer.unk_id
  wrong = (boundary != starts) & (known | (boundary < 0) | (boundary > 1))
  contradiction = (
    "has token_boundary {value} at position {at}, which its tokenizer "
    "contradicts"
  )
  yield wrong, contradiction, boundary
  if whole_words:
    masked = np.zeros(ids.shape, bool)
    row, column = np.nonzero(f["masked_lm_weights"] > 0)
    masked[row, f["masked_lm_positions"][row, column]] = True
    # Truncation may cut the first word of a segment.
    within = text[:, 1:] & text[:, :-1] & (boundary[:, 1:] <= 0)
    torn = (masked[:, 1:] != masked[:, :-1]) & within
    yield torn, "has a word masked in part, from position {at} on", ids[:, 1:]


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


@dataclasses.dataclass
class Survey:
  """Counts of records, as when they are made, and the number of each file.

  `drawn` are the counts after `training_draw`.
  """

  counts: data.Counts = dataclasses.field(default_factory=data.Counts)
  drawn: data.Counts = dataclasses.field(default_factory=data.Counts)
  records: list[int] = dataclasses.field(default_factory=list)

  def statistics(self, drawn: bool = False) -> dict[str, Any]:
    """Returns the statistics by their names in a manifest."""
    statistics = data.summarize_examples(self.drawn if drawn else self.counts)
    return {k: v for k, v in statistics.items() if k not in _NOT_COUNTED}


def survey(
  name: str, split: Split, tokenizer, line: printing.ProgressLine
) -> Survey:
  """Checks and counts every record of a split; ValueError if one is invalid."""
  result, draw = Survey(), training_draw(split)
  for index, path in enumerate(split.paths):
    count = 0
    for first, features in read_batches(path, split, tokenizer):
      drawn = draw(features, result.counts["instances"])
      result.counts.add(data.count_examples(features, tokenizer.mask_id))
      result.drawn.add(data.count_examples(drawn, tokenizer.mask_id))
      count = first + len(features["input_ids"])
      line.show(
        f"checking {name}",
        index / len(split.paths),
        result.counts["tokens"],
        f"{result.counts['instances']:,} records, "
        f"file {index + 1} of {len(split.paths)}",
      )
    result.records.append(count)
    stated = split.described.shards[index].records if split.described else count
    if count != stated:
      raise ValueError(
        f"{path} has {count:,} records, but the manifest says {stated:,}: copy "
        "the folder again."
      )
  described = split.described.statistics if split.described else {}
  for key, number in result.statistics().items():
    written = described.get(key, number)
    if written != number:
      folder = os.path.dirname(split.paths[0])
      manifest = os.path.join(folder, tfrecords.MANIFEST_FILE)
      raise ValueError(
        f"{manifest}, the manifest, says {key} {files.quote(written)}, but its "
        f"records have {number!r} (split {files.quote(name)})."
      )
  return result


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
  if all(f.name != "masked_lm_ids" for f in splits["train"].schema):
    raise ValueError(
      f"{paths[0]} holds unmasked records, without the settings to mask them: "
      "make them from the text with tools.create_pretraining_data "
      "--masking=dynamic."
    )


def adopt(
  splits: Mapping[str, Split],
  surveys: Mapping[str, Survey],
  tokenizer: tokenization.Tokenizer,
) -> str:
  """Writes a manifest and the tokenizer beside files; returns their folder."""
  schema = splits["train"].schema
  described = {}
  for name, survey in surveys.items():
    if not survey.counts["predictions"]:
      raise ValueError(f"the {name} files have nothing to predict.")
    shards = [
      tfrecords.Shard(os.path.basename(path), records, files.stat(path)[0])
      for path, records in zip(splits[name].paths, survey.records)
    ]
    described[name] = tfrecords.Split(tuple(shards), survey.statistics())
  settings: dict[str, Any] = {"adopted": True}  # Others are unknown.
  if not any(x.statistics["label_1_share"] for x in described.values()):
    settings["sentence_pair"] = "none"  # There is no order to learn.
  lengths = {feature.name: feature.length for feature in schema}
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=lengths["input_ids"],
    max_predictions_per_seq=lengths["masked_lm_ids"],
    features=schema,
    tokenizer=tfrecords.TokenizerInfo.of(tokenizer),
    settings=settings,
    random_seed=0,
    splits=described,
  )
  folder = os.path.dirname(splits["train"].paths[0])
  target = os.path.join(folder, manifest.tokenizer.file)
  if not files.exists(target):
    files.copy(tokenizer.model_file, target)
  tfrecords.write_manifest(folder, manifest)
  return folder
