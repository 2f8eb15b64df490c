"""Runs a SavedModel as TF Serving does: in C++, without Python's TensorFlow.

TF Serving uses the same loader (`TF_LoadSessionFromSavedModel`, tag "serve").

Reference: tensorflow/c/c_api.h, tf_tensor.h and tf_tstring.h of TensorFlow
2.15.1, which ctypes calls in the installed shared libraries.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import sys
import types
from typing import Any, Iterator, Mapping

import numpy as np

from official_albert import files

# The values of TensorFlow's DataType (types.proto).
_STRING = 7
_DTYPES = {
  **{1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8},
  **{9: np.int64, 10: np.bool_},
}
_TSTRING_BYTES = 24


class _Pointer(ctypes.c_void_p):
  """A pointer that a function returns; c_void_p itself would become an int."""


class _Buffer(ctypes.Structure):
  """TF_Buffer."""

  _fields_ = [("data", _Pointer), ("length", ctypes.c_size_t)]


class _Output(ctypes.Structure):
  """TF_Output, a tensor of the graph."""

  _fields_ = [("oper", _Pointer), ("index", ctypes.c_int)]


# Types of results other than int.
_RESULTS = {
  "TF_Message": ctypes.c_char_p,
  "TF_TensorByteSize": ctypes.c_size_t,
  "TF_Dim": ctypes.c_int64,
  "TF_TensorElementCount": ctypes.c_int64,
  "TF_StringGetSize": ctypes.c_size_t,
  "TF_NewBuffer": ctypes.POINTER(_Buffer),
  "TF_NewStatus": _Pointer,
  "TF_NewGraph": _Pointer,
  "TF_NewSessionOptions": _Pointer,
  "TF_LoadSessionFromSavedModel": _Pointer,
  "TF_LoadLibrary": _Pointer,
  "TF_AllocateTensor": _Pointer,
  "TF_GraphOperationByName": _Pointer,
  "TF_TensorData": _Pointer,
  "TF_StringGetDataPointer": _Pointer,
}


def _package_folder(name: str) -> str:
  spec = importlib.util.find_spec(name)  # Does not import it.
  return os.path.dirname(spec.origin) if spec and spec.origin else "missing"


@functools.cache
def _tensorflow() -> ctypes.CDLL:
  folder = _package_folder("tensorflow")
  # RTLD_GLOBAL, as libraries of operations need the symbols.
  for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
    library = ctypes.CDLL(os.path.join(folder, name), ctypes.RTLD_GLOBAL)
  for name, result in _RESULTS.items():
    getattr(library, name).restype = result
  return library


@functools.cache
def _meta_graph_class():
  """Imports the generated class without TensorFlow, whose __init__ is large."""
  stub = types.ModuleType("tensorflow")
  stub.__path__ = [_package_folder("tensorflow")]
  is_stub = sys.modules.setdefault("tensorflow", stub) is stub
  try:
    from tensorflow.core.protobuf import meta_graph_pb2
  finally:
    for name in list(sys.modules) if is_stub else ():
      if name.partition(".")[0] == "tensorflow":
        del sys.modules[name]
  return meta_graph_pb2.MetaGraphDef


def _checked(name: str, *arguments: Any) -> Any:
  """Calls a function whose last argument is a status."""
  tf = _tensorflow()
  status = tf.TF_NewStatus()
  try:
    result = getattr(tf, name)(*arguments, status)
    if tf.TF_GetCode(status):
      message = tf.TF_Message(status).decode("utf-8", "replace")
      # Without the nodes of the graph.
      raise ValueError(" ".join(re.split(r"\[\[|\{\{", message)[0].split()))
    return result
  finally:
    tf.TF_DeleteStatus(status)


def _to_array(value: Any, dtype: int) -> np.ndarray:
  """Converts nested lists to a DataType of TensorFlow; strings become bytes."""
  if dtype != _STRING:
    return np.asarray(value, _DTYPES[dtype])
  return np.array(np.frompyfunc(str.encode, 1, 1)(np.array(value, object)))


def _to_tensor(array: np.ndarray, dtype: int) -> _Pointer:
  """Returns a tensor with a copy of an array (of `bytes` for strings)."""
  tf = _tensorflow()
  dims = (ctypes.c_int64 * array.ndim)(*array.shape)
  width = _TSTRING_BYTES if dtype == _STRING else array.itemsize
  size = ctypes.c_size_t(array.size * width)
  tensor = tf.TF_AllocateTensor(dtype, dims, array.ndim, size)
  if dtype == _STRING:
    for string, text in zip(_strings(tensor), array.ravel()):
      tf.TF_StringInit(string)
      tf.TF_StringCopy(string, text, ctypes.c_size_t(len(text)))
  else:
    array = np.ascontiguousarray(array)
    data = tf.TF_TensorData(tensor)
    ctypes.memmove(data, array.ctypes.data, array.nbytes)
  return tensor


def _strings(tensor: _Pointer) -> Iterator[_Pointer]:
  """Yields the addresses of the strings of a tensor."""
  tf = _tensorflow()
  data = tf.TF_TensorData(tensor).value
  for i in range(tf.TF_TensorElementCount(tensor)):
    yield _Pointer(data + i * _TSTRING_BYTES)


def _delete(tensor: _Pointer) -> None:
  """Frees a tensor and its strings; a failed run has null pointers."""
  tf = _tensorflow()
  if not tensor:
    return
  if tf.TF_TensorType(tensor) == _STRING:
    for string in _strings(tensor):
      tf.TF_StringDealloc(string)
  tf.TF_DeleteTensor(tensor)


def _to_numpy(tensor: _Pointer) -> np.ndarray:
  """Returns a copy of the values of a tensor."""
  tf = _tensorflow()
  dtype = tf.TF_TensorType(tensor)
  shape = [tf.TF_Dim(tensor, i) for i in range(tf.TF_NumDims(tensor))]
  if dtype == _STRING:
    array = np.empty(int(np.prod(shape, dtype=np.int64)), object)
    for i, string in enumerate(_strings(tensor)):
      start = tf.TF_StringGetDataPointer(string)
      array[i] = ctypes.string_at(start, tf.TF_StringGetSize(string))
    return array.reshape(shape)
  data = tf.TF_TensorData(tensor)
  raw = ctypes.string_at(data, tf.TF_TensorByteSize(tensor))
  return np.frombuffer(raw, _DTYPES[dtype]).reshape(shape)


class CApiModel:
  """A SavedModel in a session of TensorFlow's C++ runtime.

      CApiModel("export/1").run("classify", {"text": ["a fine day"]})["label"]

  `signatures` has the `SignatureDef`s by name. The memory of a model is freed
  only when the process ends.
  """

  def __init__(self, saved_model_dir: str, text_ops: bool = True):
    """Loads the model, and the operations of tensorflow_text if there are any.

    Without `text_ops`, it is like a server that was built without them.
    """
    tf = _tensorflow()
    folder = _package_folder("tensorflow_text")
    for library in files.glob(f"{folder}/python/ops/_*.so") if text_ops else ():
      _checked("TF_LoadLibrary", os.fsencode(library))
    self._graph, meta_graph = tf.TF_NewGraph(), tf.TF_NewBuffer()
    self._session = _checked(
      "TF_LoadSessionFromSavedModel",
      *(tf.TF_NewSessionOptions(), None, os.fsencode(saved_model_dir)),
      *((ctypes.c_char_p * 1)(b"serve"), 1, self._graph, meta_graph),
    )
    buffer = meta_graph.contents
    serialized = ctypes.string_at(buffer.data, buffer.length)
    self.signatures = {
      name: signature
      for name, signature in sorted(
        _meta_graph_class().FromString(serialized).signature_def.items()
      )
      # Not for clients: restores variables.
      if not name.startswith("__saved_model_")
    }

  def run(
    self, signature: str, inputs: Mapping[str, Any]
  ) -> dict[str, np.ndarray]:
    """Runs a signature.

    Inputs are nested lists or arrays of numbers by name, or lists of texts. In
    outputs, texts are `bytes` objects.

    Raises:
      ValueError: the model refuses the inputs; the message is its own.
    """
    found = self.signatures[signature]
    tensors, results = [], (_Pointer * len(found.outputs))()
    try:
      for name, info in found.inputs.items():
        array = _to_array(inputs[name], info.dtype)
        tensors.append(_to_tensor(array, info.dtype))
      _checked(
        *("TF_SessionRun", self._session, None),
        *(self._outputs(found.inputs), (_Pointer * len(tensors))(*tensors)),
        *(len(tensors), self._outputs(found.outputs), results, len(results)),
        *(None, 0, None),
      )
      return dict(zip(found.outputs, map(_to_numpy, results)))
    finally:
      for tensor in (*tensors, *results):
        _delete(tensor)

  def _outputs(self, tensors: Mapping[str, Any]):
    """Returns an array of TF_Output for TensorInfos by name."""
    outputs = []
    for info in tensors.values():
      operation, _, index = info.name.rpartition(":")
      found = _tensorflow().TF_GraphOperationByName(
        self._graph, operation.encode()
      )
      outputs.append(_Output(found, int(index)))
    return (_Output * len(outputs))(*outputs)
