"""The folder of an export for phones: model.tflite, and what belongs to it."""

from __future__ import annotations

import os

from official_albert import files, serving
from tools.conversion import export_source

MODEL_FILE = "model.tflite"
_SIGNATURE = "ids"


def write(
  source: export_source.Source,
  export_dir: str,
  quantization: str = "none",
  sequence_length: int = 128,
) -> None:
  """Writes the model, its configuration, tokenizer, labels and export.json.

  Args:
    source: what is exported, in float32, not frozen.
    export_dir: a folder that does not exist or is empty.
    quantization: "none", "float16" or "int8", of the weights.
    sequence_length: of all sequences; 0: any.

  Raises:
    FileExistsError: `export_dir` is not empty.
    ValueError: the model has no such long sequences, or cannot be converted.
    OSError: it cannot be written; nothing is left of it.
  """
  from tools.conversion import tflite_export

  module = source.module
  most = module.config.max_position_embeddings
  if sequence_length > most:
    raise ValueError(
      f"sequence_length {sequence_length} exceeds the model's {most} position "
      "embeddings."
    )
  with files.new_folder(export_dir) as folder:
    tflite_export.export_tflite(
      module.plain_outputs,
      module.plain_inputs,
      os.path.join(folder, MODEL_FILE),
      module.config.vocab_size,
      quantization,
      sequence_length,
    )
    record = {
      "format": "tflite",
      "task": source.task,
      "checkpoint": serving.short_path(source.checkpoint),
      "precision": quantization,
      "sequence_length": sequence_length,
      "signatures": [_SIGNATURE],
      serving.DEFAULT_SIGNATURE: _SIGNATURE,
    }
    serving.write_assets(folder, module, source.tokenizer, record)
