"""safetensors files: checked before they are read, written tensor by tensor.

Reading is by the package `safetensors`. Its writer holds a copy of everything
in bytes, which an xxlarge model has no room for; the format is a length, a
JSON header and the values. Format: github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import safetensors

_LENGTH = struct.Struct("<Q")
_MAX_HEADER = 100_000_000
_FLOATS = ("F64", "F32", "F16", "BF16")


class SafetensorsFile:
  """An open file.

  Attributes:
    shapes: by name.
    metadata: strings by name.
  """

  def __init__(self, path: str):
    """Reads the header and compares sizes; no value is read.

    Raises:
      ValueError: the file is damaged or cut short, or holds a dtype that is
        not supported.
    """
    header, self._start = _read_header(path)
    self.metadata = header.pop("__metadata__", None) or {}
    self._dtypes = {name: entry["dtype"] for name, entry in header.items()}
    self.shapes = {
      name: tuple(entry["shape"]) for name, entry in header.items()
    }
    self._begins = {n: e["data_offsets"][0] for n, e in header.items()}
    self._path = path
    try:
      self._file = safetensors.safe_open(path, framework="numpy")
    except Exception as error:  # SafetensorError is no kind of ValueError.
      raise ValueError(
        f"{path} is damaged ({error}): copy it again."
      ) from error

  def get(self, name: str) -> np.ndarray:
    """The value as <float32>, which only F64 loses digits by.

    Raises:
      ValueError: it is not of floating point, or of 8 bits.
    """
    if self._dtypes[name] not in _FLOATS:
      raise ValueError(
        f"{name} in {self._path} is {self._dtypes[name]}: save the model in "
        "float32 first."
      )
    if self._dtypes[name] == "BF16":
      return self._bfloat16(name)
    return np.asarray(self._file.get_tensor(name), np.float32)

  def _bfloat16(self, name: str) -> np.ndarray:
    """The upper halves of float32s, which numpy has no dtype for."""
    halves = np.fromfile(
      self._path,
      "<u2",
      int(np.prod(self.shapes[name], dtype=np.int64)),
      offset=self._start + self._begins[name],
    )
    values = (halves.astype(np.uint32) << 16).view(np.float32)
    return values.reshape(self.shapes[name])

  def dtype(self, name: str) -> str:
    """As the format writes it: F32, BF16, I64."""
    return self._dtypes[name]

  def is_float(self, name: str) -> bool:
    return self._dtypes[name] in _FLOATS


def _read_header(path: str) -> tuple[dict[str, Any], int]:
  """The header, and where the values begin."""
  size = os.path.getsize(path)
  damaged = f"{path} is damaged or was cut short"
  with open(path, "rb") as file:
    start = file.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
      raise ValueError(f"{damaged}: it has {size} bytes.")
    (length,) = _LENGTH.unpack(start)
    if length > min(size - _LENGTH.size, _MAX_HEADER):
      raise ValueError(
        f"{damaged}: its header claims {length:,} bytes, but the file has "
        f"{size:,}."
      )
    try:
      header = json.loads(file.read(length))
      entries = dict(header)
      _check_strings(entries.pop("__metadata__", None) or {})
      end = max(map(_end_of, entries.values()), default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError,
            RecursionError) as error:  # fmt: skip
      raise ValueError(f"{damaged}: its header is not readable.") from error
  expected = _LENGTH.size + length + end
  if expected != size:
    raise ValueError(
      f"{damaged}: its header claims {expected:,} bytes, but the file has "
      f"{size:,}."
    )
  return header, _LENGTH.size + length


def _end_of(entry: Mapping[str, Any]) -> int:
  """Where a tensor's values end; checks the types of all that is read of it."""
  begin_and_end = entry["data_offsets"]
  for numbers in (entry["shape"], begin_and_end):
    # JSON's true is an int as well.
    if not isinstance(numbers, list) or any(
      type(number) is not int or number < 0 for number in numbers
    ):
      raise TypeError("no list of counts")
  if not isinstance(entry["dtype"], str):
    raise TypeError("no name of a dtype")
  return begin_and_end[1]


def _check_strings(metadata: Mapping[str, str]) -> None:
  if not all(isinstance(value, str) for value in metadata.values()):
    raise TypeError("no strings")


def write(
  path: str,
  shapes: Mapping[str, Sequence[int]],
  get: Callable[[str], np.ndarray],
  metadata: Mapping[str, str],
) -> None:
  """Writes float32 tensors, one at a time.

  Args:
    path: the file.
    shapes: by name.
    get: gives the value of a name.
    metadata: strings by name; transformers wants "format": "pt".

  Raises:
    OSError: it cannot be written.
  """
  header: dict[str, Any] = {"__metadata__": dict(metadata)}
  offset = 0
  for name in sorted(shapes):
    end = offset + 4 * int(np.prod(shapes[name], dtype=np.int64))
    header[name] = {
      "dtype": "F32",
      "shape": list(shapes[name]),
      "data_offsets": [offset, end],
    }
    offset = end
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(_LENGTH.pack(len(text)))
    file.write(text)
    for name in sorted(shapes):
      value = np.asarray(get(name), "<f4", order="C")
      if value.shape != tuple(shapes[name]):
        raise ValueError(f"{name} has shape {value.shape}, not {shapes[name]}.")
      file.write(value.data)
