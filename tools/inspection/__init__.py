"""What tools.inspect_model finds, and plots of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "attention_maps",
    "curve_plot",
    "inspected_model",
    "layer_similarity",
    "model_memory",
    "model_parts",
    "plot",
    "sentences",
    "summary",
    "text",
  ],
)
