"""TensorFlow's C API by ctypes, and the signatures of a SavedModel.

Nothing here imports Python's TensorFlow; only the shared libraries of its
package are opened. Tensors are NumPy arrays outside: strings are arrays of
`bytes` objects, bfloat16 comes out as float32.

Importing tensorflow.core.protobuf would import TensorFlow, so `read_signatures`
reads the wire format of a MetaGraphDef. Field numbers are those of
meta_graph.proto and tensor_shape.proto:

    MetaGraphDef.signature_def = 5     map of SignatureDef
    SignatureDef.inputs = 1, outputs = 2     maps of TensorInfo
    TensorInfo.name = 1, dtype = 2, tensor_shape = 3
    TensorShapeProto.dim = 2, unknown_rank = 3; Dim.size = 1

Reference: tensorflow/c/c_api.h, tf_tensor.h and tf_tstring.h of TensorFlow
2.15.1.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Union

import numpy as np

# Numbers of TensorFlow's DataType (types.proto).
STRING, _BFLOAT16 = 7, 14
_DTYPES = {
  1: np.float32,
  2: np.float64,
  3: np.int32,
  4: np.uint8,
  5: np.int16,
  6: np.int8,
  9: np.int64,
  10: np.bool_,
  17: np.uint16,
  19: np.float16,
  22: np.uint32,
  23: np.uint64,
}
_TSTRING_BYTES = 24

_POINTER = ctypes.c_void_p
# Where the default, int, is not what comes back.
_RESULTS: Mapping[str, Any] = {
  "TF_Version": ctypes.c_char_p,
  "TF_NewStatus": _POINTER,
  "TF_Message": ctypes.c_char_p,
  "TF_NewGraph": _POINTER,
  "TF_NewBuffer": _POINTER,
  "TF_NewSessionOptions": _POINTER,
  "TF_LoadSessionFromSavedModel": _POINTER,
  "TF_LoadLibrary": _POINTER,
  "TF_GraphOperationByName": _POINTER,
  "TF_AllocateTensor": _POINTER,
  "TF_TensorData": _POINTER,
  "TF_TensorByteSize": ctypes.c_size_t,
  "TF_Dim": ctypes.c_int64,
  "TF_StringGetDataPointer": _POINTER,
  "TF_StringGetSize": ctypes.c_size_t,
}
# TF_Code of tensorflow/c/tf_status.h.
_CODES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED"}


class GraphError(ValueError):
  """What TensorFlow refused to do.

  Attributes:
    code: of TensorFlow, such as "INVALID_ARGUMENT".
  """

  def __init__(self, code: str, message: str):
    super().__init__(message)
    self.code = code


class Buffer(ctypes.Structure):
  """TF_Buffer: bytes that the library owns."""

  _fields_ = [
    ("data", _POINTER),
    ("length", ctypes.c_size_t),
    ("data_deallocator", _POINTER),
  ]


class Output(ctypes.Structure):
  """TF_Output: a tensor of the graph."""

  _fields_ = [("oper", _POINTER), ("index", ctypes.c_int)]


def dtype_name(number: int) -> str:
  """For example "int32"."""
  if number == STRING:
    return "string"
  if number == _BFLOAT16:
    return "bfloat16"
  return np.dtype(_DTYPES[number]).name if number in _DTYPES else str(number)


def _package_folder(name: str) -> Optional[str]:
  """Where a package lies; it is not imported."""
  spec = importlib.util.find_spec(name)
  return os.path.dirname(spec.origin) if spec and spec.origin else None


def text_op_libraries() -> list[str]:
  """The libraries with tensorflow_text's operations; none if there are none."""
  folder = _package_folder("tensorflow_text")
  return sorted(glob.glob(f"{folder}/python/ops/_*.so")) if folder else []


class Library:
  """The functions of libtensorflow_cc, each call checked."""

  def __init__(self):
    """Opens the libraries of the installed TensorFlow.

    Raises:
      OSError: there are none, or they cannot be opened.
    """
    folder = _package_folder("tensorflow")
    if folder is None:
      raise OSError(
        "no TensorFlow is installed here: its shared libraries are needed, "
        "see requirements.txt."
      )
    # Kernels look each other's symbols up.
    path = os.path.join(folder, "libtensorflow_framework.so.2")
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    path = os.path.join(folder, "libtensorflow_cc.so.2")
    self._functions = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    for name, result in _RESULTS.items():
      getattr(self._functions, name).restype = result
    self.version = self._functions.TF_Version().decode()

  def call(self, name: str, *arguments):
    """Calls a function; pointers come back as such."""
    result = getattr(self._functions, name)(*arguments)
    if _RESULTS.get(name) is _POINTER:
      return _POINTER(result)
    return result

  def checked(self, name: str, *arguments):
    """Calls a function whose last argument is a status.

    Raises:
      GraphError: it did not do what it was asked for.
    """
    status = self.call("TF_NewStatus")
    try:
      result = self.call(name, *arguments, status)
      code = self.call("TF_GetCode", status)
      if code:
        message = self.call("TF_Message", status).decode("utf-8", "replace")
        raise GraphError(_CODES.get(code, str(code)), one_sentence(message))
      return result
    finally:
      self.call("TF_DeleteStatus", status)

  def load_operations(self, path: str) -> None:
    """Adds the operations of a library to the process.

    Raises:
      GraphError: it is no such library, or one for another TensorFlow.
    """
    self.checked("TF_LoadLibrary", os.fsencode(path))

  def make_tensor(self, array: np.ndarray, dtype: int) -> ctypes.c_void_p:
    """A tensor with a copy of the array; `free_tensor` ends it.

    Args:
      array: any shape; of objects of `bytes` if the dtype is STRING.
      dtype: TensorFlow's number of it.
    """
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    width = _TSTRING_BYTES if dtype == STRING else array.itemsize
    size = ctypes.c_size_t(array.size * width)
    tensor = self.call("TF_AllocateTensor", dtype, dims, array.ndim, size)
    data = self.call("TF_TensorData", tensor).value
    if dtype != STRING:
      array = np.ascontiguousarray(array)
      ctypes.memmove(data, array.ctypes.data, array.nbytes)
      return tensor
    for index, text in enumerate(array.ravel()):
      place = _POINTER(data + index * width)
      self.call("TF_StringInit", place)
      self.call("TF_StringCopy", place, text, ctypes.c_size_t(len(text)))
    return tensor

  def free_tensor(self, tensor: ctypes.c_void_p, own_strings: int = 0) -> None:
    """Ends a tensor, and first as many strings that `make_tensor` put there."""
    data = self.call("TF_TensorData", tensor).value
    for index in range(own_strings):
      place = _POINTER(data + index * _TSTRING_BYTES)
      self.call("TF_StringDealloc", place)
    self.call("TF_DeleteTensor", tensor)

  def read_tensor(self, tensor: ctypes.c_void_p) -> np.ndarray:
    """A copy of a tensor's values.

    Raises:
      ValueError: it is of a dtype that NumPy does not have.
    """
    dtype = self.call("TF_TensorType", tensor)
    rank = self.call("TF_NumDims", tensor)
    shape = [self.call("TF_Dim", tensor, axis) for axis in range(rank)]
    data = self.call("TF_TensorData", tensor).value
    if dtype == STRING:
      array = np.empty(int(np.prod(shape, dtype=np.int64)), object)
      for index in range(array.size):
        place = _POINTER(data + index * _TSTRING_BYTES)
        start = self.call("TF_StringGetDataPointer", place)
        size = self.call("TF_StringGetSize", place)
        array[index] = ctypes.string_at(start, size)
      return array.reshape(shape)
    raw = ctypes.string_at(data, self.call("TF_TensorByteSize", tensor))
    if dtype == _BFLOAT16:
      # The upper half of a float32.
      wide = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
      return wide.view(np.float32).reshape(shape)
    if dtype not in _DTYPES:
      raise ValueError(f"no NumPy array has TensorFlow's dtype {dtype}.")
    return np.frombuffer(raw, _DTYPES[dtype]).reshape(shape)


def to_array(name: str, value: Any, dtype: int) -> np.ndarray:
  """What JSON or Python has, as an array of TensorFlow's dtype.

  Args:
    name: of the input, for messages.
    value: an array, or a list of lists; text, or `bytes`, of the dtype STRING.
    dtype: TensorFlow's number of it.

  Raises:
    ValueError: the values are not of the dtype, or the lists have no shape.
  """
  if dtype != STRING and dtype not in _DTYPES:
    raise ValueError(
      f"the input {name!r} is {dtype_name(dtype)}, which cannot be given here."
    )
  try:
    if dtype == STRING:
      array = np.array(value, object)
      encoded = np.empty(array.size, object)
      encoded[:] = [_to_bytes(text) for text in array.ravel()]
      return encoded.reshape(array.shape)
    # Without a dtype, lists of several lengths are refused.
    array = np.array(value)
    if array.size and array.dtype.kind not in "biuf":
      raise TypeError(f"{array.ravel()[0]!r:.30} is no number")
    cast = array.astype(_DTYPES[dtype])
    # A float32 may be rounded, an integer may not.
    if cast.dtype.kind != "f" and not np.array_equal(cast, array):
      raise ValueError("a number does not fit")
    return cast
  except (TypeError, ValueError, OverflowError) as error:
    raise ValueError(
      f"the input {name!r} has to be {dtype_name(dtype)}, in lists of one "
      f"length each ({error})."
    ) from error


def _to_bytes(text: Any) -> bytes:
  if isinstance(text, bytes):
    return text
  if isinstance(text, str):
    # JSON may have half a character, which stands for nothing.
    return text.encode("utf-8", "replace")
  raise TypeError(f"{text!r:.30} is no text")


def one_sentence(message: str) -> str:
  """TensorFlow's message without the nodes of the graph."""
  lines = [line.strip() for line in message.splitlines()]
  if lines and "root error(s) found" in lines[0]:
    # "(0) INVALID_ARGUMENT: what went wrong"
    lines = [lines[1].split(": ", 1)[-1], *lines[2:]]
  kept = []
  for line in lines:
    if line.startswith(("[[", "{{")):
      break
    kept.append(line.split("[[{{")[0])
  return " ".join(" ".join(kept).split()) or message


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
