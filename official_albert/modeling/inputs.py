"""The inputs of a model: their names, ranks, dtypes and sizes.

Models check their inputs here, once. The layers behind them check nothing.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import tensorflow as tf

INPUTS = ("input_ids", "input_mask", "segment_ids")
# Names of the same inputs in Hugging Face.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def named_inputs(
  features: Mapping[str, tf.Tensor], others: Sequence[str] = ()
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
  """Splits features into the inputs of the encoder and others.

  Args:
    features: `input_ids`, and optionally `input_mask` (or `attention_mask`)
      and `segment_ids` (or `token_type_ids`).
    others: further names that are accepted.

  Returns:
    The tensors by the names in `INPUTS`, and those by the names in `others`.

  Raises:
    ValueError: `features` is not a dict, has no `input_ids`, or has an unknown
      name or both names of one input.
  """
  if not isinstance(features, Mapping):
    raise ValueError(
      f"the model takes a dict with input_ids, not {type(features).__name__}."
    )
  given_names: dict[str, str] = {}
  for given in sorted(features):
    name = _SYNONYMS.get(given, given)
    if name not in (*INPUTS, *others):
      raise ValueError(
        f"unknown input {given!r}: the model takes input_ids, input_mask (or "
        "attention_mask), segment_ids (or token_type_ids)"
        f"{''.join(f', {other}' for other in others)}."
      )
    if name in given_names:
      raise ValueError(
        f"{given_names[name]} and {given} are two names of one input: remove "
        "one of them."
      )
    given_names[name] = given
  if "input_ids" not in given_names:
    raise ValueError(
      "the model needs input_ids, got only: "
      f"{', '.join(sorted(features)) or 'nothing'}."
    )
  inputs = {n: features[given_names[n]] for n in INPUTS if n in given_names}
  return inputs, {n: features[n] for n in given_names if n not in INPUTS}


def check_ids(name: str, tensor: tf.Tensor, axes: str = "B S") -> None:
  """Checks that `tensor` holds integers and has one dimension for each axis.

  Args:
    name: the name of the tensor in messages.
    tensor: any dense tensor.
    axes: letters separated by spaces.

  Raises:
    ValueError: the rank or the dtype is wrong.
  """
  letters = axes.split()
  if tensor.shape.rank not in (None, len(letters)):
    raise ValueError(
      f"{name} must have the shape [{', '.join(letters)}], got "
      f"{tensor.shape.as_list()}."
    )
  if tensor.dtype not in (tf.int32, tf.int64):
    raise ValueError(
      f"{name} must hold integer ids (int32), got {tensor.dtype.name}."
    )


def encoder_inputs(
  inputs: Mapping[str, tf.Tensor], max_position_embeddings: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Checks the inputs of the encoder and fills in the optional ones.

  Args:
    inputs: the first result of `named_inputs`.
    max_position_embeddings: the maximum sequence length.

  Returns:
    input_ids, input_mask (1 if missing) and segment_ids (0 if missing), all
    <int32>[B, S].

  Raises:
    ValueError: a tensor has the wrong rank, dtype or size. Sizes that are
      known only when the graph runs raise tf.errors.InvalidArgumentError.
  """
  ids = tf.convert_to_tensor(inputs["input_ids"])
  check_ids("input_ids", ids)
  ids = _check_length(ids, max_position_embeddings)

  def optional(name: str, default: tf.Tensor) -> tf.Tensor:
    if inputs.get(name) is None:
      return default
    tensor = tf.convert_to_tensor(inputs[name])
    check_ids(name, tensor)
    # TensorFlow would silently broadcast a dimension of size 1.
    if not tensor.shape.is_compatible_with(ids.shape):
      raise ValueError(
        f"{name} has the shape {tensor.shape.as_list()}, but input_ids has "
        f"{ids.shape.as_list()}."
      )
    return tensor

  return (
    ids,
    optional("input_mask", tf.ones_like(ids)),
    optional("segment_ids", tf.zeros_like(ids)),
  )


def _check_length(ids: tf.Tensor, maximum: int) -> tf.Tensor:
  length: Optional[int] = ids.shape[1]
  if length is None:
    check = tf.debugging.assert_less_equal(
      tf.shape(ids)[1],
      maximum,
      "the sequence is longer than max_position_embeddings",
    )
    with tf.control_dependencies([check]):
      return tf.identity(ids)
  if length > maximum:
    raise ValueError(
      f"input_ids has length {length}, but the model has only {maximum} "
      "position embeddings: shorten the sequences or raise "
      "max_position_embeddings."
    )
  return ids
