"""A model as a TFLite file, for phones and small boards.

    made = export_tflite(
      lambda features: {"logits": model(features, training=False)["logits"]},
      {name: "B S" for name in ("input_ids", "input_mask", "segment_ids")},
      "model.tflite", config.vocab_size, "int8", sequence_length=128)

Ids go in, since TFLite has no tokenizer; the signature is called `ids`, and its
inputs and outputs as here. All operations are TFLite's own, so an app needs no
part of TensorFlow. Of the weights, "none" keeps float32, "float16" rounds them,
and "int8" rounds the kernels of the products to 8 bits; what flows between them
stays float32 in each case.

The weights that ALBERT's layers share are in the file once. What would make
more of them: a constant factor behind a product, which the converter multiplies
into another copy of its kernel, and a kernel that is used in parts as well, as
with `logits_only`. Each file is run by the interpreter beside the function on
random ids, and refused where it says something else.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from typing import Callable, Mapping, Optional

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils
from tensorflow.python.framework import convert_to_constants

from official_albert import distribution, files

SIGNATURE = "ids"
# How far outputs may be off, as a share of the root mean square of what the
# function says. What is over these is broken.
TOLERANCES = {"none": 1e-3, "float16": 2e-2, "int8": 0.2}
QUANTIZATIONS = tuple(TOLERANCES)
# Rows that are compared, of different lengths.
_CHECKED_ROWS = 4
_FLEXIBLE_LENGTHS = (7, 32)


@dataclasses.dataclass(frozen=True)
class TfliteExport:
  """What was written.

  Attributes:
    path: of the file.
    bytes: its size.
    differences: of each output of a float dtype the root mean square of the
      difference from the function, as a share of that of the function's own.
    agreement: the share of rows with the same highest value in `logits` or
      `probabilities`; None if there are none.
  """

  path: str
  bytes: int
  differences: Mapping[str, float]
  agreement: Optional[float]


def check_quantization(name: str) -> None:
  """Refuses what `export_tflite` has no name for.

  Raises:
    ValueError: it is none of `QUANTIZATIONS`.
  """
  if name not in QUANTIZATIONS:
    raise ValueError(
      f"quantization is {name!r}, but has to be one of "
      f"{', '.join(QUANTIZATIONS)}."
    )


def export_tflite(
  function: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
  inputs: Mapping[str, str],
  path: str,
  vocab_size: int,
  quantization: str = "none",
  sequence_length: int = 0,
  batch_size: int = 1,
) -> TfliteExport:
  """Converts a function of ids, and compares what the file says.

  Args:
    function: from features <int32> to outputs, in plain operations: of a model
      in float32 with training=False, not of one that was frozen for servers.
    inputs: names and axes of the features, such as "B S" or "B 4 S"; B is the
      batch, S the sequence, any other letter has the size of S.
    path: of the file, which is whole afterwards or not there.
    vocab_size: V.
    quantization: one of `QUANTIZATIONS`.
    sequence_length: S, which makes the fastest program; 0 leaves B and S to
      `resize_tensor_input`.
    batch_size: B of a program with a fixed length.

  Raises:
    OSError: the file cannot be written.
    ValueError: a setting is of no use, the function cannot be expressed in
      TFLite's operations, or the file says something else.
  """
  check_quantization(quantization)
  if sequence_length < 0 or batch_size < 1:
    raise ValueError(
      f"sequence_length is {sequence_length} and batch_size {batch_size}: the "
      "first must not be negative, the second at least 1."
    )
  rows = batch_size if sequence_length else None
  specs = {
    name: _spec(name, axes, rows, sequence_length or None)
    for name, axes in inputs.items()
  }
  concrete = _frozen(function, specs)
  with (
    distribution.hold_stderr()
  ):  # The converter lists what it has not converted.
    content = _convert(concrete, quantization)
    differences, agreement = _compare(
      concrete, specs, content, sequence_length, vocab_size
    )
  _check(differences, quantization)
  os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
  files.write_bytes(path, content)
  return TfliteExport(path, len(content), differences, agreement)


def operations(content: bytes) -> list[str]:
  """The names of a TFLite file's operations, sorted; own ones as written."""
  model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
  names = {
    value: name
    for name, value in vars(schema.BuiltinOperator).items()
    if isinstance(value, int)
  }
  return sorted(
    code.customCode.decode()
    if code.customCode
    else names[max(code.builtinCode, code.deprecatedBuiltinCode)]
    for code in model.operatorCodes
  )


def _spec(
  name: str, axes: str, rows: Optional[int], length: Optional[int]
) -> tf.TensorSpec:
  sizes = [
    rows if axis == "B" else int(axis) if axis.isdigit() else length
    for axis in axes.split()
  ]
  return tf.TensorSpec(sizes, tf.int32, name)


def _frozen(function, specs: Mapping[str, tf.TensorSpec]):
  """The function with constants for variables; dict in, dict out."""
  concrete = tf.function(
    lambda **features: dict(function(features)), autograph=False
  ).get_concrete_function(**specs)
  names = sorted(concrete.structured_outputs)
  frozen = convert_to_constants.convert_variables_to_constants_v2(concrete)
  order = [tensor.name.split(":")[0] for tensor in frozen.inputs]

  def run(**features):
    return dict(zip(names, frozen(*(features[name] for name in order))))

  return tf.function(run, autograph=False).get_concrete_function(**specs)


def _convert(concrete, quantization: str) -> bytes:
  """The TFLite file of a function."""
  with tempfile.TemporaryDirectory() as folder:
    # Only of a SavedModel does the converter keep names.
    tf.saved_model.save(
      tf.Module(),
      folder,
      signatures={SIGNATURE: concrete},
      options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    converter = tf.lite.TFLiteConverter.from_saved_model(
      folder, signature_keys=[SIGNATURE]
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization != "none":
      converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
      converter.target_spec.supported_types = [tf.float16]
    try:
      return converter.convert()
    except Exception as error:
      # The converter's own errors have no common base class.
      reason = " ".join(str(error).split())
      named = re.search("(?:TF Select|Custom) ops: (.*?) Details:", reason)
      raise ValueError(
        "TFLite has not all operations of the model: "
        f"{named[1] if named else reason[:300]}."
      ) from error


def _compare(
  concrete,
  specs: Mapping[str, tf.TensorSpec],
  content: bytes,
  length: int,
  vocab_size: int,
) -> tuple[dict[str, float], Optional[float]]:
  """Differences of outputs, and agreement on the highest value."""
  run = tf.lite.Interpreter(model_content=content).get_signature_runner(
    SIGNATURE
  )
  rng = np.random.default_rng(0)
  pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
  rows = next(iter(specs.values())).shape[0]
  calls = -(-_CHECKED_ROWS // (rows or _CHECKED_ROWS))
  for size in [length] * calls if length else _FLEXIBLE_LENGTHS:
    inputs = _random_inputs(specs, rows or _CHECKED_ROWS, size, vocab_size, rng)
    expected = concrete(**{k: tf.constant(x) for k, x in inputs.items()})
    for name, value in run(**inputs).items():
      if value.dtype.kind == "f":
        pairs.setdefault(name, []).append((value, expected[name].numpy()))
  differences, hits = {}, []
  for name, values in pairs.items():
    said, wanted = (
      np.concatenate([np.ravel(x).astype(np.float64) for x in side])
      for side in zip(*values)
    )
    off, scale = (np.sqrt(np.mean(x**2)) for x in (said - wanted, wanted))
    differences[name] = float(off / max(scale, 1e-12))
    if name.endswith("logits") or name == "probabilities":
      hits += [np.ravel(x.argmax(-1) == y.argmax(-1)) for x, y in values]
  return differences, float(np.concatenate(hits).mean()) if hits else None


def _random_inputs(
  specs: Mapping[str, tf.TensorSpec],
  rows: int,
  length: int,
  vocab_size: int,
  rng: np.random.Generator,
) -> dict[str, np.ndarray]:
  """Ids of rows with other lengths, the first one full."""
  middle = specs["input_ids"].shape[1:-1]
  shape = (rows, *middle, length)
  ends = rng.integers(2, length + 1, (*shape[:-1], 1))
  ends.reshape(-1)[0] = length
  mask = np.arange(length) < ends
  segments = np.arange(length) >= ends // 2
  values = {
    # Past the special pieces.
    "input_ids": rng.integers(min(5, vocab_size - 1), vocab_size, shape) * mask,
    "input_mask": mask,
    "segment_ids": segments & mask,
    "masked_lm_positions": rng.integers(0, length, shape),
  }
  unknown = set(specs) - set(values)
  if unknown:
    raise ValueError(f"nothing is known of the input {min(unknown)!r}.")
  return {name: values[name].astype(np.int32) for name in specs}


def _check(differences: Mapping[str, float], quantization: str) -> None:
  for name, difference in differences.items():
    # So written that what is no number fails too.
    if not difference <= TOLERANCES[quantization]:
      raise ValueError(
        f"the TFLite file is off by {difference:.3g} of {name}, more than "
        f"{TOLERANCES[quantization]:g}: choose another quantization than "
        f"{quantization}."
      )
