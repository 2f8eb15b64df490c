"""Predictions for tools.predict: rows in, backends, rows out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "ids",
    "input",
    "output",
    "pretraining",
    "program",
    "questions",
    "run",
    "saved_model",
    "stream",
  ],
)
