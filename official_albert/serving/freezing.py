"""Functions whose variables have become constants, for exported models."""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from official_albert import modeling
from official_albert.serving import frozen_encoder

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}

Tensors = Mapping[str, tf.Tensor]


def freeze_encoder(model, precision: str):
  """The model with a `FrozenEncoder` as its encoder.

  Args:
    model: an `AlbertModel`, or a model with one as its attribute `albert`,
      which can only predict from then on.
    precision: of products, a key of `DTYPES`. The process must have the policy
      that goes with it, see `distribution.set_precision`.

  Returns:
    A `FrozenEncoder`, or the model that was given; what is frozen already is
    returned as it is.

  Raises:
    ValueError: it is frozen already, in another precision.
  """
  dtype = DTYPES[precision]
  if isinstance(model, modeling.AlbertModel):
    return frozen_encoder.FrozenEncoder(model, dtype)
  if isinstance(model, frozen_encoder.FrozenEncoder):
    if model.dtype != dtype:
      raise ValueError(
        f"the model is frozen in {model.dtype.name} already: make another one "
        f"to have it in {precision}."
      )
    return model
  model.albert = freeze_encoder(model.albert, precision)
  return model


def freeze(
  function: Callable[[dict[str, tf.Tensor]], Tensors],
  inputs: Sequence[tf.TensorSpec],
) -> Callable[[Tensors], dict[str, tf.Tensor]]:
  """Traces a function once, with the present values of all variables.

      run = freeze(
        lambda features: model(features, training=False),
        [tf.TensorSpec([None, None], tf.int32, "input_ids")],
      )

  Whatever calls the result, in however many signatures, shares one copy of the
  constants in the SavedModel.

  Args:
    function: of a dict by the specs' names to a dict.
    inputs: its inputs; each has a name.

  Returns:
    The same function of a dict with these inputs; others are ignored.
  """

  @tf.function(autograph=False)
  def traced(features):
    return dict(function(features))

  concrete = traced.get_concrete_function({spec.name: spec for spec in inputs})
  names = sorted(concrete.structured_outputs)
  shapes = {k: v.shape for k, v in concrete.structured_outputs.items()}
  frozen = convert_to_constants.convert_variables_to_constants_v2(
    concrete, lower_control_flow=False
  )
  order = [tensor.name.split(":")[0] for tensor in frozen.inputs]

  def run(features: Tensors) -> dict[str, tf.Tensor]:
    values = frozen(*(tf.convert_to_tensor(features[name]) for name in order))
    return {
      name: tf.ensure_shape(value, shapes[name])
      for name, value in zip(names, values)
    }

  run.concrete = frozen
  return run
