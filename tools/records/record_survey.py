"""Reads, checks, counts and shows pretraining records.

Records may come from this project, with or without masks, or from
google-research/albert or BERT, whose features have the same names. The first
invalid record raises an error that names it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
from typing import Iterator, Mapping, Sequence

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

_Features = Mapping[str, np.ndarray]


def read_manifest(folder: str) -> tfrecords.Manifest:
  """Returns the manifest of a folder after checking the sizes of its files."""
  manifest = tfrecords.read_manifest(folder)
  reader.check_shards(folder, *manifest.splits.values())
  return manifest


def manifest_of_files(
  paths: Sequence[str],
  heldout: Sequence[str],
  tokenizer: tokenization.Tokenizer,
) -> tfrecords.Manifest:
  """Returns a manifest of files of one folder, whose records are not counted.

  The first record defines the schema. Features that pretraining does not use
  are ignored. The splits are train and `heldout`, or else one named "files".
  """
  import tensorflow as tf  # Here and below, so that --help is quick.

  folder, *others = sorted({*map(os.path.dirname, [*paths, *heldout])})
  if others:
    raise ValueError(
      f"there are files in {folder} and in {others[0]}: bring them into one "
      "folder, for example by links."
    )
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
  length, most = lengths["input_ids"], lengths.get("masked_lm_positions", 1)
  schema = tfrecords.pretraining_schema(length, most)
  unused = () if has_masks else record_rules.MASKED
  train = [path for path in paths if path not in heldout]
  names = {data.TRAIN: train, data.HELDOUT: heldout}
  return tfrecords.Manifest(
    task="pretraining",
    max_seq_length=length,
    max_predictions_per_seq=most,
    features=tuple(
      f for f in schema if f.name in lengths and f.name not in unused
    ),
    tokenizer=tfrecords.TokenizerInfo.of(tokenizer),
    settings={"adopted": True},  # Others are unknown.
    random_seed=0,
    splits={
      name: tfrecords.Split(tuple(_shard(path, 0) for path in found), {})
      for name, found in (names if heldout else {"files": paths}).items()
    },
  )


def _shard(path: str, records: int) -> tfrecords.Shard:
  return tfrecords.Shard(os.path.basename(path), records, files.stat(path)[0])


def read_batches(
  folder: str, manifest: tfrecords.Manifest, name: str, tokenizer
) -> Iterator[tuple[int, _Features]]:
  """Yields the records of a split after checking them, as training has them.

  The masks and swaps of --masking=dynamic are those of one epoch with the seed
  0. Yields the index of their file, and the features by name, <int64> and
  <float32>[N, ...]. A ValueError names an invalid record.
  """
  import tensorflow as tf

  spec, number = reader.parse_spec(manifest.features), 0
  whole_words = bool(manifest.settings.get("do_whole_word_mask"))
  draw = None
  if manifest.settings.get("masking") == "dynamic":
    draw = tf.function(
      dynamic_masking.DynamicMasking(manifest, 0, dynamic_masking.TRAIN)
    )
  for index, shard in enumerate(manifest.splits[name].shards):
    path, first = os.path.join(folder, shard.file), 0
    records = reader.read_records(path)
    while serialized := list(itertools.islice(records, _BATCH)):
      count = len(serialized)
      try:
        parsed = tf.io.parse_example(serialized, spec)
      except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        # TensorFlow quotes the record in its message, which need not be UTF-8.
        reason = remote.explain(getattr(error, "message", "it is damaged"))[1]
        raise ValueError(
          f"{path}: one of the records {first} to {first + count - 1} (counted "
          f"from 0) does not fit the schema: {reason[:_SHOWN]}"
        ) from error
      features = {name: value.numpy() for name, value in parsed.items()}
      problem = record_rules.find_problem(features, tokenizer, whole_words)
      if problem:
        row, message = problem
        raise ValueError(
          f"{path}, record {first + row} (counted from 0), {message}."
        )
      if draw:
        padded = {  # One shape, so that it is traced once.
          name: np.resize(value, (_BATCH, *value.shape[1:])).astype(np.int32)
          for name, value in features.items()
        }
        drawn = draw(padded, tf.constant(number, tf.int64))
        features = {name: x.numpy()[:count] for name, x in drawn.items()}
      yield index, features
      first, number = first + count, number + count


def survey(
  folder: str,
  manifest: tfrecords.Manifest,
  name: str,
  tokenizer,
  line: printing.ProgressLine,
) -> tfrecords.Split:
  """Checks and counts every record of a split; ValueError if one is invalid."""
  counts, records = collections.Counter[str](), collections.Counter[int]()
  described = manifest.splits[name]
  paths = [os.path.join(folder, shard.file) for shard in described.shards]
  for index, features in read_batches(folder, manifest, name, tokenizer):
    records[index] += len(features["input_ids"])
    counts.update(data.count_examples(features, tokenizer.mask_id))
    line.show(
      f"checking {name}",
      index / len(paths),
      counts["tokens"],
      f"{counts['instances']:,} records",
    )
  shards = (_shard(path, records[index]) for index, path in enumerate(paths))
  found = tfrecords.Split(tuple(shards), data.summarize_examples(counts))
  if described.records not in (0, found.records):
    raise ValueError(
      f"the {name} files have {found.records:,} records, but "
      f"{tfrecords.MANIFEST_FILE} says {described.records:,}: copy the folder "
      "again."
    )
  return found


def check_adoptable(folder: str, tokenizer: tokenization.Tokenizer) -> None:
  """Refuses a folder in which `adopt` would replace a file."""
  found = os.path.join(folder, tfrecords.MANIFEST_FILE)
  model = os.path.join(folder, tokenization.TOKENIZER_FILES[tokenizer.kind])
  if files.exists(model) and files.sha256(model) != tokenizer.sha256:
    found = model
  if files.exists(found):
    raise FileExistsError(
      f"{found} exists already: remove it if it does not belong to the records."
    )


def adopt(
  folder: str,
  manifest: tfrecords.Manifest,
  found: Mapping[str, tfrecords.Split],
  tokenizer: tokenization.Tokenizer,
) -> None:
  """Writes the manifest and the tokenizer beside files after `survey`."""
  for name, split in found.items():
    if not split.statistics.get("predictions"):
      raise ValueError(
        f"the {name} files have nothing to predict: make masked records of the "
        "text by tools.create_pretraining_data."
      )
  settings = dict(manifest.settings)
  if not any(split.statistics["label_1_share"] for split in found.values()):
    settings["sentence_pair"] = "none"  # There is no order to learn.
  target = os.path.join(folder, manifest.tokenizer.file)
  if not files.exists(target):
    files.copy(tokenizer.model_file, target)
  tfrecords.write_manifest(
    folder, dataclasses.replace(manifest, settings=settings, splits=found)
  )


def describe(record: _Features, tokenizer) -> str:
  """Returns the text of a record with marks, in three lines.

  `{shown:label}` is a token to predict; the input shows [MASK], a random piece
  or, as `{=label}`, the piece itself. Masks may be missing.
  """
  used = record.get("masked_lm_weights", np.zeros(0)) > 0
  labels = {}
  if used.any():
    positions = record["masked_lm_positions"][used].tolist()
    labels = dict(zip(positions, record["masked_lm_ids"][used].tolist()))
  order = int(record["next_sentence_labels"][0])
  length = int(record["input_mask"].sum())
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {len(labels)} to predict, "
    f"next_sentence_labels {order} "
    f"({'swapped or random' if order else 'in order'})"
  ]
  ids, mark = record["input_ids"][:length].tolist(), tokenization.WORD_START
  pieces = []
  for at, shown in enumerate(ids):
    piece, label = tokenizer.marked_piece(shown), labels.get(at)
    if label is not None:
      expected = tokenizer.marked_piece(label)
      given = "=" if shown == label else f"{piece.lstrip(mark)}:"
      space = mark if expected.startswith(mark) else ""
      piece = f"{space}{{{given}{expected.lstrip(mark)}}}"
    elif shown in tokenizer.special_ids:
      piece = f" {piece} "
    pieces.append(piece)
  middle = length - int(record["segment_ids"].sum())
  for name, part in (("A", pieces[:middle]), ("B", pieces[middle:])):
    lines.append(
      f"{name}: {' '.join(''.join(part).replace(mark, ' ').split())}"
    )
  return "\n".join(lines)
