r"""Runs a SavedModel as TF Serving does: in C++, without Python's TensorFlow.

    python -m tools.benchmarks.c_api_loader --saved_model_dir=EXPORT
    python -m tools.benchmarks.c_api_loader --saved_model_dir=EXPORT \
        --signature=classify \
        --inputs='{"text": ["a fine day", "rain again"]}'

A check before deployment: TF Serving is built on the same loader
(`TF_LoadSessionFromSavedModel`, tag "serve"). Prints the signatures as JSON or,
with --inputs, the outputs; "-" reads the inputs from standard input. Bytes of
an output that are not UTF-8 become "\ufffd".

--op_libraries=none omits the operations of tensorflow_text, like a server that
was not built with them; an export with only the signature ids works without.

Only the shared libraries of the installed TensorFlow are loaded, by ctypes.
Reference: tensorflow/c/c_api.h, tf_tensor.h and tf_tstring.h of TensorFlow
2.15.1.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import json
import os
import sys
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np
from absl import flags

from tools.cli import command_line, path_flags

_SAVED_MODEL_DIR = path_flags.define(
  "saved_model_dir", None, "Folder of the SavedModel."
)
_SIGNATURE = flags.DEFINE_string(
  "signature", "serving_default", "Name of the signature to run."
)
_INPUTS = flags.DEFINE_string(
  "inputs",
  "",
  "JSON object with a list of values for each input; - reads it from standard "
  "input. Without it, the signatures are printed.",
)
_OP_LIBRARIES = path_flags.define_list(
  "op_libraries",
  [],
  "Shared libraries with operations; default: those of tensorflow_text; none "
  "for none.",
)

_TAG = b"serve"
# Not for clients: restores variables.
_INTERNAL = "__saved_model_"
# Numbers of TensorFlow's DataType (types.proto).
_STRING, _BFLOAT16 = 7, 14
_DTYPES = {
  **{1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16},
  **{6: np.int8, 9: np.int64, 10: np.bool_, 17: np.uint16, 19: np.float16},
  **{22: np.uint32, 23: np.uint64},
}
_TSTRING_BYTES = 24
_POINTER = ctypes.c_void_p
# Types of results other than int.
_RESULTS: Mapping[str, Any] = {
  "TF_Version": ctypes.c_char_p,
  "TF_Message": ctypes.c_char_p,
  "TF_TensorByteSize": ctypes.c_size_t,
  "TF_Dim": ctypes.c_int64,
  "TF_StringGetSize": ctypes.c_size_t,
  **dict.fromkeys(
    (
      *("TF_NewStatus", "TF_NewGraph", "TF_NewBuffer", "TF_NewSessionOptions"),
      *("TF_LoadSessionFromSavedModel", "TF_LoadLibrary", "TF_AllocateTensor"),
      *("TF_GraphOperationByName", "TF_TensorData", "TF_StringGetDataPointer"),
    ),
    _POINTER,
  ),
}


class _Buffer(ctypes.Structure):
  """TF_Buffer."""

  _fields_ = [
    ("data", _POINTER),
    ("length", ctypes.c_size_t),
    ("data_deallocator", _POINTER),
  ]


class _Output(ctypes.Structure):
  """TF_Output, a tensor of the graph."""

  _fields_ = [("oper", _POINTER), ("index", ctypes.c_int)]


class TensorInfo(NamedTuple):
  """An input or output of a signature.

  Attributes:
    tensor: name in the graph, for example "serving_default_text:0".
    dtype: number of TensorFlow's DataType.
    shape: -1 for sizes that vary; None if the rank varies.
  """

  tensor: str
  dtype: int
  shape: Optional[tuple[int, ...]]


class Signature(NamedTuple):
  """Inputs and outputs by name."""

  inputs: Mapping[str, TensorInfo]
  outputs: Mapping[str, TensorInfo]


# The fields of meta_graph.proto and tensor_shape.proto that matter here. The
# generated classes cannot be imported without importing TensorFlow. A map is a
# repeated message of key and value.
_META_GRAPH = """
name: "signatures" package: "signatures" syntax: "proto3"
message_type { name: "MetaGraph"
  field { name: "signatures" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".signatures.SignatureEntry" } }
message_type { name: "SignatureEntry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE
    type_name: ".signatures.Signature" } }
message_type { name: "Signature"
  field { name: "inputs" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".signatures.TensorEntry" }
  field { name: "outputs" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".signatures.TensorEntry" } }
message_type { name: "TensorEntry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE
    type_name: ".signatures.Tensor" } }
message_type { name: "Tensor"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "dtype" number: 2 type: TYPE_INT32 }
  field { name: "shape" number: 3 type: TYPE_MESSAGE
    type_name: ".signatures.Shape" } }
message_type { name: "Shape"
  field { name: "dims" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".signatures.Dim" }
  field { name: "unknown_rank" number: 3 type: TYPE_BOOL } }
message_type { name: "Dim" field { name: "size" number: 1 type: TYPE_INT64 } }
"""


@functools.cache
def _meta_graph_class():
  from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
  )

  pool = descriptor_pool.DescriptorPool()
  file = descriptor_pb2.FileDescriptorProto()
  pool.Add(text_format.Parse(_META_GRAPH, file))
  found = pool.FindMessageTypeByName("signatures.MetaGraph")
  return message_factory.GetMessageClass(found)


def read_signatures(meta_graph: bytes) -> dict[str, Signature]:
  """Reads the signatures of a serialized MetaGraphDef."""

  def tensors(entries) -> dict[str, TensorInfo]:
    return {
      entry.key: TensorInfo(
        entry.value.name,
        entry.value.dtype,
        None
        if entry.value.shape.unknown_rank
        else tuple(dim.size for dim in entry.value.shape.dims),
      )
      for entry in entries
    }

  return {
    entry.key: Signature(
      tensors(entry.value.inputs), tensors(entry.value.outputs)
    )
    for entry in _meta_graph_class().FromString(meta_graph).signatures
  }


def dtype_name(number: int) -> str:
  """Returns the name of a DataType, for example "int32"."""
  names = {_STRING: "string", _BFLOAT16: "bfloat16"}
  if number in _DTYPES:
    return np.dtype(_DTYPES[number]).name
  return names.get(number, str(number))


def to_array(name: str, value: Any, dtype: int) -> np.ndarray:
  """Converts the value of an input.

  Args:
    name: of the input, for messages.
    value: an array or nested lists; text or `bytes` for strings.
    dtype: number of TensorFlow's DataType.

  Raises:
    ValueError: the values do not have the dtype, or the lists have no shape.
  """
  if dtype != _STRING and dtype not in _DTYPES:
    raise ValueError(
      f"input {name!r} is {dtype_name(dtype)}, which is not supported here."
    )
  try:
    if dtype == _STRING:
      array = np.array(value, object)
      texts = np.empty(array.size, object)
      texts[:] = [_to_bytes(text) for text in array.ravel()]
      return texts.reshape(array.shape)
    # Without a dtype, NumPy refuses lists of different lengths.
    array = np.array(value)
    if array.size and array.dtype.kind not in "biuf":
      raise TypeError(f"{array.ravel()[0]!r:.30} is not a number")
    cast = array.astype(_DTYPES[dtype])
    # A float may be rounded, an integer may not.
    if cast.dtype.kind != "f" and not np.array_equal(cast, array):
      raise ValueError("a number is out of range")
    return cast
  except (TypeError, ValueError, OverflowError) as error:
    raise ValueError(
      f"input {name!r} must be {dtype_name(dtype)}, in lists of equal length "
      f"({error})."
    ) from error


def _to_bytes(text: Any) -> bytes:
  if isinstance(text, bytes):
    return text
  if isinstance(text, str):
    # JSON may contain half of a surrogate pair.
    return text.encode("utf-8", "replace")
  raise TypeError(f"{text!r:.30} is not text")


def one_sentence(message: str) -> str:
  """Returns TensorFlow's message without the nodes of the graph."""
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


class _Library:
  """The functions of libtensorflow_cc."""

  def __init__(self):
    folder = _package_folder("tensorflow")
    if folder is None:
      raise OSError("TensorFlow is not installed: see requirements.txt.")
    # RTLD_GLOBAL, as libraries of operations need the symbols.
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
      path = os.path.join(folder, name)
      self._functions = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    for name, result in _RESULTS.items():
      getattr(self._functions, name).restype = result

  def call(self, name: str, *arguments):
    """Calls a function; pointers stay pointers."""
    result = getattr(self._functions, name)(*arguments)
    return _POINTER(result) if _RESULTS.get(name) is _POINTER else result

  def checked(self, name: str, *arguments):
    """Calls a function whose last argument is a status.

    Raises:
      ValueError: the status is an error.
    """
    status = self.call("TF_NewStatus")
    try:
      result = self.call(name, *arguments, status)
      if self.call("TF_GetCode", status):
        message = self.call("TF_Message", status).decode("utf-8", "replace")
        raise ValueError(one_sentence(message))
      return result
    finally:
      self.call("TF_DeleteStatus", status)

  def make_tensor(self, array: np.ndarray, dtype: int) -> ctypes.c_void_p:
    """Copies an array (of `bytes` for strings) into a new tensor."""
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    width = _TSTRING_BYTES if dtype == _STRING else array.itemsize
    size = ctypes.c_size_t(array.size * width)
    tensor = self.call("TF_AllocateTensor", dtype, dims, array.ndim, size)
    data = self.call("TF_TensorData", tensor).value
    if dtype != _STRING:
      array = np.ascontiguousarray(array)
      ctypes.memmove(data, array.ctypes.data, array.nbytes)
      return tensor
    for i, text in enumerate(array.ravel()):
      string = _POINTER(data + i * width)
      self.call("TF_StringInit", string)
      self.call("TF_StringCopy", string, text, ctypes.c_size_t(len(text)))
    return tensor

  def delete_tensor(self, tensor: ctypes.c_void_p, own_strings: int) -> None:
    """Deletes a tensor, and first the strings that `make_tensor` allocated."""
    data = self.call("TF_TensorData", tensor).value
    for i in range(own_strings):
      self.call("TF_StringDealloc", _POINTER(data + i * _TSTRING_BYTES))
    self.call("TF_DeleteTensor", tensor)

  def read_tensor(self, tensor: ctypes.c_void_p) -> np.ndarray:
    """Returns a copy of the values; bfloat16 becomes float32.

    Raises:
      ValueError: NumPy has no such dtype.
    """
    dtype = self.call("TF_TensorType", tensor)
    rank = self.call("TF_NumDims", tensor)
    shape = [self.call("TF_Dim", tensor, axis) for axis in range(rank)]
    data = self.call("TF_TensorData", tensor).value
    if dtype == _STRING:
      array = np.empty(int(np.prod(shape, dtype=np.int64)), object)
      for i in range(array.size):
        string = _POINTER(data + i * _TSTRING_BYTES)
        start = self.call("TF_StringGetDataPointer", string)
        size = self.call("TF_StringGetSize", string)
        array[i] = ctypes.string_at(start, size)
      return array.reshape(shape)
    raw = ctypes.string_at(data, self.call("TF_TensorByteSize", tensor))
    if dtype == _BFLOAT16:  # The upper half of a float32.
      wide = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
      return wide.view(np.float32).reshape(shape)
    if dtype not in _DTYPES:
      raise ValueError(f"NumPy has no dtype for TensorFlow's dtype {dtype}.")
    return np.frombuffer(raw, _DTYPES[dtype]).reshape(shape)


def _package_folder(name: str) -> Optional[str]:
  spec = importlib.util.find_spec(name)  # Does not import it.
  return os.path.dirname(spec.origin) if spec and spec.origin else None


class CApiModel:
  """A SavedModel in a session of TensorFlow's C++ runtime.

      with CApiModel("export/1") as model:
        model.run("classify", {"text": ["a fine day"]})["label"]

  Attributes:
    signatures: `Signature`s by name.
  """

  def __init__(
    self, saved_model_dir: str, op_libraries: Optional[Sequence[str]] = None
  ):
    """Loads the model.

    Args:
      saved_model_dir: the folder with saved_model.pb.
      op_libraries: libraries with operations; None: tensorflow_text's.

    Raises:
      OSError: there is no such folder, or no TensorFlow.
      ValueError: TensorFlow cannot load the model or a library.
    """
    self._session = self._graph = None
    if not os.path.exists(os.path.join(saved_model_dir, "saved_model.pb")):
      raise FileNotFoundError(
        f"{saved_model_dir} is not the folder of a SavedModel: it has no "
        "saved_model.pb."
      )
    lib = self._library = _Library()
    if op_libraries is None:
      folder = _package_folder("tensorflow_text")
      op_libraries = sorted(glob.glob(f"{folder}/python/ops/_*.so"))
    for library in op_libraries:
      lib.checked("TF_LoadLibrary", os.fsencode(library))
    self._graph = lib.call("TF_NewGraph")
    options = lib.call("TF_NewSessionOptions")
    meta_graph = lib.call("TF_NewBuffer")
    try:
      self._session = lib.checked(
        "TF_LoadSessionFromSavedModel",
        options,
        None,
        os.fsencode(saved_model_dir),
        (ctypes.c_char_p * 1)(_TAG),
        1,
        self._graph,
        meta_graph,
      )
      buffer = _Buffer.from_address(meta_graph.value)
      signatures = read_signatures(ctypes.string_at(buffer.data, buffer.length))
      self.signatures = {
        name: signature
        for name, signature in signatures.items()
        if not name.startswith(_INTERNAL)
      }
    except BaseException:
      self.close()
      raise
    finally:
      lib.call("TF_DeleteBuffer", meta_graph)
      lib.call("TF_DeleteSessionOptions", options)

  def run(
    self, signature: str, inputs: Mapping[str, Any]
  ) -> dict[str, np.ndarray]:
    """Runs a signature.

    Args:
      signature: its name.
      inputs: arrays or nested lists by name; text or `bytes` for strings.

    Returns:
      The outputs by name; strings are arrays of `bytes` objects.

    Raises:
      ValueError: there is no such signature, or the inputs are wrong.
    """
    if signature not in self.signatures:
      names = ", ".join(sorted(self.signatures)) or "none"
      raise ValueError(
        f"there is no signature {signature!r}; the model has {names}."
      )
    found = self.signatures[signature]
    names = sorted(found.inputs)
    if set(names) != set(inputs):
      raise ValueError(
        f"the signature {signature} takes {', '.join(names)}, not "
        f"{', '.join(sorted(inputs)) or 'nothing'}."
      )
    lib = self._library
    sources = [found.inputs[name] for name in names]
    arrays = [
      to_array(name, inputs[name], source.dtype)
      for name, source in zip(names, sources)
    ]
    owned, results = [], (_POINTER * len(found.outputs))()
    try:
      for source, array in zip(sources, arrays):
        strings = array.size if source.dtype == _STRING else 0
        owned.append((lib.make_tensor(array, source.dtype), strings))
      lib.checked(
        "TF_SessionRun",
        self._session,
        None,
        self._outputs(sources),
        (_POINTER * len(owned))(*(tensor.value for tensor, _ in owned)),
        len(owned),
        self._outputs(list(found.outputs.values())),
        results,
        len(results),
        None,
        0,
        None,
      )
      return {
        name: lib.read_tensor(_POINTER(result))
        for name, result in zip(found.outputs, results)
      }
    finally:
      # Outputs first, because they may share the memory of an input.
      for result in filter(None, results):
        lib.delete_tensor(_POINTER(result), 0)
      for tensor, strings in owned:
        lib.delete_tensor(tensor, strings)

  def _outputs(self, tensors: Sequence[TensorInfo]):
    """Returns an array of TF_Output."""
    outputs = []
    for info in tensors:
      operation, _, index = info.tensor.rpartition(":")
      pointer = self._library.call(
        "TF_GraphOperationByName", self._graph, operation.encode()
      )
      if not pointer.value:
        raise ValueError(f"the graph has no operation {operation!r}.")
      outputs.append(_Output(pointer, int(index)))
    return (_Output * len(outputs))(*outputs)

  def close(self) -> None:
    """Frees the memory of the model."""
    if self._session is not None:
      session, self._session = self._session, None
      self._library.checked("TF_CloseSession", session)
      self._library.checked("TF_DeleteSession", session)
    if self._graph is not None:
      self._library.call("TF_DeleteGraph", self._graph)
      self._graph = None

  def __enter__(self) -> CApiModel:
    return self

  def __exit__(self, *error) -> None:
    self.close()


def describe(model: CApiModel) -> dict[str, Any]:
  """Returns the signatures as JSON values."""
  return {
    name: {
      kind: {
        key: {"dtype": dtype_name(info.dtype), "shape": info.shape}
        for key, info in sorted(tensors.items())
      }
      for kind, tensors in zip(signature._fields, signature)
    }
    for name, signature in sorted(model.signatures.items())
  }


def to_json(array: np.ndarray) -> Any:
  """Returns nested lists; bytes become text."""
  if array.dtype != object:
    return array.tolist()
  texts = [value.decode("utf-8", "replace") for value in array.ravel()]
  return np.array(texts, object).reshape(array.shape).tolist()


def _read_inputs(text: str) -> dict[str, Any]:
  try:
    inputs = json.loads(sys.stdin.read() if text == "-" else text)
  except ValueError as error:
    raise ValueError(f"--inputs is not JSON ({error}).") from error
  if not isinstance(inputs, dict):
    raise ValueError(
      "--inputs must be a JSON object with a list of values for each input."
    )
  return inputs


def main(argv) -> None:
  del argv
  inputs = _read_inputs(_INPUTS.value) if _INPUTS.value else None
  libraries = _OP_LIBRARIES.value or None
  if libraries == ["none"]:
    libraries = []
  with CApiModel(_SAVED_MODEL_DIR.value, libraries) as model:
    if inputs is None:
      result = describe(model)
    else:
      outputs = model.run(_SIGNATURE.value, inputs)
      result = {name: to_json(outputs[name]) for name in sorted(outputs)}
  print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
  flags.mark_flags_as_required(["saved_model_dir"])
  command_line.run(main)
