"""Exports: frozen encoder, signatures, and the folder of a SavedModel.

`hub` has the reusable SavedModels of TF Hub.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "freezing": [
      "freeze_encoder",
    ],
    "frozen_encoder": [
      "FrozenEncoder",
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
    "served_encoder": [
      "ServedEncoder",
      "TEXT_SIGNATURES",
      "encode_functions",
      "encoder_outputs",
    ],
    "served_module": [
      "ServedModule",
      "Tensors",
    ],
  },
)

# Which signatures an export has: of texts, of ids, or both.
SELECTIONS = ("all", "text", "ids")
# The Keras policy of each precision of an export.
EXPORT_PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
