"""Lower learning rates for lower layers, when layers share their variables.

ELECTRA fine-tunes with a learning rate for each layer, smaller by a factor d
from layer to layer downwards. ALBERT has one block for all of its L layers, so
the rates belong to its applications: what application k (from 0) contributes
to the gradient counts d^(L-1-k).

Adam and LAMB do not feel a factor on a whole gradient. So of a variable whose
last application is t, the contributions are weighted d^(t-k) against each
other (`scaled`), and its learning rate is multiplied by d^(L-1-t). The
embeddings, which come before application 0, have d^L, pooler and heads 1.
Without sharing that is a learning rate for each layer; with one block for all,
it is weights of the contributions alone.

Deviation: ELECTRA (finetune/../optimization.py, _get_layer_lrs) gives the
uppermost layer d^2 of the head's rate and the embeddings d^(L+2); here the two
extra steps are left out, so that d = 1 and the head's rate mean what they say.
"""

from __future__ import annotations

import tensorflow as tf


def rate_multipliers(
  model: tf.keras.Model, decay: float
) -> list[tuple[tf.Variable, float]]:
  """The variables of `model` whose learning rate is another, and by how much.

  Args:
    model: has parts with a `layerwise_lr_decay` and a method
      `rate_multipliers`, such as `AlbertModel`, if `decay` is not 1.
    decay: what the settings of the run say.

  Raises:
    ValueError: the model was made with another factor.
  """
  parts = [
    part
    for part in (model, *model.submodules)
    if hasattr(part, "rate_multipliers")
  ]
  known = {part.layerwise_lr_decay for part in parts} or {1.0}
  if known != {decay}:
    raise ValueError(
      f"layerwise_lr_decay is {decay} in the settings, but the model was made "
      f"with {', '.join(map(str, sorted(known)))}: give it to both."
    )
  pairs = [pair for part in parts for pair in part.rate_multipliers()]
  return [(v, factor) for v, factor in pairs if factor != 1.0]
