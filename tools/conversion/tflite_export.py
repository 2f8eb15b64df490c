"""Exports a model as a TFLite file for phones and small boards.

The inputs are ids, because TFLite has no tokenizer, and all operations are part
of TFLite. "none" keeps weights as float32, "float16" rounds them, and "int8"
rounds the kernels of matrix products to 8 bits; activations are float32.

The file stores shared weights once. The converter would copy a kernel if a
constant factor followed its product, or if only a part of it were used, as with
`logits_only`.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from official_albert import files, machine, serving

SIGNATURE = "ids"
MODEL_FILE = "model.tflite"
# The largest allowed difference of an output, relative to the root mean square
# of the function's output.
TOLERANCES = {"none": 1e-3, "float16": 2e-2, "int8": 0.2}


def write_folder(
  source: serving.Source,
  export_dir: str,
  quantization: str = "none",
  sequence_length: int = 128,
) -> None:
  """Writes model.tflite, configuration, tokenizer, labels and export.json.

  Args:
    source: a float32 model that is not frozen.
    export_dir: a folder that does not exist or is empty.
    quantization: one of `settings.QUANTIZATIONS`.
    sequence_length: S of a batch of one.

  Raises:
    ValueError: the file computes something else; then nothing is written.
  """
  module = source.module
  most = module.config.max_position_embeddings
  if not 2 <= sequence_length <= most:
    raise ValueError(
      f"sequence_length is {sequence_length}, but must be from 2 to {most}, as "
      "many as the model has position embeddings."
    )
  sizes = {"B": 1, "S": sequence_length, "P": sequence_length}
  specs = {
    name: tf.TensorSpec(
      [sizes.get(axis) or int(axis) for axis in axes.split()], tf.int32, name
    )
    for name, axes in module.plain_inputs.items()
  }
  concrete = tf.function(
    lambda **features: dict(module.plain_outputs(features)), autograph=False
  ).get_concrete_function(**specs)
  with machine.hold_stderr():  # The converter is verbose.
    content = _convert(concrete, quantization)
    _compare(content, concrete, specs, module.config.vocab_size, quantization)
  with files.new_folder(export_dir) as folder:
    files.write_bytes(os.path.join(folder, MODEL_FILE), content)
    record = {
      "format": "tflite",
      "precision": quantization,
      "sequence_length": sequence_length,
      "signatures": [SIGNATURE],
      serving.DEFAULT_SIGNATURE: SIGNATURE,
    }
    serving.write_assets(folder, source, record)


def _convert(concrete: Any, quantization: str) -> bytes:
  with tempfile.TemporaryDirectory() as folder:
    root = tf.Module()
    root.variables_to_save = concrete.variables
    # The converter keeps names only when it converts a SavedModel.
    tf.saved_model.save(
      root,
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
      # The converter's errors have no common base class.
      reason = " ".join(str(error).split())
      raise ValueError(
        f"TFLite cannot run the model: {reason:.400}."
      ) from error


def _compare(
  content: bytes,
  concrete: Any,
  specs: Mapping[str, tf.TensorSpec],
  vocab_size: int,
  quantization: str,
) -> None:
  """Raises ValueError if an output differs too much for random ids."""
  run = tf.lite.Interpreter(model_content=content).get_signature_runner(
    SIGNATURE
  )
  rng = np.random.default_rng(0)
  shape = specs["input_ids"].shape
  places = np.arange(shape[-1])
  sums: dict[str, Any] = {}  # Of squares: of errors, and of outputs.
  for _ in range(4):
    ends = rng.integers(2, len(places) + 1, (*shape[:-1], 1))
    mask = places < ends
    features = {
      "input_ids": rng.integers(min(5, vocab_size - 1), vocab_size, shape),
      "input_mask": mask,
      "segment_ids": (places >= ends // 2) & mask,
      "masked_lm_positions": rng.integers(0, len(places), shape),
    }
    inputs = {name: features[name].astype(np.int32) for name in specs}
    expected = concrete(**{k: tf.constant(x) for k, x in inputs.items()})
    for name, value in run(**inputs).items():
      if value.dtype.kind == "f":
        exact = expected[name].numpy()
        squares = np.square(value - exact).sum(), np.square(exact).sum()
        sums[name] = sums.get(name, 0) + np.array(squares, np.float64)
  for name, (error, size) in sums.items():
    difference = np.sqrt(error / max(size, 1e-24))
    if not difference <= TOLERANCES[quantization]:  # NaN must fail too.
      raise ValueError(
        f"{name} of the TFLite file differs by {difference:.3g}, more than "
        f"{TOLERANCES[quantization]:g}: choose another quantization than "
        f"{quantization}."
      )
