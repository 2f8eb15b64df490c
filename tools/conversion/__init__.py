"""Conversion of checkpoints, and of models into what is served."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["export_source", "hf_outputs", "proof", "tflite_export"],
  submod_attrs={
    "conversion": [
      "convert",
      "is_foreign",
      "own_copy",
      "report_text",
      "write_random",
    ],
  },
)
