"""ALBERT in TensorFlow 2: the model and what trains, loads and reads it.

`AlbertConfig` needs the standard library only; `AlbertModel` loads TensorFlow
when it is first asked for, so that tokenizing and data tools start at once.
Where TensorFlow is loaded already, `AlbertModel` is too: Keras reads files only
of classes that are registered.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.modules.get("tensorflow"):
  from official_albert.modeling import AlbertConfig, AlbertModel

__all__ = ["AlbertConfig", "AlbertModel"]

# Keeps TensorFlow's start-up notices off the terminal, unless the user has
# chosen a level. Level 3, because the pip wheel reports at level "error" that
# three CUDA libraries are registered twice; failures that matter are raised as
# exceptions in any case.
if "tensorflow" not in sys.modules:
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  # Flushing a file in a bucket uploads what is new, not the whole file again.
  os.environ.setdefault("GCS_APPEND_MODE", "compose")
  # Each open reader allocates a block and fills it with zeros: 64 MiB and 36 ms
  # of CPU time with TensorFlow's default. Training opens a few dozen shards.
  os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "8")


def __getattr__(name: str):
  if name in __all__:
    from official_albert import modeling

    return getattr(modeling, name)
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
