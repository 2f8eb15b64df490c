"""Converts checkpoints, and loads models to export them."""

import lazy_loader

# How a TFLite file stores weights.
QUANTIZATIONS = ("none", "float16", "int8")

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["export_source", "hf_outputs", "tflite_export"],
  submod_attrs={
    "conversion": [
      "convert",
      "largest_difference",
      "own_copy",
      "report_text",
      "write_random",
    ]
  },
)
