"""Writes the records of labeled data, once for each combination of settings.

The name of a folder of records contains a hash of everything that its bytes
depend on: the examples, the tokenizer, the length and the task's settings.
Records of 128 tokens are thus never mistaken for records of 512, as can happen
with google-research/albert.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

import numpy as np

from official_albert import files, tfrecords, tokenization

if TYPE_CHECKING:
  from official_albert.tasks.common import finetuning_task

# Must increase when the same examples and settings give different bytes.
_VERSION = 2
# Examples that are encoded together.
_BLOCK = 512


def build_records(task: finetuning_task.FinetuningTask, split: str) -> str:
  """Writes the records of a split below `cache_dir`, unless they exist.

  The split `train` is shuffled, because many sources are sorted by document and
  the reader shuffles only within blocks.

  Returns:
    The folder of the records.
  """
  tokenizer, note = task.options.tokenizer, task.options.note
  assert tokenizer, "the options of the task have no tokenizer"
  schema, settings = task.schema(), task.record_settings(split)
  what = [
    *(_VERSION, task.name, split, task.max_seq_length, settings),
    *(tokenizer.sha256, tokenizer.rules.to_dict()),
    [[f.name, f.dtype, f.shape] for f in schema],
  ]
  key = hashlib.sha256(json.dumps(what, sort_keys=True).encode())
  for example in task.examples(split):
    key.update(repr(example).encode())
  folder = os.path.join(
    task.options.cache_dir, f"{task.name}-{split}-{key.hexdigest()[:16]}"
  )
  if split == "train" and (text := tokenization.vocabulary_note(tokenizer)):
    note(text)
  # In a bucket, the upload of a folder ends with its manifest.
  manifest_file = os.path.join(folder, tfrecords.MANIFEST_FILE)
  verb = "found"
  if not files.exists(manifest_file):
    info = tfrecords.TokenizerInfo.of(tokenizer)
    try:
      with files.new_folder(folder) as temporary:
        manifest = tfrecords.Manifest(
          task=task.name,
          max_seq_length=task.max_seq_length,
          max_predictions_per_seq=0,
          features=schema,
          tokenizer=info,
          settings=settings,
          random_seed=0,
          splits={
            split: _write_split(
              temporary, split, schema, task.features(split), tokenizer.unk_id
            )
          },
        )
        # The file may be a temporary one, of a converted tokenizer.
        path = os.path.join(temporary, info.file)
        files.write_bytes(path, tokenizer.content)
        tfrecords.write_manifest(temporary, manifest)
      verb = "wrote"
    except OSError:
      # Another process may have written the same records in the meantime.
      if not files.exists(manifest_file):
        raise
  written = open_records(folder).splits[split]
  note(f"{verb} {written.records:,} {split} records of {task.name} in {folder}")
  counts: Any = written.statistics
  if text := tokenization.unknown_note(
    counts["unknown"], counts["tokens"], f"the {split} data"
  ):
    note(text)
  return folder


def open_records(folder: str) -> tfrecords.Manifest:
  """Returns the manifest of a folder; raises ValueError for a damaged one."""
  try:
    return tfrecords.read_manifest(folder)
  except (ValueError, OSError) as error:
    raise ValueError(
      f"the records in {folder} are damaged ({error}): remove that folder, and "
      "they are built again."
    ) from error


def _write_split(
  folder: str,
  split: str,
  features: Sequence[tfrecords.Feature],
  examples: Iterable[Mapping[str, Any]],
  unk_id: int,
) -> tfrecords.Split:
  """Writes the one shard of a split."""
  # All examples fit into memory: the largest data set takes under a gigabyte.
  records: list[bytes] = []
  tokens = unknown = 0
  rest = iter(examples)
  while block := list(itertools.islice(rest, _BLOCK)):
    rows = _pad(block, features)
    tokens += int(rows["input_mask"].sum())
    unknown += int((rows["input_ids"] == unk_id).sum())
    records += tfrecords.encode_examples(features, rows)
  order = np.arange(len(records))
  if split == "train":
    np.random.default_rng(0).shuffle(order)
  path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
  with tfrecords.ShardWriter(path, features) as shard:
    for index in order:
      shard.write_encoded(records[index])
  return tfrecords.Split(
    (shard.result,),
    {
      "mean_tokens": round(tokens / len(records), 2),
      "tokens": tokens,
      "unknown": unknown,
    },
  )


def _pad(
  examples: Sequence[Mapping[str, Any]], features: Sequence[tfrecords.Feature]
) -> dict[str, np.ndarray]:
  """Returns arrays [N, ...] of examples, padded with 0, and `input_mask`."""
  arrays = {}
  for feature in features:
    is_mask = feature.name == "input_mask"
    source = "input_ids" if is_mask else feature.name
    values = [example[source] for example in examples]
    if not feature.shape:
      arrays[feature.name] = np.array(values, feature.dtype)
      continue
    array = np.zeros([len(examples), *feature.shape], feature.dtype)
    for row, value in zip(array, values):
      sequences = value if len(feature.shape) > 1 else [value]
      for part, ids in zip(np.atleast_2d(row), sequences, strict=True):
        part[: len(ids)] = 1 if is_mask else ids
    arrays[feature.name] = array
  return arrays
