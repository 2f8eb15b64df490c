"""Predictions for tools.predict: rows in, a model, lines out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["backend", "input", "output"],
)
