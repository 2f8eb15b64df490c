"""Classifies texts or pairs of texts, or predicts a number for them.

The user's own data; `glue` has the nine tasks of GLUE.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "examples": [
      "Columns",
      "MAIN_CLASSIFICATION",
      "MAIN_REGRESSION",
      "MissingColumnError",
      "RECIPES",
      "Recipe",
      "Record",
      "build_records",
      "find_labels",
      "of_classes",
      "of_numbers",
      "plain_cell",
      "read_examples",
      "read_table",
      "text_cell",
    ],
    "task": ["ClassificationTask", "ServedTextTask"],
  },
)
