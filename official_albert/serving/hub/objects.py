"""The interface of TF Hub's reusable SavedModels.

Source: "Reusable SavedModels" of TF Hub's documentation.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Sequence

import tensorflow as tf


# A tf.Module has a property `variables`, which is not saved.
class HubObject(tf.train.Checkpoint):
  """An object to save, load and call, with what `hub.KerasLayer` looks for.

  Attributes:
    variables: the variables of a call.
    trainable_variables: the same.
    regularization_losses: none, as weight decay belongs to the optimizer.
  """

  def __init__(
    self, call: Callable[..., Any], variables: Sequence[tf.Variable] = ()
  ):
    """Initializes the object with a traced `tf.function` and its variables."""
    super().__init__()
    self.__call__ = call
    self.variables = list(variables)
    self.trainable_variables = list(variables)
    self.regularization_losses = []


def save_hub_object(module: HubObject, folder: str) -> None:
  """Writes the SavedModel of an object with a method `signature`.

  Raises:
    OSError: the folder cannot be written.
  """
  try:
    tf.saved_model.save(
      module, folder, signatures={"serving_default": module.signature()}
    )
  except tf.errors.OpError as error:
    raise OSError(f"{folder} could not be written: {error.message}") from error
  # TF Hub's site refuses it, and it is random.
  os.remove(os.path.join(folder, "fingerprint.pb"))
