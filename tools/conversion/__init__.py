"""Checkpoint conversions with their proof, and the sources of exports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "changes",
    "conversion",
    "export_source",
    "export_tflite_folder",
    "hf_outputs",
    "own_copy",
    "proof",
    "random_checkpoint",
    "tflite_export",
  ],
)
