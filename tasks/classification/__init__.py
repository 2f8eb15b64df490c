"""Classifies texts or pairs of texts, or predicts a number for them.

This is for the user's own data; `glue` has the nine tasks of GLUE.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "examples": [
      "CONSTANT_ERROR",
      "RECIPE",
      "find_labels",
      "hold_out",
      "make_features",
      "of_classes",
      "of_numbers",
      "read_examples",
    ],
    "task": ["ClassificationTask"],
  },
)
