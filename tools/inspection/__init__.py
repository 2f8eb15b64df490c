"""Sizes, layers and attention of models, and plots of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__, submodules=["layers", "model_size", "plot"]
)
