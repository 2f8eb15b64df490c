"""The folders, archives and pages of a TF Hub publication."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "handle",
    "page",
    "publication",
    "sources",
  ],
)
