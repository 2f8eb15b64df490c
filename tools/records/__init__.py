"""Checks, counts and shows pretraining records; extracts prose."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "checked_records",
    "record_check",
    "record_plot",
    "record_survey",
    "record_text",
  ],
)
