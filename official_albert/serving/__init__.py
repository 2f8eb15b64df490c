"""Exports: frozen encoder, signatures, and the folder of a SavedModel.

`hub` has the reusable SavedModels of TF Hub.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "frozen_encoder": [
      "FrozenEncoder",
      "freeze_encoder",
    ],
    "request_checks": [
      "after_checks",
      "check_range",
      "check_rank",
      "check_texts",
      "refuse_unless",
    ],
    "saved_model_folder": [
      "ASSETS",
      "DEFAULT_OPTIONS",
      "DEFAULT_SIGNATURE",
      "EXPORT_FILE",
      "ExportOptions",
      "short_path",
      "write_assets",
      "write_saved_model",
    ],
    "served_module": [
      "ServedEncoder",
      "ServedModule",
      "TEXT_SIGNATURES",
      "Tensors",
      "encode_functions",
      "encoder_outputs",
    ],
  },
)

# Which signatures an export has: of texts, of ids, or both.
SELECTIONS = ("all", "text", "ids")
# The Keras policy of each precision of an export.
EXPORT_PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
