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
from typing import Any

import tensorflow as tf

from official_albert import files, machine, serving
from official_albert.tools.conversion import export_check

SIGNATURE = "ids"
MODEL_FILE = "model.tflite"


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
  concrete = export_check.concrete_function(module, 1, sequence_length)
  with machine.hold_stderr():  # The converter is verbose.
    content = _convert(concrete, quantization)
    run = tf.lite.Interpreter(model_content=content).get_signature_runner(
      SIGNATURE
    )
    export_check.compare(run, concrete, module.config, quantization)
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
