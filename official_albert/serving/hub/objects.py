"""What TF Hub calls a reusable SavedModel: a callable that knows its variables.

`hub.KerasLayer` looks for `__call__`, `variables`, `trainable_variables` and
`regularization_losses` on what it loads. A tf.Module has its own idea of
`variables`, which is not saved; hence tf.train.Checkpoint, of which only the
attributes count here.

Source: "Reusable SavedModels" of TF Hub's documentation.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Sequence

import tensorflow as tf


class HubObject(tf.train.Checkpoint):
  """Something that can be saved, loaded and called.

  Attributes:
    variables: all that a call may use.
    trainable_variables: the same; nothing of a transformer is frozen.
    regularization_losses: none. Weight decay belongs to the optimizer.
  """

  def __init__(
    self, call: Callable[..., Any], variables: Sequence[tf.Variable] = ()
  ):
    """Composes the object.

    Args:
      call: a `tf.function` that has been traced.
      variables: those that it uses.
    """
    super().__init__()
    self.__call__ = call
    self.variables = list(variables)
    self.trainable_variables = list(variables)
    self.regularization_losses = []


def save_hub_object(module: HubObject, folder: str) -> None:
  """Writes a SavedModel of the files that TF Hub takes.

  Args:
    module: has a method `signature`, for servers.
    folder: where to.

  Raises:
    OSError: it cannot be written.
  """
  try:
    tf.saved_model.save(
      module, folder, signatures={"serving_default": module.signature()}
    )
  except tf.errors.OpError as error:
    raise OSError(f"{folder} could not be written: {error.message}") from error
  # Random, no loader needs it, and TF Hub's site refuses it.
  os.remove(os.path.join(folder, "fingerprint.pb"))
