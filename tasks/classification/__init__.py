"""The user's own texts, or pairs of them, to classes or to a number.

`glue` has the nine tasks of GLUE.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "examples": [
      "Columns",
      "MAIN_CLASSIFICATION",
      "MAIN_REGRESSION",
      "RECIPES",
      "Recipe",
      "find_labels",
      "of_classes",
      "of_numbers",
      "plain_cell",
      "read_examples",
      "text_cell",
    ],
    "records": [
      "build_records",
    ],
    "tables": [
      "MissingColumnError",
      "Record",
      "read_table",
    ],
    "task": [
      "ClassificationTask",
    ],
  },
)
