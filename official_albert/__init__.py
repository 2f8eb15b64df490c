"""ALBERT in TensorFlow 2: the model and what trains, loads and reads it.

`AlbertConfig` needs the standard library only; `AlbertModel` loads TensorFlow
when it is first asked for, so that tokenizing and data tools start at once.
Where TensorFlow is loaded already, `AlbertModel` is too: Keras reads files only
of classes that are registered.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

__all__ = [
  "AdamW",
  "AlbertConfig",
  "AlbertForSequenceClassification",
  "AlbertModel",
  "LAMB",
  "LoadedModel",
  "TextClassifier",
  "load",
]
# The modules that have the public names.
_HOMES = {
  "AdamW": "official_albert.training",
  "AlbertConfig": "official_albert.modeling",
  "AlbertForSequenceClassification": "official_albert.modeling",
  "AlbertModel": "official_albert.modeling",
  "LAMB": "official_albert.training",
  "TextClassifier": "official_albert.text_classifier",
  # The one exception to the rule that this package imports no tools. In a wheel
  # they are in this package: setup.py changes the names.
  "LoadedModel": "tools.prediction",
  "load": "tools.prediction",
}

__version__ = "0.1.0"

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
  # TensorFlow's own default on x86 CPUs is to use oneDNN with AVX-512 VNNI or
  # later only. With AVX2, it makes a step of albert_base_v2 1.2 times as fast.
  if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def _use_keras_2() -> None:
  """Makes `tf.keras` Keras 2: the one place that knows the lane.

  TensorFlow 2.15 comes with Keras 2. From 2.16 on, it comes with Keras 3, and
  `tf.keras` is Keras 2 (the package tf_keras) if this variable is set before
  `tf.keras` is first used.
  """
  # Does not import it. Importing importlib.metadata takes 25 ms, this 0.1 ms.
  keras = util.find_spec("keras")
  if keras and keras.origin:
    with open(keras.origin, encoding="utf-8") as file:
      if '\n__version__ = "2.' in file.read():
        return
  if not util.find_spec("tf_keras"):
    raise ModuleNotFoundError(
      "official_albert needs Keras 2 as tf.keras, but tf_keras is not "
      "installed: install the release with TensorFlow's version number."
    )
  os.environ["TF_USE_LEGACY_KERAS"] = "1"
  tf_keras = getattr(sys.modules.get("tensorflow"), "keras", None)
  if getattr(tf_keras, "__version__", "2").startswith("3"):
    raise ImportError(
      "official_albert needs Keras 2 as tf.keras, but tf.keras is Keras 3 in "
      "this process already: import official_albert before the first use of "
      "tf.keras, or set the environment variable TF_USE_LEGACY_KERAS=1."
    )


_use_keras_2()

if TYPE_CHECKING:
  from official_albert.modeling import (
    AlbertConfig,
    AlbertForSequenceClassification,
    AlbertModel,
  )
  from official_albert.text_classifier import TextClassifier
  from official_albert.training import LAMB, AdamW
  from tools.prediction.loaded_model import LoadedModel, load
elif sys.modules.get("tensorflow"):
  # Keras reads files only of classes that are registered.
  for _name in ("AlbertModel", "TextClassifier", "AdamW"):
    getattr(import_module(_HOMES[_name]), _name)


def __dir__() -> list[str]:
  return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
  if name in _HOMES:
    return getattr(import_module(_HOMES[name]), name)
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
