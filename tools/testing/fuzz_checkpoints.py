"""Checkpoints of others: TensorFlow's files, Hugging Face folders, archives."""

from __future__ import annotations

import functools
import gzip
import json
import math
import os
import struct
import tarfile
import tempfile
from typing import Any, Callable, Mapping, Optional, Sequence

import google_crc32c
import numpy as np
from hypothesis import strategies as st

from official_albert import checkpoints, files, modeling, runs
from official_albert.testing import forged_index
from official_albert.tools.testing import fuzz, mutations, toy_runs

_PREFIX = "run/model.ckpt-1"
_INDEX, _DATA = f"{_PREFIX}.index", f"{_PREFIX}.data-00000-of-00001"
_CONFIG = modeling.AlbertConfig(vocab_size=47, **toy_runs.SIZES)
# Sizes, places and numbers of types that break readers.
_ODD_NUMBERS = (
  *(-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 21, 40, 999, 2**20, 2**31 - 1),
  *(2**31, 2**32, 2**40, 2**62, 2**63 - 1),
)
_BITS = dict(dtype=31, shard_id=31, offset=63, size=63, shape=63, crc32c=32)
_NAMES = ("", "\xff", "x" * 5000, *"x ./x /x ../x x/y x/../x .".split())
_KINDS = (*(bytes([kind]) for kind in b"01234567LKSxgXZV\0"),)
_CONTENTS = (b"", b"12 size=9\n", b"1\n" * 200, b"\0" * (1 << 22))
_HEADERS = ("path", "size", "linkpath", "GNU.sparse.map", "GNU.sparse.size")


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
      "dtype": 1,
      "shard_id": 0,
      "offset": len(content),
      "size": len(value),
      "crc32c": files.masked_crc32c(google_crc32c.value(value)),
    }
    content += value
  return content, entries


def _index(entries: Mapping[str, Mapping[str, Any]]) -> bytes:
  """Returns an index with right checksums; numbers are clipped."""
  found = {b"": forged_index.header()}
  for name, entry in sorted(entries.items()):
    fields = {key: _within(x, _BITS[key]) for key, x in entry.items()}
    key = name.encode("utf-8", "surrogateescape")
    found[key] = forged_index.entry(**fields)
  return forged_index.index(found)


def _within(number: Any, bits: int) -> Any:
  if isinstance(number, list):
    return [_within(x, bits) for x in number]
  return max(0 if bits == 32 else -(2**bits), min(number, 2**bits - 1))


def _prepare_forged(folder: str) -> Sequence[bytes]:
  content, entries = _values()
  files.make_folder(os.path.join(folder, "run"))
  _CONFIG.to_json_file(os.path.join(folder, "run", runs.CONFIG_FILE))
  files.write_bytes(os.path.join(folder, _DATA), content)
  return [_index(entries)]


def _forge(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws an index, some fields of which are odd."""
  del valid
  _, entries = _values()
  edit = st.tuples(
    st.sampled_from(sorted(entries)),
    st.sampled_from([*_BITS, "first", "last", "name"]),
    st.sampled_from(_ODD_NUMBERS),
  )

  def apply(edits) -> bytes:
    changed = {name: dict(entry) for name, entry in entries.items()}
    for name, field, number in edits:
      entry = changed.get(name, {})
      if field == "name" or not entry:
        changed[f"{name}\udcff"] = changed.pop(name, entries[name])
      elif field == "shape":
        entry["shape"] = [*entry["shape"], *[1] * (number % 300)]
      elif field in ("first", "last"):
        place = 0 if field == "first" else -1
        shape = entry["shape"]
        entry["shape"] = [*shape[:place], number, *shape[place:]][:4]
        if number % 2:  # With a size that fits.
          entry["size"] = 4 * math.prod(entry["shape"])
      else:
        entry[field] = number
    return _index(changed)

  return st.lists(edit, min_size=1, max_size=3).map(apply)


def _prepare_hf(folder: str) -> None:
  _prepare_run(folder)
  read = checkpoints.read_checkpoint(os.path.join(folder, "run"))
  files.make_folder(os.path.join(folder, "hf"))
  checkpoints.WRITERS["hf"](read, os.path.join(folder, "hf"))


def _damage_safetensors(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws damaged bytes, and damaged headers whose length is right."""
  end = 8 + struct.unpack("<Q", valid[:8])[0]

  def join(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + valid[end:]

  headers = st.one_of(
    mutations.damaged_json(valid[8:end]),
    st.tuples(
      st.sampled_from(sorted(set(json.loads(valid[8:end])) - {"__metadata__"})),
      st.sampled_from(["dtype", "shape", "data_offsets"]),
      st.lists(st.sampled_from([*_ODD_NUMBERS, "F16", "F8_E5M2"]), max_size=3),
    ).map(lambda drawn: _change_header(valid[8:end], *drawn)),
  )
  return st.one_of(mutations.damaged_bytes(valid), headers.map(join))


def _change_header(header: bytes, name: str, key: str, value: Any) -> bytes:
  values = json.loads(header)
  values[name][key] = value[0] if value and key == "dtype" else value
  return json.dumps(values).encode()


def _prepare_archive(folder: str) -> None:
  scratch = os.path.join(folder, "scratch")
  files.make_folder(scratch)
  # What an archive leaves behind is found.
  tempfile.tempdir = scratch
  _prepare_run(folder)
  path = os.path.join(folder, "a.tar.gz")
  with tarfile.open(path, "w:gz", compresslevel=1) as archive:
    archive.add(os.path.join(folder, "run"), "run")


def _damage_archive(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws damaged archives, and archives with odd members beside good ones."""
  inner = gzip.decompress(valid)
  return st.one_of(
    mutations.damaged_bytes(valid),
    mutations.damaged_bytes(inner).map(lambda x: gzip.compress(x, 1)),
    st.lists(_members(), min_size=1, max_size=4).map(
      lambda members: gzip.compress(b"".join(members) + inner, 1)
    ),
  )


def _members() -> st.SearchStrategy[bytes]:
  """Draws a member: a header with a right checksum, and some content."""

  def make(name, kind, size, headers, content, repeats) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    info.pax_headers = headers
    form = tarfile.PAX_FORMAT if headers else tarfile.GNU_FORMAT
    header = info.tobuf(form, "utf-8", "surrogateescape")
    member = header + content + bytes(-len(content) % 512)
    return member * (repeats if len(member) < 10_000 else 1)

  return st.builds(
    make,
    st.sampled_from(_NAMES),
    st.sampled_from(_KINDS),
    st.sampled_from([x for x in _ODD_NUMBERS if abs(x) < 2**62]),
    st.dictionaries(
      st.sampled_from(_HEADERS),
      st.sampled_from([*map(str, _ODD_NUMBERS), "../x", "x\0y", "0,1", "nan"]),
      max_size=2,
    ),
    # By numbers, as hypothesis may show what it draws from.
    st.integers(0, len(_CONTENTS) - 1).map(_CONTENTS.__getitem__),
    st.sampled_from([1, 1, 1, 2, 1500]),
  )


def _target(
  name: str,
  file: str,
  named: str,
  prepare: Callable[[str], Optional[Sequence[bytes]]],
  damage: Callable[[bytes], st.SearchStrategy],
) -> fuzz.Target:
  """Returns a target that reads the checkpoint to which a file belongs."""
  path = file.split("/")[0]

  def read(folder: str, content: Any) -> None:
    with checkpoints.open(os.path.join(folder, path)) as checkpoint:
      for value in checkpoint.tensors.values():
        np.asarray(value)
      if checkpoint.tokenizer:
        checkpoint.tokenizer.open()

  return fuzz.Target(name, prepare, damage, read, file, named)


_bytes, _json = mutations.damaged_bytes, mutations.damaged_json
_tensors, _settings = "hf/model.safetensors", "hf/tokenizer_config.json"
TARGETS = (
  _target("index", _INDEX, _PREFIX, _prepare_run, _bytes),
  _target("data", _DATA, _PREFIX, _prepare_run, _bytes),
  _target("forged_index", _INDEX, _PREFIX, _prepare_forged, _forge),
  _target("safetensors", _tensors, "hf", _prepare_hf, _damage_safetensors),
  _target("config", "hf/config.json", "hf", _prepare_hf, _json),
  _target("tokenizer_config", _settings, "hf", _prepare_hf, _json),
  _target("archive", "a.tar.gz", "", _prepare_archive, _damage_archive),
)
