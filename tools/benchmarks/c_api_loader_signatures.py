"""The signatures of a SavedModel, read off the bytes of its MetaGraphDef.

A process without Python TensorFlow has no classes for TensorFlow's protocol
buffers: whoever imports tensorflow.core.protobuf imports TensorFlow. Of a
MetaGraphDef only the signatures are of interest here, so a reader of the wire
format is all that it takes; field numbers are those of meta_graph.proto and
tensor_shape.proto.

    MetaGraphDef.signature_def = 5     map of SignatureDef
    SignatureDef.inputs = 1, outputs = 2     maps of TensorInfo
    TensorInfo.name = 1, dtype = 2, tensor_shape = 3
    TensorShapeProto.dim = 2, unknown_rank = 3; Dim.size = 1
"""

from __future__ import annotations

from typing import Iterator, Mapping, NamedTuple, Optional, Union

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


class TensorInfo(NamedTuple):
  """An input or output.

  Attributes:
    tensor: its name in the graph, such as "serving_default_text:0".
    dtype: number of TensorFlow's DataType.
    shape: -1 where any size will do; None if even the rank is open.
  """

  tensor: str
  dtype: int
  shape: Optional[tuple[int, ...]]


class Signature(NamedTuple):
  """Inputs and outputs by their names."""

  inputs: Mapping[str, TensorInfo]
  outputs: Mapping[str, TensorInfo]


def read_signatures(
  meta_graph: Union[bytes, memoryview],
) -> dict[str, Signature]:
  """The signatures of a serialized MetaGraphDef.

  Raises:
    ValueError: the bytes are none.
  """
  try:
    found = dict(_entry(value) for value in _all(memoryview(meta_graph), 5))
    return {
      name: Signature(*(_tensors(value, number) for number in (1, 2)))
      for name, value in found.items()
    }
  except (IndexError, TypeError, UnicodeDecodeError) as error:
    raise ValueError("the bytes given are no MetaGraphDef.") from error


def _tensors(signature: memoryview, number: int) -> dict[str, TensorInfo]:
  entries = dict(_entry(value) for value in _all(signature, number))
  return {name: _tensor(info) for name, info in entries.items()}


def _tensor(info: memoryview) -> TensorInfo:
  fields = dict(_fields(info))
  # What is 0 or empty is left out of the bytes.
  name = bytes(fields.get(1, b"")).decode()
  shape = fields.get(3, memoryview(b""))
  sizes: Optional[tuple[int, ...]] = tuple(
    _signed(dict(_fields(dim)).get(1, 0)) for dim in _all(shape, 2)
  )
  if dict(_fields(shape)).get(3, 0):
    sizes = None
  return TensorInfo(name, fields.get(2, 0), sizes)


def _entry(value: memoryview) -> tuple[str, memoryview]:
  """Key and value of a map's entry."""
  fields = dict(_fields(value))
  return bytes(fields.get(1, b"")).decode(), fields.get(2, memoryview(b""))


def _all(data: memoryview, number: int) -> list[memoryview]:
  """The values of a repeated field."""
  return [value for field, value in _fields(data) if field == number]


def _fields(
  data: memoryview,
) -> Iterator[tuple[int, Union[int, memoryview]]]:
  """Field numbers and values of a message; bytes are not copied."""
  place = 0
  while place < len(data):
    tag, place = _varint(data, place)
    kind = tag & 7
    if kind == _VARINT:
      value, place = _varint(data, place)
      yield tag >> 3, value
      continue
    if kind == _BYTES:
      size, place = _varint(data, place)
    elif kind in (_FIXED_32, _FIXED_64):
      size = 4 if kind == _FIXED_32 else 8
    else:
      raise IndexError(f"wire type {kind}")
    if place + size > len(data):
      raise IndexError("cut")
    yield tag >> 3, data[place : place + size]
    place += size


def _varint(data: memoryview, place: int) -> tuple[int, int]:
  """The number at `place`, and where the next one begins."""
  value = shift = 0
  while True:
    byte = data[place]
    value |= (byte & 0x7F) << shift
    place, shift = place + 1, shift + 7
    if byte < 0x80:
      return value, place


def _signed(value: int) -> int:
  """An int64 as it was before it became a varint."""
  return value - (1 << 64) if value >> 63 else value
