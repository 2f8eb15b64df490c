"""Fuzzes readers of TensorFlow checkpoints, Hugging Face folders, archives."""

from __future__ import annotations

import functools
import json
import math
import os
import struct
import tarfile
from typing import Any, Callable

import h5py
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import strategies as st

from official_albert import checkpoints, files, runs
from official_albert.testing import forged_index
from official_albert.tools.testing import fuzz, toy_runs

_PREFIX = "run/model.ckpt-1"
_INDEX, _DATA = f"{_PREFIX}.index", f"{_PREFIX}.data-00000-of-00001"
_CONFIG = toy_runs.config(47)
_INT32, _INT64 = (st.integers(-(2**x), 2**x - 1) for x in (31, 63))
# Fields of an entry of a TensorFlow index.
_FIELDS = {
  "dtype": st.integers(0, 99),
  "shard_id": _INT32,
  "offset": _INT64,
  "size": _INT64,
  "shape": st.lists(st.one_of(_INT64, st.integers(0, 99)), max_size=4)
  | st.integers(5, 300).map(lambda count: [1] * count),
  "crc32c": st.integers(0, 2**32 - 1),
}


def _prepare_run(folder: str) -> None:
  toy_runs.write_pretrained(os.path.join(folder, "run"))


@functools.cache
def _values() -> tuple[bytes, dict[str, dict[str, Any]]]:
  """Returns values of google-research/albert, and their entries by name."""
  content, entries = b"", {}
  for row in checkpoints.rows(_CONFIG, "pretraining"):
    value = np.full(row.shape_in(_CONFIG), 0.5, np.float32).tobytes()
    entries[row.tf1] = {
      "shape": list(row.shape_in(_CONFIG)),
      "offset": len(content),
      "size": len(value),
      "crc32c": files.masked_crc32c(value),
    }
    content += value
  return content, entries


def _index(entries: dict[str, dict[str, Any]]) -> bytes:
  """Returns an index with right checksums."""
  found = {b"": forged_index.header()}
  for name, fields in sorted(entries.items()):
    key = name.encode("utf-8", "surrogateescape")
    found[key] = forged_index.entry(**fields)
  return forged_index.index(found)


def _prepare_forged(folder: str) -> None:
  content, entries = _values()
  files.make_folder(os.path.join(folder, "run"))
  _CONFIG.to_json_file(os.path.join(folder, "run", runs.CONFIG_FILE))
  files.write_bytes(os.path.join(folder, _DATA), content)
  files.write_bytes(os.path.join(folder, _INDEX), _index(entries))


@st.composite
def _forged(draw, valid: bytes) -> bytes:
  """Draws an index, some fields of which are odd."""
  entries = {name: dict(entry) for name, entry in _values()[1].items()}
  for _ in range(draw(st.integers(1, 3))):
    name = draw(st.sampled_from(sorted(entries)))
    field = draw(st.sampled_from([*_FIELDS, "name"]))
    if field == "name":
      entries[f"{name}\udcff"] = entries.pop(name)
      continue
    entries[name][field] = draw(_FIELDS[field])
    if field == "shape" and draw(st.booleans()):
      size = 4 * math.prod(entries[name]["shape"])  # One that fits.
      entries[name]["size"] = min(max(size, -(2**63)), 2**63 - 1)
  return _index(entries)


def _prepare_hf(folder: str) -> None:
  _prepare_run(folder)
  read = checkpoints.read_checkpoint(os.path.join(folder, "run"))
  files.make_folder(os.path.join(folder, "hf"))
  checkpoints.WRITERS["hf"](read, os.path.join(folder, "hf"))


@st.composite
def _damaged_safetensors(draw, valid: bytes) -> bytes:
  """Draws damaged bytes, and damaged headers whose length is right."""
  if draw(st.booleans()):
    return draw(fuzz.damaged_bytes(valid))
  end = 8 + struct.unpack("<Q", valid[:8])[0]
  header = json.loads(valid[8:end])
  if draw(st.booleans()):
    key = draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    value = st.lists(_INT64, max_size=3)
    if key == "dtype":
      value = st.sampled_from(["F16", "F8_E5M2", "x"])
    header[draw(st.sampled_from(sorted(header)))][key] = draw(value)
  content = draw(fuzz.damaged_json(json.dumps(header).encode()))
  return struct.pack("<Q", len(content)) + content + valid[end:]


def _prepare_h5(folder: str) -> None:
  _prepare_hf(folder)
  path = os.path.join(folder, "hf/model.safetensors")
  with h5py.File(os.path.join(folder, "hf/tf_model.h5"), "w") as file:
    for name, value in safetensors.numpy.load_file(path).items():
      file[name.replace(".", "/")] = value
  files.remove(path)


def _prepare_archive(folder: str) -> None:
  _prepare_run(folder)
  path = os.path.join(folder, "a.tar.gz")
  with tarfile.open(path, "w:gz", compresslevel=1) as archive:
    archive.add(os.path.join(folder, "run"), "run")


def _target(
  file: str,
  named: str,
  prepare: Callable[[str], None],
  damaged: Callable[[bytes], st.SearchStrategy],
) -> fuzz.Target:
  """Returns a target that reads the checkpoint to which a file belongs.

  Each refusal has `named` in its message.
  """

  def read(folder: str) -> None:
    path = os.path.join(folder, file.split("/")[0])
    with checkpoints.open(path) as checkpoint:
      for value in checkpoint.tensors.values():
        np.asarray(value)
      if checkpoint.tokenizer:
        checkpoint.tokenizer.open()

  return fuzz.Target(file, prepare, damaged, read, named)


_bytes, _json = fuzz.damaged_bytes, fuzz.damaged_json
_settings, _fast = "hf/tokenizer_config.json", "hf/tokenizer.json"
_TARGETS = {
  "index": _target(_INDEX, _PREFIX, _prepare_run, _bytes),
  "data": _target(_DATA, _PREFIX, _prepare_run, _bytes),
  "forged_index": _target(_INDEX, _PREFIX, _prepare_forged, _forged),
  "safetensors": _target(
    "hf/model.safetensors", "hf", _prepare_hf, _damaged_safetensors
  ),
  "config": _target("hf/config.json", "hf", _prepare_hf, _json),
  "tokenizer_config": _target(_settings, "hf", _prepare_hf, _json),
  "tokenizer_json": _target(_fast, "hf", _prepare_hf, _json),
  "tf_model": _target("hf/tf_model.h5", "hf", _prepare_h5, _bytes),
  "archive": _target("a.tar.gz", "", _prepare_archive, fuzz.zipped(_bytes)),
}


@pytest.mark.parametrize("name", _TARGETS)
def test_target(name, tmp_path):
  fuzz.check(_TARGETS[name], str(tmp_path))
