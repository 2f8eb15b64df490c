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
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from official_albert import files, tfrecords, tokenization
from official_albert.tasks.common import disk_list

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
  if not files.exists(manifest_file):
    info = tfrecords.TokenizerInfo.of(tokenizer)
    try:
      with files.new_folder(folder) as temporary:
        written = _write_split(temporary, task, split)
        # The file may be a temporary one, of a converted tokenizer.
        path = os.path.join(temporary, info.file)
        files.write_bytes(path, tokenizer.content)
        manifest = tfrecords.Manifest(
          task=task.name,
          max_seq_length=task.max_seq_length,
          max_predictions_per_seq=0,
          features=schema,
          tokenizer=info,
          settings=settings,
          random_seed=0,
          splits={split: written},
        )
        tfrecords.write_manifest(temporary, manifest)
      note(f"wrote {written.records:,} {split} records to {folder}")
    except OSError:
      # Another process may have written the same records in the meantime.
      if not files.exists(manifest_file):
        raise
  counts: Any = tfrecords.read_manifest(folder).splits[split].statistics
  if text := tokenization.unknown_note(
    counts["unknown"], counts["tokens"], f"the {split} data"
  ):
    note(text)
  return folder


def _write_split(
  folder: str, task: finetuning_task.FinetuningTask, split: str
) -> tfrecords.Split:
  """Writes the one shard of a split."""
  records = disk_list.DiskList()
  tokens = unknown = 0
  schema, unk_id = task.schema(), task.options.tokenizer.unk_id
  rest = ({**x, "example_id": i} for i, x in enumerate(task.features(split)))
  while block := list(itertools.islice(rest, _BLOCK)):
    rows = {f.name: _pad(f, block) for f in schema}
    tokens += int(rows["input_mask"].sum())
    unknown += int((rows["input_ids"] == unk_id).sum())
    records.extend(tfrecords.encode_examples(schema, rows))
  order = np.arange(len(records))
  if split == "train":
    np.random.default_rng(0).shuffle(order)
  path = os.path.join(folder, tfrecords.shard_name(split, 0, 1))
  shard = tfrecords.write_shard(path, (records[index] for index in order))
  statistics = {"tokens": tokens, "unknown": unknown}
  return tfrecords.Split((shard,), statistics)


def _pad(
  feature: tfrecords.Feature, examples: Sequence[Mapping[str, Any]]
) -> np.ndarray:
  """Returns a feature [N, ...] of examples, padded with 0."""
  is_mask = feature.name == "input_mask"
  values = [x["input_ids" if is_mask else feature.name] for x in examples]
  if not feature.shape:
    return np.array(values, feature.dtype)
  array = np.zeros([len(examples), *feature.shape], feature.dtype)
  # A row for each sequence; several of an example are consecutive.
  rows = array.reshape(-1, feature.shape[-1])
  if len(feature.shape) > 1:
    values = list(itertools.chain.from_iterable(values))
  for row, ids in zip(rows, values, strict=True):
    row[: len(ids)] = 1 if is_mask else ids
  return array
