"""Classifies texts or pairs of texts, or predicts a number for them.

This is for the user's own data; `glue` has the nine tasks of GLUE.
"""

from official_albert.tasks.classification.examples import (
  RECIPE,
  find_labels,
  hold_out,
  make_features,
  of_classes,
  of_numbers,
  read_examples,
)
