"""The inputs of models: names, shapes and ranges; and what takes them.

Models check their inputs here, once. The layers behind them check nothing.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official_albert import config as config_lib

INPUTS = ("input_ids", "input_mask", "segment_ids")
# Hugging Face's names of the same inputs.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def check_ids(name: str, tensor: tf.Tensor, axes: str = "B S") -> None:
  """Checks that a tensor holds integers and has one dimension for each axis."""
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


def check_ranges(
  inputs: Mapping[str, Any], config: config_lib.AlbertConfig
) -> None:
  """Refuses ids and segments that the model has no embeddings for.

  A CPU would fail in TensorFlow's words, a GPU would take zeros. Graphs are not
  checked so: their values come from a tokenizer or from checked requests.
  """
  if not tf.executing_eagerly():
    return
  for name, setting in (
    ("input_ids", "vocab_size"),
    ("segment_ids", "type_vocab_size"),
  ):
    limit, values = getattr(config, setting), inputs.get(name)
    if values is None or not np.size(values):
      continue
    lowest, highest = np.min(values), np.max(values)
    if lowest < 0 or highest >= limit:
      raise ValueError(
        f"{name} must be from 0 to {limit - 1}, as the model has {setting} "
        f"{limit}, but the lowest is {lowest} and the highest {highest}."
      )


def with_prefix_masks(
  dataset: tf.data.Dataset, attention: str
) -> tf.data.Dataset:
  """Returns batches whose `input_mask` <int32>[..., S] is 1 before it is 0.

  Only the attention "fused" needs that; for others, this is the dataset. Any
  other mask raises tf.errors.InvalidArgumentError when it is read.
  """
  if attention != "fused":
    return dataset

  def check(batch):
    mask = batch["input_mask"]
    rises = tf.reduce_any(mask[..., 1:] > mask[..., :-1])
    message = (
      "an input_mask has a token after padding, which attention 'fused' cannot "
      "take: use --attention=compiled."
    )
    with tf.control_dependencies([tf.debugging.Assert(~rises, [message])]):
      return {**batch, "input_mask": tf.identity(mask)}

  return dataset.map(check)


def encoder_inputs(
  inputs: Mapping[str, tf.Tensor],
  config: config_lib.AlbertConfig,
  training: Any = None,
) -> list[tf.Tensor]:
  """Returns checked ids, mask (default 1) and segments (default 0), [B, S]."""
  tensors = {
    n: tf.convert_to_tensor(x) for n, x in inputs.items() if x is not None
  }
  ids = tensors["input_ids"]
  longest = config.max_position_embeddings
  for name, tensor in tensors.items():
    check_ids(name, tensor)
    # TensorFlow would silently broadcast a dimension of size 1.
    if not tensor.shape.is_compatible_with(ids.shape):
      raise ValueError(
        f"{name} has the shape {tensor.shape.as_list()}, but input_ids has "
        f"{ids.shape.as_list()}."
      )
  if ids.shape[1] is None:
    # Unlike assert_less_equal, it does not wait for a GPU.
    length = tf.shape(ids)[1]
    problem = "the sequence is longer than max_position_embeddings"
    check = tf.debugging.Assert(length <= longest, [problem, length])
    with tf.control_dependencies([check]):
      ids = tf.identity(ids)
  elif ids.shape[1] > longest:
    raise ValueError(
      f"input_ids has length {ids.shape[1]}, but the model has only {longest} "
      "position embeddings: shorten the sequences or raise "
      "max_position_embeddings."
    )
  check_ranges(tensors, config)
  mask = tensors.get("input_mask", tf.ones_like(ids))
  segments = tensors.get("segment_ids", tf.zeros_like(ids))
  is_training = training is not None and training is not False
  if not (is_training or tf.executing_eagerly()):
    # In a graph, a CPU refuses ids without an embedding, because it looks them
    # up. Segments are multiplied instead, so they are looked up here. Training
    # takes no further operation.
    known = tf.range(config.type_vocab_size, dtype=segments.dtype)
    segments = tf.gather(known, segments)
  return [ids, mask, segments]


class FeatureModel(tf.keras.Model):
  """Base class of all models: built from an `AlbertConfig`, called with a dict.

  Subclasses create all variables in their constructor, so weights can be
  loaded, counted and given to an optimizer before the first batch. They give
  `dtype_policy` to all layers. As in Keras it is the argument `dtype`, by
  default the global policy; files keep it.

  Attributes:
    config: the `AlbertConfig` of the encoder.
    other_features: names that a call accepts besides `INPUTS`: further inputs,
      and the labels of the records.
  """

  other_features: Sequence[str] = ()

  def __init__(self, config: config_lib.AlbertConfig, **kwargs: Any):
    """Subclasses must call this before they create layers."""
    # Keras must not cast ids to the compute dtype.
    super().__init__(autocast=False, **kwargs)
    self.config = config

  def _create_variables(self, *others: str) -> None:
    """Calls the model once, with `input_ids` and the other inputs it needs."""
    with tf.init_scope():
      one = tf.zeros([1, 1], tf.int32)
      self(dict.fromkeys(("input_ids", *others), one))

  def named_inputs(
    self, features: Mapping[str, tf.Tensor]
  ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Splits features into those named in `INPUTS` and `other_features`.

    Raises:
      ValueError: `features` is not a dict, lacks `input_ids`, has an unknown
        name, or has both names of one input.
    """
    if not isinstance(features, Mapping):
      raise ValueError(
        "the model takes a dict, such as model({'input_ids': ids}), not "
        f"{type(features).__name__}."
      )
    given_names: dict[str, str] = {}
    for given in sorted(features):
      name = _SYNONYMS.get(given, given)
      if name not in (*INPUTS, *self.other_features):
        raise ValueError(
          f"unknown input {given!r}: the model takes input_ids, input_mask (or "
          "attention_mask), segment_ids (or token_type_ids)"
          f"{''.join(f', {other}' for other in self.other_features)}."
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

  def fit(self, *args: Any, **kwargs: Any) -> Any:
    """Trains as Keras does, on arrays of ids in range."""
    self._check_arrays(*args, **kwargs)
    return super().fit(*args, **kwargs)

  def evaluate(self, *args: Any, **kwargs: Any) -> Any:
    """Evaluates as Keras does, on arrays of ids in range."""
    self._check_arrays(*args, **kwargs)
    return super().evaluate(*args, **kwargs)

  def predict(self, *args: Any, **kwargs: Any) -> Any:
    """Predicts as Keras does, on arrays of ids in range."""
    self._check_arrays(*args, **kwargs)
    return super().predict(*args, **kwargs)

  def _check_arrays(self, x: Any = None, *unused: Any, **others: Any) -> None:
    if isinstance(x, Mapping):
      check_ranges(self.named_inputs(x)[0], self.config)

  def build_from_config(self, config: Mapping[str, Any]) -> None:
    """Does nothing, because the constructor has created all variables.

    Keras would call the model with floats instead of ids.
    """

  def get_config(self) -> dict[str, Any]:
    return {
      "config": self.config.to_dict(),
      "name": self.name,
      "trainable": self.trainable,
      "dtype": self.dtype_policy.name,
    }

  @classmethod
  def from_config(
    cls, config: Mapping[str, Any], custom_objects: Any = None
  ) -> FeatureModel:
    values = dict(config)
    values["config"] = config_lib.AlbertConfig.from_dict(values["config"])
    trainable = values.pop("trainable", True)
    model = cls(**values)
    if not trainable:
      model.trainable = False
    return model
