"""Conversion of checkpoints, and of models into what is served."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "conversion",
    "export_source",
    "hf_outputs",
    "proof",
    "tflite_export",
  ],
)
