"""What tools.inspect_model finds, and plots of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "attention_maps",
    "inspected_model",
    "layer_similarity",
    "model_size",
    "plot",
    "sentences",
    "summary",
    "text",
  ],
)
