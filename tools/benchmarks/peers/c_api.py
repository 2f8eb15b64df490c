"""An export with --signatures=ids in TensorFlow's C library, from Python.

The library is that of the tensorflow package, whose Python is not imported. A
server in C or C++ makes the same calls; TF Serving loads exports in this way,
too. The API: tensorflow/c/c_api.h.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
from typing import Mapping

import numpy as np

from official_albert.tools.benchmarks.peers import protocol

_INT32 = 3  # TF_DataType
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int


class _Port(ctypes.Structure):
  """An input or output of an operation: TF_Input, TF_Output."""

  _fields_ = [("operation", _POINTER), ("index", _INT)]


_PORTS, _TENSORS = ctypes.POINTER(_Port), ctypes.POINTER(_POINTER)
_SHAPE = ctypes.POINTER(ctypes.c_int64)
# The type of the result, and those of the arguments.
_FUNCTIONS = {
  "Version": (ctypes.c_char_p,),
  "NewStatus": (_POINTER,),
  "GetCode": (_INT, _POINTER),
  "Message": (ctypes.c_char_p, _POINTER),
  "NewGraph": (_POINTER,),
  "NewSessionOptions": (_POINTER,),
  "SetConfig": (None, _POINTER, ctypes.c_char_p, ctypes.c_size_t, _POINTER),
  "LoadSessionFromSavedModel": (
    *(_POINTER, _POINTER, _POINTER, ctypes.c_char_p),
    *(ctypes.POINTER(ctypes.c_char_p), _INT, _POINTER, _POINTER, _POINTER),
  ),
  "GraphOperationByName": (_POINTER, _POINTER, ctypes.c_char_p),
  "OperationOutputConsumers": (_INT, _Port, _PORTS, _INT),
  "AllocateTensor": (_POINTER, _INT, _SHAPE, _INT, ctypes.c_size_t),
  "DeleteTensor": (None, _POINTER),
  "TensorData": (_POINTER, _POINTER),
  "NumDims": (_INT, _POINTER),
  "Dim": (ctypes.c_int64, _POINTER, _INT),
  "SessionRun": (
    *(None, _POINTER, _POINTER, _PORTS, _TENSORS, _INT),
    *(_PORTS, _TENSORS, _INT, _POINTER, _INT, _POINTER, _POINTER),
  ),
}


class Model:
  """The signature `ids` of an export."""

  def __init__(self, folder: str, threads: int):
    """Loads it; ValueError says what the library refuses, also in a call."""
    spec = importlib.util.find_spec("tensorflow")  # Does not import it.
    if not spec or not spec.origin:
      raise ImportError("No module named 'tensorflow'")
    package = pathlib.Path(spec.origin).parent
    framework = str(package / "libtensorflow_framework.so.2")
    ctypes.CDLL(framework, ctypes.RTLD_GLOBAL)
    self._library = ctypes.CDLL(str(package / "libtensorflow_cc.so.2"))
    for name, (result, *arguments) in _FUNCTIONS.items():
      function = getattr(self._library, f"TF_{name}")
      function.restype, function.argtypes = result, arguments
    self._status = self._library.TF_NewStatus()
    self.version = self._library.TF_Version().decode()
    graph = self._library.TF_NewGraph()
    options = self._library.TF_NewSessionOptions()
    # A ConfigProto: intra_op_parallelism_threads is its field 2.
    config = bytes([2 << 3, threads])
    self._call("SetConfig", options, config, len(config))
    tags = (ctypes.c_char_p * 1)(b"serve")
    self._session = self._call(
      *("LoadSessionFromSavedModel", options, None, os.fsencode(folder)),
      *(tags, 1, graph, None),
    )
    # Inputs are named by signature and input. What reads them is the function
    # of the signature, whose outputs are sorted by name.
    find = self._library.TF_GraphOperationByName
    self._inputs = {
      name: _Port(find(graph, f"ids_{name}".encode()), 0)
      for name in ("input_ids", "input_mask", "segment_ids")
    }
    if not all(port.operation for port in self._inputs.values()):
      raise ValueError(f"{folder} has no signature ids.")
    consumer = _Port()
    self._library.TF_OperationOutputConsumers(
      self._inputs["input_ids"], ctypes.byref(consumer), 1
    )
    self._output = _Port(consumer.operation, 0)

  def _call(self, name: str, *arguments):
    """Calls a function that reports a status as its last argument."""
    result = getattr(self._library, f"TF_{name}")(*arguments, self._status)
    if self._library.TF_GetCode(self._status):
      raise ValueError(self._library.TF_Message(self._status).decode())
    return result

  def __call__(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the first output, <float32>[...], of <int32>[B, S] features."""
    library, count = self._library, len(self._inputs)
    ports = (_Port * count)(*self._inputs.values())
    tensors, outputs = (_POINTER * count)(), (_POINTER * 1)()
    try:
      for i, name in enumerate(self._inputs):
        value = np.ascontiguousarray(features[name], np.int32)
        shape = (ctypes.c_int64 * value.ndim)(*value.shape)
        tensors[i] = library.TF_AllocateTensor(
          _INT32, shape, value.ndim, value.nbytes
        )
        data = library.TF_TensorData(tensors[i])
        ctypes.memmove(data, value.ctypes.data, value.nbytes)
      self._call(
        *("SessionRun", self._session, None, ports, tensors, count),
        *(ctypes.byref(self._output), outputs, 1, None, 0, None),
      )
      rank = library.TF_NumDims(outputs[0])
      result = np.empty(
        [library.TF_Dim(outputs[0], i) for i in range(rank)], np.float32
      )
      data = library.TF_TensorData(outputs[0])
      ctypes.memmove(result.ctypes.data, data, result.nbytes)
      return result
    finally:
      for tensor in filter(None, [*tensors, *outputs]):
        library.TF_DeleteTensor(tensor)


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the export; the variant is its precision."""
  path = f"{workload.models_dir}/exports_{workload.variant}"
  model = Model(path, workload.threads)
  about = f"SavedModel, {workload.variant}; C API of TensorFlow {model.version}"
  return model, lambda: {"about": about}


if __name__ == "__main__":
  protocol.serve_model(load)
