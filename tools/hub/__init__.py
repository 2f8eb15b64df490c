"""Publishes an encoder and its preprocessor as modules of TF Hub."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__, submodules=["metadata", "publication", "sources"]
)
