"""Predictions, for tools.predict and in Python: texts in, answers out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["backend", "input", "output"],
  submod_attrs={"loaded_model": ["LoadedModel", "load", "open_model"]},
)
