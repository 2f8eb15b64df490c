"""Checks, counts and shows pretraining records."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__, submodules=["record_survey", "record_text"]
)
