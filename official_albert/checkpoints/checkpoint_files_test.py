"""Tests of TensorFlow's format of checkpoints, and of the files beside one."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import runs, tokenization
from official_albert.checkpoints import tensor_bundle, tokenizer_file
from official_albert.testing import forged_index

_TENSORS = {"b/c": np.arange(6, dtype=np.float32).reshape(2, 3)}


def write_bundle(folder, name="x.ckpt", tensors=None):
  os.makedirs(folder, exist_ok=True)
  prefix = str(folder / name)
  tensor_bundle.write_bundle(prefix, tensors or _TENSORS)
  return prefix


def read(prefix):
  return tensor_bundle.read_bundle(prefix)[0]


def test_values_are_read_by_name(tmp_path):
  half = np.array([0.5, -2.0], np.float16)
  prefix = write_bundle(
    tmp_path, tensors={**_TENSORS, "a": np.int64(7), "h": half}
  )
  values, read_names = tensor_bundle.read_bundle(prefix)
  shapes = {name: value.shape for name, value in values.items()}
  assert shapes == {"b/c": (2, 3), "a": (), "h": (2,)} and not read_names
  np.testing.assert_array_equal(values["b/c"], _TENSORS["b/c"])
  step, halves = (values[name].read() for name in ("a", "h"))
  assert step == 7 and step.dtype == np.int64
  assert halves.dtype == np.float32 and halves.tolist() == [0.5, -2.0]


def test_damaged_and_unwritable_files(tmp_path):
  prefix = write_bundle(tmp_path)
  data = pathlib.Path(f"{prefix}.data-00000-of-00001")
  whole = data.read_bytes()
  for damaged in (b"", whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
    data.write_bytes(damaged)
    with pytest.raises(OSError, match=f"{data} is damaged .b/c .*: copy it"):
      read(prefix)["b/c"].read()
  data.unlink()
  with pytest.raises(OSError, match=f"{data} is damaged .it does not exist"):
    read(prefix)
  index = pathlib.Path(f"{prefix}.index")
  whole = index.read_bytes()
  # A byte in the footer may have no effect.
  for damaged in (b"", whole[:-9], bytes([whole[9] ^ 1]) + whole[1:]):
    index.write_bytes(damaged)
    with pytest.raises(OSError, match="index is damaged .*: copy it again, or"):
      read(prefix)
  with pytest.raises((OSError, tf.errors.OpError), match="index"):
    tensor_bundle.write_bundle(str(index / "x"), _TENSORS)


def _forged(**fields):
  return {b"": forged_index.header(), b"a": forged_index.entry(**fields)}


@pytest.mark.parametrize(
  "entries, message",
  [
    ({b"": forged_index.header(), b"a": b"\xff"}, "Error parsing message"),
    ({b"a": forged_index.entry([2], size=8)}, "no header, or one of another"),
    ({b"": forged_index.header(endianness=1)}, "no header, or one of another"),
    (_forged(shape=[-2], size=8), "does not fit its size"),
    (_forged(shape=[2], size=-8), "does not fit its size"),
    (_forged(shape=[2**40, 2**40], size=8), "does not fit its size"),
    (_forged(shape=[1] * 40_000, size=4), "has too many dimensions"),
    (_forged(shape=[2**40], size=2**42), "a is not in it"),
    (_forged(shape=[2], size=8, offset=-8), "a is not in it"),
    (_forged(shape=[2], size=8, offset=2**62), "a is not in it"),
    (_forged(shape=[2], size=8, shard_id=7), "00007-of-00001 is .*not exist"),
    (_forged(shape=[2], size=0, slices=[{}]), "stored in slices"),
    # Shapes without bytes, for which a model would be allocated.
    (_forged(shape=[2**20], size=0, slices=[{}]), "promises 4,194,304 bytes"),
    (
      {**_forged(shape=[5], size=20), b"b": forged_index.entry([5], size=20)},
      "promises 40 bytes of 24",
    ),
  ],
)
def test_indexes_that_would_end_the_process(entries, message, tmp_path):
  """With right checksums, several of these crash TensorFlow's reader."""
  prefix = write_bundle(tmp_path)
  pathlib.Path(f"{prefix}.index").write_bytes(forged_index.index(entries))
  with pytest.raises(OSError, match=message):
    read(prefix)["a"].read()


@pytest.mark.parametrize(
  "limit, value",
  [("_MAX_INDEX_BYTES", 99), ("_MAX_NAMES_BYTES", 2 * 256 + 299)],
)
def test_large_indexes_are_refused(limit, value, tmp_path, monkeypatch):
  prefix = write_bundle(tmp_path)
  entry = forged_index.entry([0])
  entries = {b"": forged_index.header(), b"a": entry, b"b" * 300: entry}
  pathlib.Path(f"{prefix}.index").write_bytes(forged_index.index(entries))
  monkeypatch.setattr(tensor_bundle, "_MAX_NAMES_BYTES", 2 * 256 + 300)
  assert len(read(prefix)) == 2
  monkeypatch.setattr(tensor_bundle, limit, value)
  with pytest.raises(OSError, match="x.ckpt.index is .*it has .*more than"):
    read(prefix)


def test_values_that_are_no_numbers_are_left_out(tmp_path):
  entries = _forged(shape=[2], dtype=21)  # DT_VARIANT.
  entries[b"b"] = forged_index.entry([2], dtype=999)
  prefix = write_bundle(tmp_path)
  pathlib.Path(f"{prefix}.index").write_bytes(forged_index.index(entries))
  assert not read(prefix)


def test_only_variables_that_are_read_must_be_whole(tmp_path):
  prefix = str(tmp_path / "x.ckpt")
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=["slot", "slot", "w"],
    shape_and_slices=["4 2 0,2:-", "4 2 2,2:-", ""],
    tensors=[tf.zeros([2, 2]), tf.ones([2, 2]), tf.fill([3], 5.0)],
  )
  values = read(prefix)
  assert {n: x.shape for n, x in values.items()} == {"slot": (4, 2), "w": (3,)}
  np.testing.assert_array_equal(values["w"].read(), [5.0, 5.0, 5.0])
  with pytest.raises(OSError, match="slot in .*without a partitioner"):
    values["slot"].read()


def test_the_nearest_tokenizer_is_taken(tmp_path):
  (tmp_path / "best").mkdir()
  folders = runs.folders_of(str(tmp_path / "best" / "x.ckpt"))
  assert folders == [str(tmp_path / "best"), str(tmp_path)]
  assert tokenizer_file.find_tokenizer(folders) is None
  (tmp_path / "vocab_chinese.txt").write_text("[PAD]\n")
  rules = tokenization.TextRules(lower_case=False)
  found = tokenizer_file.find_tokenizer(folders, rules)
  assert found.kind == "wordpiece" and found.rules == rules
  (tmp_path / "best" / "30k-clean.model").write_bytes(b"x")
  assert tokenizer_file.find_tokenizer(folders).kind == "sentencepiece"
  # The assets of a SavedModel have it.
  prefix = str(tmp_path / "hub" / "variables" / "variables")
  hub = [str(tmp_path / "hub" / name) for name in ("variables", "assets")]
  assert runs.folders_of(prefix) == [*hub, str(tmp_path / "hub")]
  # A folder of another name is searched alone.
  other = str(tmp_path / "best_of_all")
  assert runs.folders_of(f"{other}/x.ckpt") == [other]
