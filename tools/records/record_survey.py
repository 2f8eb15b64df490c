"""Reads, checks, counts and shows pretraining records.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names. The first
invalid record raises an error that names it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import textwrap
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional

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
_SHOWN = 120  # Characters of TensorFlow's messages, which quote records.
_WORD_START = tokenization.WORD_START

_Features = Mapping[str, np.ndarray]


class Split(NamedTuple):
  """Files of records, with the manifest's entry for them if there is one."""

  paths: list[str]
  schema: tuple[tfrecords.Feature, ...]
  manifest: Optional[tfrecords.Manifest] = None
  statistics: Mapping[str, Any] = {}

  @property
  def settings(self) -> Mapping[str, Any]:
    return self.manifest.settings if self.manifest else {}


def read_splits(directory: str) -> dict[str, Split]:
  """Returns the splits of a folder after checking the sizes of its files."""
  manifest = tfrecords.read_manifest(directory)
  every = [s for split in manifest.splits.values() for s in split.shards]
  reader.check_shards(directory, every)
  return {
    name: Split(
      [os.path.join(directory, shard.file) for shard in split.shards],
      manifest.features,
      manifest,
      split.statistics,
    )
    for name, split in manifest.splits.items()
  }


def of_files(paths: list[str]) -> Split:
  """Returns files without a manifest; the first record defines the schema.

  Features that pretraining does not use are ignored.
  """
  import tensorflow as tf  # Here and below, so that --help is quick.

  lengths: dict[str, int] = {}
  record = next(reader.read_records(paths[0]), b"")
  # DecodeError differs between protobuf versions; names may not be UTF-8.
  with contextlib.suppress(Exception):
    features = tf.train.Example.FromString(record).features.feature
    lengths = {x: len(y.int64_list.value) for x, y in features.items()}
  has_masks = all(name in lengths for name in record_rules.MASKED)
  if not all(lengths.get(name) for name in _ALWAYS) or not (
    has_masks or "token_boundary" in lengths
  ):
    raise ValueError(
      f"{paths[0]} has no pretraining records; the features of the first are "
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


def read_batches(split: Split, tokenizer) -> Iterator[tuple[int, _Features]]:
  """Yields the records of a split after checking them, as training has them.

  Yields the index of their file, and the features by name, <int64> and
  <float32>[N, ...]. A ValueError names an invalid record.
  """
  import tensorflow as tf

  spec, draw, number = reader.parse_spec(split.schema), _training_draw(split), 0
  whole_words = bool(split.settings.get("do_whole_word_mask"))
  for index, path in enumerate(split.paths):
    records, first = reader.read_records(path), 0
    while serialized := list(itertools.islice(records, _BATCH)):
      last = first + len(serialized) - 1
      try:
        parsed = tf.io.parse_example(serialized, spec)
      except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        # TensorFlow quotes the record in its message, which need not be UTF-8.
        reason = remote.explain(getattr(error, "message", "it is damaged"))[1]
        raise ValueError(
          f"{path}: one of the records {first} to {last} (counted from 0) does "
          f"not fit the schema: {reason[:_SHOWN]}"
        ) from error
      features = {name: value.numpy() for name, value in parsed.items()}
      problem = record_rules.find_problem(features, tokenizer, whole_words)
      if problem:
        row, message = problem
        raise ValueError(
          f"{path}, record {first + row} (counted from 0), {message}."
        )
      yield index, draw(features, number)
      first, number = last + 1, number + len(serialized)


def _training_draw(split: Split) -> Callable[[_Features, int], _Features]:
  """Returns what training does to features, given their first example's number.

  The masks and swaps of --masking=dynamic are those of one epoch with the seed
  0; other records stay as they are.
  """
  if split.settings.get("masking") != "dynamic":
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
  rows = (
    {name: value[row] for name, value in features.items()}
    for _, features in read_batches(split, tokenizer)
    for row in range(len(features["input_ids"]))
  )
  return itertools.islice(rows, count)


def survey(
  name: str, split: Split, tokenizer, line: printing.ProgressLine
) -> tfrecords.Split:
  """Checks and counts every record of a split; ValueError if one is invalid."""
  counts, records = collections.Counter[str](), collections.Counter[int]()
  for index, features in read_batches(split, tokenizer):
    records[index] += len(features["input_ids"])
    counts.update(data.count_examples(features, tokenizer.mask_id))
    line.show(
      f"checking {name}",
      index / len(split.paths),
      counts["tokens"],
      f"{counts['instances']:,} records",
    )
  shards = (
    tfrecords.Shard(os.path.basename(path), records[index], files.stat(path)[0])
    for index, path in enumerate(split.paths)
  )
  found = tfrecords.Split(tuple(shards), data.summarize_examples(counts))
  if split.manifest and found.records != split.manifest.splits[name].records:
    raise ValueError(
      f"the {name} files have {found.records:,} records, but "
      f"{tfrecords.MANIFEST_FILE} says "
      f"{split.manifest.splits[name].records:,}: copy the folder again."
    )
  return found


def check_adoptable(
  splits: Mapping[str, Split], tokenizer: tokenization.Tokenizer
) -> str:
  """Returns the folder that `adopt` writes to; refuses files it cannot take."""
  paths = [path for split in splits.values() for path in split.paths]
  folder, *others = sorted({*map(os.path.dirname, paths)})
  if others:
    raise ValueError(
      f"there are files in {folder} and in {others[0]}: bring them into one "
      "folder, for example by links."
    )
  found = os.path.join(folder, tfrecords.MANIFEST_FILE)
  model = os.path.join(folder, tfrecords.TOKENIZER_FILES[tokenizer.kind])
  if files.exists(model) and files.sha256(model) != tokenizer.sha256:
    found = model
  if files.exists(found):
    raise FileExistsError(
      f"{found} exists already: remove it if it does not belong to the records."
    )
  return folder


def adopt(
  folder: str,
  schema: tuple[tfrecords.Feature, ...],
  found: Mapping[str, tfrecords.Split],
  tokenizer: tokenization.Tokenizer,
) -> None:
  """Writes a manifest and the tokenizer beside files after `survey`."""
  for name, split in found.items():
    if not split.statistics.get("predictions"):
      raise ValueError(
        f"the {name} files have nothing to predict: make masked records of the "
        "text by tools.create_pretraining_data."
      )
  settings: dict[str, Any] = {"adopted": True}  # Others are unknown.
  if not any(split.statistics["label_1_share"] for split in found.values()):
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
    splits=dict(found),
  )
  target = os.path.join(folder, manifest.tokenizer.file)
  if not files.exists(target):
    files.copy(tokenizer.model_file, target)
  tfrecords.write_manifest(folder, manifest)


def describe(record: _Features, tokenizer) -> str:
  """Returns the text of a record with marks, in several lines.

  `{shown:label}` is a token to predict; the input shows [MASK], a random piece
  or, as `{=label}`, the piece itself. Pieces are joined to words as the
  tokenizer does. Masks may be missing.
  """
  length = int(record["input_mask"].sum())
  labels, masks = {}, " (not masked)"
  if "masked_lm_weights" in record:
    used = record["masked_lm_weights"] > 0
    positions = record["masked_lm_positions"][used].tolist()
    labels = dict(zip(positions, record["masked_lm_ids"][used].tolist()))
    masks = ""
  order = int(record["next_sentence_labels"][0])
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {len(labels)} to predict"
    f"{masks}, next_sentence_labels {order} "
    f"({'swapped or random' if order else 'in order'})"
  ]
  ids = record["input_ids"][:length].tolist()
  for name, segment in (("A", 0), ("B", 1)):
    places = np.flatnonzero(record["segment_ids"][:length] == segment).tolist()
    pieces = [_piece(ids[at], labels.get(at), tokenizer) for at in places]
    lines.append(f"{name}: {' '.join(''.join(pieces).split())}")
  wrap = textwrap.TextWrapper(
    width=78,
    subsequent_indent="   ",
    break_long_words=False,
    break_on_hyphens=False,
  )
  return "\n".join([lines[0], *map(wrap.fill, lines[1:])])


def _piece(shown_id: int, label_id: Optional[int], tokenizer) -> str:
  shown = tokenizer.marked_piece(shown_id)
  if label_id is None:
    space = " " if shown_id in tokenizer.special_ids else ""
    return f"{space}{shown.replace(_WORD_START, ' ')}{space}"
  label = tokenizer.marked_piece(label_id)
  space = " " if label.startswith(_WORD_START) else ""
  # A piece may consist of the word mark alone.
  label = label.lstrip(_WORD_START) or label
  shown = shown.lstrip(_WORD_START) or shown
  mark = f"={label}" if shown_id == label_id else f"{shown}:{label}"
  return f"{space}{{{mark}}}"
