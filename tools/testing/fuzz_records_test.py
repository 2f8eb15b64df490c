"""Records and their manifest: damaged, cut, of other features, not UTF-8."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from official_albert import files, tfrecords, tokenization
from official_albert.tfrecords import reader, writer
from official_albert.tools.cli import printing
from official_albert.tools.records import record_survey
from official_albert.tools.testing import fuzz, toy_data, toy_runs

_SHARD = "data/train-00000-of-00001.tfrecord"
_ODD_NUMBERS = (0, 1, -1, 6, 46, 47, 1 << 31, -(1 << 63), (1 << 63) - 1)


def _prepare(folder: str) -> None:
  """Writes a dataset of one shard and its tokenizer, and a lone shard."""
  toy_runs.write_tokenizer(folder)
  toy_data.write_corpus(f"{folder}/corpus.txt", 3)
  changes = {"dupe_factor": 1, "num_shards": 1}
  toy_runs.write_records(folder, "data", 16, 0.0, **changes)
  records = [*reader.read_records(f"{folder}/{_SHARD}")]
  content = b"".join(map(writer.frame, records[:5]))
  files.write_bytes(f"{folder}/a.tfrecord", content)


def _records(content: bytes) -> list[bytes]:
  """Returns the records of a TFRecord file."""
  records = []
  while content:
    (size,) = struct.unpack("<Q", content[:8])
    records.append(content[12 : 12 + size])
    content = content[16 + size :]
  return records


@st.composite
def _damaged_records(draw, valid: bytes) -> bytes:
  """Damages a record below its checksums, as bytes or as an Example."""
  records = _records(valid)
  how = draw(st.sampled_from([fuzz.damaged_bytes, _changed_features]))
  at = draw(st.integers(0, len(records) - 1))
  records.insert(at, draw(how(records[0])))
  return b"".join(map(writer.frame, records))


@st.composite
def _changed_features(draw, record: bytes) -> bytes:
  """Changes features: values, numbers of values, kinds, names."""
  example = tf.train.Example.FromString(record)
  features = example.features.feature
  for _ in range(draw(st.integers(1, 2))):
    feature = features[draw(st.sampled_from(sorted(features)))]
    values, odd = feature.int64_list.value, draw(st.sampled_from(_ODD_NUMBERS))
    kind = draw(st.sampled_from("value more float bytes cut name".split()))
    if kind == "value" and values:
      values[draw(st.integers(0, len(values) - 1))] = odd
    elif kind == "more":
      values.extend([odd] * draw(st.integers(1, 20)))
    elif kind == "float":
      feature.float_list.value.extend([np.nan, odd])
    elif kind == "bytes":
      feature.bytes_list.value.append(b"\xff" * draw(st.integers(0, 99)))
    elif kind == "cut":
      feature.Clear()
    else:
      features["unknown"].int64_list.value.append(odd)
  # A name that is not UTF-8 has the same length.
  content = example.SerializeToString(deterministic=True)
  return content.replace(b"unknown", b"unk\xff\xfe\0n")


def _inspect(folder: str) -> None:
  """Checks every record, as tools.inspect_tfrecords does."""
  manifest = record_survey.read_manifest(f"{folder}/data")
  tokenizer = tokenization.open_tokenizer(f"{folder}/tokenizer.model")
  _survey(f"{folder}/data", manifest, tokenizer)


def _adopt(folder: str) -> None:
  """Reads what has no manifest, as tools.inspect_tfrecords does."""
  tokenizer = tokenization.open_tokenizer(f"{folder}/tokenizer.model")
  path = os.path.join(folder, "a.tfrecord")
  manifest = record_survey.manifest_of_files([path], [], tokenizer)
  _survey(folder, manifest, tokenizer)


def _survey(folder: str, manifest: tfrecords.Manifest, tokenizer) -> None:
  line = printing.ProgressLine()
  for name in manifest.splits:
    record_survey.survey(folder, manifest, name, tokenizer, line)


_TARGETS = {
  # Some messages name a shard that does not fit.
  "manifest": fuzz.Target(
    "data/dataset.json", _prepare, fuzz.damaged_json, _inspect, "/data/"
  ),
  "shard": fuzz.Target(_SHARD, _prepare, fuzz.damaged_bytes, _inspect),
  "adopted": fuzz.Target("a.tfrecord", _prepare, _damaged_records, _adopt),
}


@pytest.mark.parametrize("name", _TARGETS)
def test_target(name, tmp_path):
  fuzz.check(_TARGETS[name], str(tmp_path))
