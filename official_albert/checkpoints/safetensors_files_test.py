"""Tests of safetensors files, whole and not."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import safetensors.numpy

from official_albert.checkpoints import safetensors_files

_TENSORS = {
  "b": np.arange(6, dtype=np.float32).reshape(2, 3),
  "a": np.array(0.5, np.float32),
  "none": np.zeros([0, 4], np.float32),
}


def _write(path):
  safetensors_files.write(
    str(path),
    {name: value.shape for name, value in _TENSORS.items()},
    _TENSORS.__getitem__,
    {"format": "pt"},
  )
  return path.read_bytes()


def test_the_package_reads_what_is_written(tmp_path):
  path = tmp_path / "x.safetensors"
  _write(path)
  read = safetensors.numpy.load_file(str(path))
  assert set(read) == set(_TENSORS)
  for name, value in _TENSORS.items():
    np.testing.assert_array_equal(read[name], value)
  file = safetensors_files.SafetensorsFile(str(path))
  assert file.shapes == {"a": (), "b": (2, 3), "none": (0, 4)}
  assert file.metadata == {"format": "pt"}
  np.testing.assert_array_equal(file.get("b"), _TENSORS["b"])
  # transformers maps the values as they lie, so they begin at a multiple of 8.
  assert struct.unpack("<Q", path.read_bytes()[:8])[0] % 8 == 0


def test_other_dtypes(tmp_path):
  path = str(tmp_path / "x")
  safetensors.numpy.save_file(
    {
      "half": np.array([1.5], np.float16),
      "ids": np.array([3], np.int64),
      "double": np.array([1 / 3]),
    },
    path,
  )
  file = safetensors_files.SafetensorsFile(path)
  assert file.get("half").dtype == np.float32 and file.get("half") == 1.5
  assert file.is_float("half") and not file.is_float("ids")
  assert file.get("double") == np.float32(1 / 3)
  assert [file.dtype(n) for n in ("half", "ids")] == ["F16", "I64"]
  with pytest.raises(ValueError, match="ids in .* is I64: save the model in"):
    file.get("ids")


def test_bfloat16_is_read_exactly(tmp_path):
  """By the format's own text; its package for numpy does not write it."""
  expected = np.array([[1.0, -2.5, 3.1415927], [np.inf, 1e-40, 0.0]], "<f4")
  halves = (expected.view("<u4") >> 16).astype("<u2")
  header = {
    "before": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    "x": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
  }
  path = tmp_path / "x"
  path.write_bytes(
    _with_header(json.dumps(header).encode()) + bytes(4) + halves.tobytes()
  )
  value = safetensors_files.SafetensorsFile(str(path)).get("x")
  np.testing.assert_array_equal(
    value.view("<u4"), expected.view("<u4") & 0xFFFF0000
  )
  assert value[0, 1] == -2.5 and value[0, 2] == 3.140625


@pytest.mark.parametrize("length", [0, 7, 40, -1])
def test_a_file_that_was_cut_short(length, tmp_path):
  path = tmp_path / "x"
  path.write_bytes(_write(path)[:length])
  with pytest.raises(ValueError, match="damaged or was cut short"):
    safetensors_files.SafetensorsFile(str(path))


def _with_header(header: bytes, data: bytes = b"", claimed=None) -> bytes:
  return struct.pack("<Q", claimed or len(header)) + header + data


@pytest.mark.parametrize(
  "content, message",
  [
    (_with_header(b"{}", claimed=2**60), "claims 1,152,921,504,606,846,976"),
    (_with_header(b"[1, 2]"), "its header is not readable"),
    (_with_header(b"[" * 100_000), "its header is not readable"),
    (_with_header(b'{"a": {"dtype": "F32"}}'), "its header is not readable"),
    (
      _with_header(
        json.dumps(
          {"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}
        ).encode(),
        b"only this",
      ),
      "its header claims",
    ),
    (
      # The package itself compares the shape with the offsets.
      _with_header(
        json.dumps(
          {"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}
        ).encode(),
        b"four",
      ),
      "is damaged",
    ),
  ],
  ids=["length", "list", "deep", "entry", "short", "shape"],
)
def test_a_header_that_lies(content, message, tmp_path):
  (tmp_path / "x").write_bytes(content)
  with pytest.raises(ValueError, match=message):
    safetensors_files.SafetensorsFile(str(tmp_path / "x"))


_WHOLE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
  "header",
  [
    {"a": {k: v for k, v in _WHOLE.items() if k != "dtype"}},
    {"a": {k: v for k, v in _WHOLE.items() if k != "shape"}},
    {"a": {**_WHOLE, "dtype": ["F32"]}},
    {"a": {**_WHOLE, "shape": 1}},
    {"a": {**_WHOLE, "shape": ["1"]}},
    {"a": {**_WHOLE, "shape": [True]}},
    {"a": {**_WHOLE, "shape": [-1]}},
    {"a": {**_WHOLE, "data_offsets": [4]}},
    {"a": {**_WHOLE, "data_offsets": [0, "4"]}},
    {"a": {**_WHOLE, "data_offsets": {"1": 4}}},
    {"a": [1, 2]},
    {"a": None},
    {"a": _WHOLE, "__metadata__": ["pt"]},
    {"a": _WHOLE, "__metadata__": {"global_step": 3}},
  ],
  ids=str,
)
def test_an_entry_of_the_wrong_form(header, tmp_path):
  (tmp_path / "x").write_bytes(
    _with_header(json.dumps(header).encode(), b"four")
  )
  with pytest.raises(ValueError, match="header is not readable") as caught:
    safetensors_files.SafetensorsFile(str(tmp_path / "x"))
  assert "\n" not in str(caught.value)


def test_a_value_of_another_shape_is_not_written(tmp_path):
  with pytest.raises(ValueError, match="a has shape"):
    safetensors_files.write(
      str(tmp_path / "x"), {"a": (3,)}, lambda _: np.zeros([2]), {}
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
