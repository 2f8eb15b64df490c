"""Records and their manifest: damaged, cut, of other features, not UTF-8."""

from __future__ import annotations

import functools
import pathlib
import struct
from typing import Any, Callable, Sequence

import google_crc32c
import numpy as np
from hypothesis import strategies as st

from official_albert import files
from official_albert.tfrecords import reader
from official_albert.tools.testing import fuzz, mutations, toy_data, toy_runs

_LENGTH, _SHARD = 16, "data/train-00000-of-00001.tfrecord"
_ODD_NUMBERS = (0, 1, -1, 6, 46, 47, 1 << 31, -(1 << 63), (1 << 63) - 1)
_ODD_NAMES = (b"input_ids", b"next_sentence_labels", b"\xff\xfe", b"", b"\0")


def _frame(records: Sequence[bytes]) -> bytes:
  """Returns a TFRecord file, with checksums that are right."""
  framed = []
  for record in records:
    length = struct.pack("<Q", len(record))
    for part in (length, record):
      masked = files.masked_crc32c(google_crc32c.value(part))
      framed += [part, struct.pack("<I", masked)]
  return b"".join(framed)


def _records(content: bytes) -> list[bytes]:
  """Returns the records of a TFRecord file."""
  records = []
  while content:
    (size,) = struct.unpack("<Q", content[:8])
    records.append(content[12 : 12 + size])
    content = content[16 + size :]
  return records


def _prepare(folder: str) -> None:
  """Writes a dataset of one shard and its tokenizer, and two lone shards."""
  toy_runs.write_tokenizer(folder)
  toy_data.write_corpus(f"{folder}/corpus.txt", 3)
  changes = {"dupe_factor": 1, "num_shards": 1}
  toy_runs.write_records(folder, "data", _LENGTH, 0.0, **changes)
  shard = pathlib.Path(folder, _SHARD).read_bytes()
  pathlib.Path(folder, "valid.tfrecord").write_bytes(shard)
  few = _frame(_records(shard)[:5])
  pathlib.Path(folder, "a.tfrecord").write_bytes(few)


def _damage_records(valid: bytes) -> st.SearchStrategy[bytes]:
  """Damages a record below its checksums, as bytes or as an Example."""
  records = _records(valid)
  edits = st.tuples(*[st.integers(0, 99)] * 5)
  changed = st.one_of(
    mutations.damaged_bytes(records[0]),
    st.lists(edits, min_size=1, max_size=2).map(
      lambda drawn: _change_features(records[0], drawn)
    ),
  )
  return st.tuples(st.integers(0, len(records) - 1), changed).map(
    lambda drawn: _frame([*records[: drawn[0]], drawn[1], *records[drawn[0] :]])
  )


def _change_features(record: bytes, edits: Sequence[tuple[int, ...]]) -> bytes:
  """Changes features: values, numbers of values, kinds, names."""
  import tensorflow as tf

  example = tf.train.Example.FromString(record)
  features = example.features.feature
  placeholder = None
  for kind, which, at, what, size in edits:
    name = sorted(features)[which % len(features)]
    values = list(features[name].int64_list.value)
    odd = _ODD_NUMBERS[what % len(_ODD_NUMBERS)]
    if kind % 6 == 0:
      del features[name]
    elif kind % 6 == 1:
      features[name].int64_list.value.extend([odd] * (1 + size % 20))
    elif kind % 6 == 2:
      features[name].float_list.value.extend([np.nan, odd] * (1 + size % 9))
    elif kind % 6 == 3:
      features[name].bytes_list.value.append(b"\xff" * size)
    elif kind % 6 == 4 and values:
      features[name].int64_list.value[at % len(values)] = odd
    else:
      placeholder = _ODD_NAMES[what % len(_ODD_NAMES)]
      features["placeholder"].int64_list.value.append(odd)
    if not features:
      break
  content = example.SerializeToString(deterministic=True)
  if placeholder is not None:
    # The length of a name precedes it, so its length stays.
    content = content.replace(b"placeholder", placeholder.ljust(11, b"\xff"))
  return content


def _flip(valid: bytes) -> st.SearchStrategy[bytes]:
  """Flips a bit; the size remains that of the manifest."""
  return st.tuples(st.integers(0, len(valid) - 1), st.integers(0, 7)).map(
    lambda drawn: bytes(
      byte ^ (1 << drawn[1] if at == drawn[0] else 0)
      for at, byte in enumerate(valid)
    )
  )


def _damage_shard(valid: bytes) -> st.SearchStrategy[bytes]:
  return st.one_of(_flip(valid), mutations.damaged_bytes(valid))


def _inspect(folder: str, content: Any) -> None:
  flags = f"--input_dir={folder}/data", "--num_examples=1"
  fuzz.run_program("inspect_tfrecords", *flags)


def _adopt(folder: str, content: Any) -> None:
  fuzz.run_program(
    "adopt_tfrecords",
    f"--input_files={folder}/*.tfrecord",
    f"--heldout_files={folder}/valid.tfrecord",
    f"--spm_model_file={folder}/tokenizer.model",
  )


@functools.cache
def _batches(folder: str) -> Any:
  """Returns batches; each iteration opens the files again."""
  return reader.read_dataset(f"{folder}/data", "train", 3, training=False)


def _read(folder: str, content: Any) -> None:
  for _ in _batches(folder):
    pass


def _target(
  name: str,
  file: str,
  damage: Callable[[bytes], st.SearchStrategy],
  call: Callable[[str, Any], None],
  named: str = "",
) -> fuzz.Target:
  return fuzz.Target(name, _prepare, damage, call, file, named)


_json = mutations.damaged_json
TARGETS = (
  # Some messages name a shard that does not fit.
  _target("manifest", "data/dataset.json", _json, _inspect, "/data/"),
  _target("shard", _SHARD, _damage_shard, _inspect),
  _target("adopted", "a.tfrecord", _damage_records, _adopt),
  _target("training", _SHARD, _flip, _read, "tools.inspect_tfrecords"),
)
