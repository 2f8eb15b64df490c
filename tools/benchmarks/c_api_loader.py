r"""Runs a SavedModel as TF Serving does: in C++, without Python's TensorFlow.

    python -m tools.benchmarks.c_api_loader --saved_model_dir=EXPORT
    python -m tools.benchmarks.c_api_loader --saved_model_dir=EXPORT \
        --signature=classify \
        --inputs='{"text": ["a fine day", "rain again"]}'

A check before deployment: the loader is TensorFlow's own C++ one
(`TF_LoadSessionFromSavedModel`, tag "serve"), which TF Serving is built on.
What works here needs no Python, and what does not says why. Without --inputs
the signatures are printed, with them the outputs, as JSON; "-" reads the inputs
from standard input. Bytes of an output that are not UTF-8 come out as "\ufffd".

--op_libraries=none does without the operations of tensorflow_text, as a server
that was not built with them would; an export with the signature ids alone has
to work then.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, Mapping, Optional, Sequence

import numpy as np
from absl import flags

from tools.benchmarks import c_api
from tools.cli import command_line, path_flags

_SAVED_MODEL_DIR = path_flags.define(
  "saved_model_dir", None, "Folder of the SavedModel."
)
_SIGNATURE = flags.DEFINE_string(
  "signature", "serving_default", "Which signature is run."
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
  "Shared libraries with operations; by default those of tensorflow_text, none "
  "for none.",
)

_TAG = b"serve"
# Not meant for callers: restores what variables there are.
_INTERNAL = "__saved_model_"


class CApiModel:
  """A SavedModel in a session of TensorFlow's C++ runtime.

      with CApiModel("export/1") as model:
        model.run("classify", {"text": ["a fine day"]})["label"]

  Attributes:
    signatures: `Signature`s by name.
    version: of TensorFlow.
  """

  def __init__(
    self, saved_model_dir: str, op_libraries: Optional[Sequence[str]] = None
  ):
    """Loads it.

    Args:
      saved_model_dir: the folder with saved_model.pb.
      op_libraries: with operations of its graph; None takes tensorflow_text's.

    Raises:
      OSError: there is no such folder, or no TensorFlow.
      GraphError: TensorFlow cannot load it.
    """
    self._session = None
    path = os.path.join(saved_model_dir, "saved_model.pb")
    if not os.path.exists(path):
      raise FileNotFoundError(
        f"{saved_model_dir} is not the folder of a SavedModel: it has no "
        "saved_model.pb."
      )
    lib = self._library = c_api.Library()
    self.version = lib.version
    if op_libraries is None:
      op_libraries = c_api.text_op_libraries()
    for library in op_libraries:
      lib.load_operations(library)
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
      buffer = c_api.Buffer.from_address(meta_graph.value)
      data = (ctypes.c_char * buffer.length).from_address(buffer.data)
      self.signatures = {
        name: signature
        for name, signature in c_api.read_signatures(
          memoryview(data).cast("B")
        ).items()
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
      inputs: an array, or lists, for each of its inputs; text or bytes for
        strings.

    Returns:
      The outputs by name; strings are `bytes` in an array of objects.

    Raises:
      ValueError: there is no such signature, or its inputs are other ones.
      GraphError: a ValueError too; what the graph says to a bad request.
    """
    found = self._signature(signature, inputs)
    lib = self._library
    names = sorted(found.inputs)
    arrays = [
      c_api.to_array(name, inputs[name], found.inputs[name].dtype)
      for name in names
    ]
    owned, results = [], (ctypes.c_void_p * len(found.outputs))()
    try:
      for name, array in zip(names, arrays):
        dtype = found.inputs[name].dtype
        strings = array.size if dtype == c_api.STRING else 0
        owned.append((lib.make_tensor(array, dtype), strings))
      sources = [found.inputs[name] for name in names]
      targets = list(found.outputs.values())
      lib.checked(
        "TF_SessionRun",
        self._session,
        None,
        self._places(sources),
        (ctypes.c_void_p * len(owned))(*(t.value for t, _ in owned)),
        len(owned),
        self._places(targets),
        results,
        len(results),
        None,
        0,
        None,
      )
      return {
        name: lib.read_tensor(ctypes.c_void_p(result))
        for name, result in zip(found.outputs, results)
      }
    finally:
      # Outputs first, because one may be an input's own memory.
      for result in filter(None, results):
        lib.free_tensor(ctypes.c_void_p(result))
      for tensor, strings in owned:
        lib.free_tensor(tensor, strings)

  def close(self) -> None:
    """Frees what the model holds; no run may be under way."""
    lib = self._library
    if self._session is not None:
      session, self._session = self._session, None
      lib.checked("TF_CloseSession", session)
      lib.checked("TF_DeleteSession", session)
    if self._graph is not None:
      lib.call("TF_DeleteGraph", self._graph)
      self._graph = None

  def __enter__(self) -> CApiModel:
    return self

  def __exit__(self, *error) -> None:
    self.close()

  def _signature(self, name: str, inputs: Mapping[str, Any]) -> c_api.Signature:
    if name not in self.signatures:
      raise ValueError(
        f"there is no signature {name!r}; the model has "
        f"{', '.join(sorted(self.signatures)) or 'none'}."
      )
    found = self.signatures[name]
    if set(found.inputs) != set(inputs):
      raise ValueError(
        f"the signature {name} takes {', '.join(sorted(found.inputs))}, not "
        f"{', '.join(sorted(inputs)) or 'nothing'}."
      )
    return found

  def _places(self, tensors: Sequence[c_api.TensorInfo]):
    """TF_Outputs of tensors named "operation:index"."""
    places = []
    for info in tensors:
      operation, _, index = info.tensor.rpartition(":")
      pointer = self._library.call(
        "TF_GraphOperationByName", self._graph, operation.encode()
      )
      if not pointer.value:
        raise ValueError(f"the graph has no operation {operation!r}.")
      places.append(c_api.Output(pointer, int(index)))
    return (c_api.Output * len(places))(*places)


def describe(model: CApiModel) -> dict[str, Any]:
  """The signatures as JSON values: of each tensor dtype and shape."""
  return {
    name: {
      kind: {
        key: {"dtype": c_api.dtype_name(info.dtype), "shape": info.shape}
        for key, info in sorted(tensors.items())
      }
      for kind, tensors in zip(signature._fields, signature)
    }
    for name, signature in sorted(model.signatures.items())
  }


def to_json(array: np.ndarray) -> Any:
  """Nested lists; bytes become text."""
  if array.dtype != object:
    return array.tolist()
  texts = [value.decode("utf-8", "replace") for value in array.ravel()]
  return np.array(texts, object).reshape(array.shape).tolist()


def _read_inputs(text: str) -> dict[str, Any]:
  try:
    inputs = json.loads(sys.stdin.read() if text == "-" else text)
  except ValueError as error:
    raise ValueError(f"--inputs is no JSON ({error}).") from error
  if not isinstance(inputs, dict):
    raise ValueError(
      "--inputs has to be a JSON object, a list of values for each input."
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
