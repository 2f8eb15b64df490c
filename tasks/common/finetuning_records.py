"""Writes the records of labeled data, once for each combination of settings.

The name of a folder of records contains a hash of everything that its bytes
depend on: the contents of the source files, the tokenizer, the length and the
task's settings. Records of 128 tokens are thus never mistaken for records of
512, as can happen with google-research/albert.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from official_albert import files, tfrecords, tokenization
from official_albert.tfrecords import reader

# Must increase when the same sources and settings give different bytes.
_VERSION = 1
# Examples that are encoded together.
_BLOCK = 512

# The features of one example: a list for a token sequence, a list of lists for
# several sequences, otherwise a number.
Example = Mapping[str, Any]


def cache_key(**what: Any) -> str:
  """Returns a hash of JSON values, 16 hexadecimal digits."""
  text = json.dumps(what, sort_keys=True, ensure_ascii=False)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_records(
  cache_dir: str,
  task: str,
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  features: Sequence[tfrecords.Feature],
  settings: Mapping[str, Any],
  split: str,
  sources: Sequence[str],
  make_examples: Callable[[], Iterable[Example]],
  note: Callable[[str], None] = lambda text: None,
) -> str:
  """Writes the records of one split below `cache_dir` unless they exist.

  The split `train` is shuffled, because many sources are sorted by document and
  the reader shuffles only within blocks.

  Args (those that the manifest does not describe):
    settings: everything else that the examples depend on, as JSON values.
    sources: the files that the examples come from; only their contents matter.
    make_examples: returns the examples; called only if the records do not
      exist. Sequences may be shorter than S, and `input_mask` is added.
    note: called with one line for the log.

  Returns:
    The folder of the records. Existing ones are not checked; see `check`.
  """
  key = cache_key(
    version=_VERSION,
    task=task,
    tokenizer=[tokenizer.sha256, tokenizer.rules.to_dict()],
    max_seq_length=max_seq_length,
    features=[[f.name, f.dtype, f.shape] for f in features],
    settings=dict(settings),
    split=split,
    sources=[files.sha256(path) for path in sources],
  )
  folder = os.path.join(cache_dir, f"{task}-{split}-{key}")
  if split == "train" and (text := tokenization.vocabulary_note(tokenizer)):
    note(text)
  # In a bucket, the upload of a folder ends with its manifest.
  manifest_file = os.path.join(folder, tfrecords.MANIFEST_FILE)
  verb = "found"
  if not files.exists(manifest_file):
    info = tfrecords.TokenizerInfo.of(tokenizer)
    try:
      with files.new_folder(folder) as temporary:
        records = _write_split(
          temporary, split, features, make_examples(), tokenizer.unk_id
        )
        # The file may be a temporary one, of a converted tokenizer.
        path = os.path.join(temporary, info.file)
        files.write_bytes(path, tokenizer.content)
        manifest = tfrecords.Manifest(
          task=task,
          max_seq_length=max_seq_length,
          max_predictions_per_seq=0,
          features=tuple(features),
          tokenizer=info,
          settings=dict(settings),
          random_seed=0,
          splits={split: records},
        )
        tfrecords.write_manifest(temporary, manifest)
      verb = "wrote"
    except OSError as error:
      # Another process may have written the same records in the meantime. A
      # folder without a manifest is damaged, which `check` reports.
      if not (
        isinstance(error, FileExistsError) or files.exists(manifest_file)
      ):
        raise
  with contextlib.suppress(OSError, ValueError):  # `check` reports damage.
    written = tfrecords.read_manifest(folder).splits[split]
    note(f"{verb} {written.records:,} {split} records of {task} in {folder}")
    counts: Any = written.statistics
    unknown, tokens = (counts.get(x, 0) for x in ("unknown", "tokens"))
    if text := tokenization.unknown_note(unknown, tokens, f"the {split} data"):
      note(text)
  return folder


def check(folder: str) -> tfrecords.Manifest:
  """Returns the manifest of a folder; raises ValueError for a damaged one."""
  try:
    manifest = tfrecords.read_manifest(folder)
    for split in manifest.splits.values():
      reader.check_shards(folder, split.shards)
    files.stat(os.path.join(folder, manifest.tokenizer.file))
  except (ValueError, OSError) as error:
    raise ValueError(
      f"the records in {folder} are damaged ({error}): remove that folder, and "
      "they are built again."
    ) from error
  return manifest


def _write_split(
  folder: str,
  split: str,
  features: Sequence[tfrecords.Feature],
  examples: Iterable[Example],
  unk_id: int,
) -> tfrecords.Split:
  # All examples fit into memory: the largest data set takes under a gigabyte.
  records, tokens, unknown, rest = [], 0, 0, iter(examples)
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
  examples: Sequence[Example], features: Sequence[tfrecords.Feature]
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
