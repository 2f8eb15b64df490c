"""ALBERT in TensorFlow 2: the model, and how to train, load and use it.

`AlbertConfig` needs only the standard library. `AlbertModel` loads TensorFlow
on first use, so programs that only tokenize or read data start quickly.

Keras imports the classes of a `.keras` file itself. For its SavedModels and
`.h5` files they must be registered, which this does if TensorFlow is imported
before it, and when one of the names below is first used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

__all__ = [
  "AdamW",
  "AlbertConfig",
  "AlbertForSequenceClassification",
  "AlbertForTokenClassification",
  "AlbertModel",
  "LAMB",
  "LoadedModel",
  "TextClassifier",
  "load",
]
# The module of each public name.
_HOMES = {
  "AdamW": "official_albert.training",
  "AlbertConfig": "official_albert.config",
  "AlbertForSequenceClassification": "official_albert.modeling",
  "AlbertForTokenClassification": "official_albert.modeling",
  "AlbertModel": "official_albert.modeling",
  "LAMB": "official_albert.training",
  "TextClassifier": "official_albert.text_classifier",
  "LoadedModel": "official_albert.inference",
  "load": "official_albert.inference",
}

# The modules whose classes files of Keras can hold; they import all others.
_REGISTERING = (
  "tasks.pretraining.model",
  "tasks.race.model",
  "tasks.squad.model",
  "text_classifier",
  "training.optimization",
)

__version__ = "0.1.0"


def _use_keras_2() -> None:
  """Makes `tf.keras` Keras 2: the one place that knows the lane.

  TensorFlow 2.15 comes with Keras 2. From 2.16 on, it comes with Keras 3, and
  `tf.keras` is Keras 2 (the package tf_keras) if this variable is set before
  `tf.keras` is first used.
  """
  if "tensorflow" not in sys.modules and not util.find_spec("tensorflow"):
    return  # Some programs run in the environments of other projects.
  # Reads the version without importing Keras. This takes 0.1 ms; with
  # importlib.metadata, it would take 25 ms.
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
  from official_albert.config import AlbertConfig
  from official_albert.inference import LoadedModel, load
  from official_albert.modeling import (
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
  )
  from official_albert.text_classifier import TextClassifier
  from official_albert.training import LAMB, AdamW


def _register() -> None:
  for name in _REGISTERING:
    import_module(f"{__name__}.{name}")


if "tensorflow" in sys.modules:
  _register()


def __dir__() -> list[str]:
  return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
  if name in _HOMES:
    value = getattr(import_module(_HOMES[name]), name)
    if name not in ("AlbertConfig", "LoadedModel", "load"):
      _register()
    globals()[name] = value  # So that this runs once.
    return value
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
