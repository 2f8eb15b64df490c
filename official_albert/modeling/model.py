"""AlbertModel: embedding -> encoder -> pooler; a dict in, a dict out.

Reference: google-research/albert modeling.py (AlbertModel).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints
from official_albert.modeling import config as config_lib
from official_albert.modeling import dropout as dropout_lib
from official_albert.modeling import (
  factorized_embedding,
  shapes,
  shared_transformer_encoder,
  transformer_block,
)

INPUTS = ("input_ids", "input_mask", "segment_ids")
# What Hugging Face calls the same inputs.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def named_inputs(
  features: Mapping[str, tf.Tensor], others: Sequence[str] = ()
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
  """Divides features into the encoder's inputs and others; refuses the rest.

  Args:
    features: `input_ids`, and optionally `input_mask` (or `attention_mask`)
      and `segment_ids` (or `token_type_ids`).
    others: further names that are accepted.

  Returns:
    The tensors by the names in `INPUTS`, and those by the names in `others`.

  Raises:
    ValueError: `features` is no dict, lacks `input_ids`, or has an unknown
      name or both names of one input.
  """
  if not isinstance(features, Mapping):
    raise ValueError(
      f"the model takes a dict with input_ids, not {type(features).__name__}."
    )
  given_as: dict[str, str] = {}
  for given in sorted(features):
    name = _SYNONYMS.get(given, given)
    if name not in (*INPUTS, *others):
      raise ValueError(
        f"unknown input {given!r}: the model takes input_ids, input_mask (or "
        "attention_mask), segment_ids (or token_type_ids)"
        f"{''.join(f', {other}' for other in others)}."
      )
    if name in given_as:
      raise ValueError(
        f"{given_as[name]} and {given} are two names of one input: give one of "
        "them."
      )
    given_as[name] = given
  if "input_ids" not in given_as:
    raise ValueError(
      "the model needs input_ids, got only: "
      f"{', '.join(sorted(features)) or 'nothing'}."
    )
  inputs = {n: features[given] for n, given in given_as.items() if n in INPUTS}
  return inputs, {n: features[n] for n in given_as if n not in INPUTS}


class FeatureModel(tf.keras.Model):
  """What all models of this package are to Keras: made from an `AlbertConfig`.

  Every variable exists once the constructor returns. A model has the precision
  of the global policy under which it was made, and keeps it when it is saved
  and loaded under another one.

  Attributes:
    config: the `AlbertConfig`.
    other_features: names that a call accepts besides `INPUTS`: further inputs,
      and the labels that stand beside them in records.
  """

  other_features: Sequence[str] = ()

  def __init__(self, config: config_lib.AlbertConfig, **kwargs):
    """Subclasses make their layers after this.

    Args:
      config: the encoder.
      **kwargs: of `tf.keras.Model`.

    Raises:
      ValueError: `dtype` is given and differs from the global policy.
    """
    # Ids must never be cast to a float compute dtype on the way in.
    super().__init__(autocast=False, **kwargs)
    self.config = config
    policy = tf.keras.mixed_precision.global_policy().name
    if self.dtype_policy.name != policy:
      raise ValueError(
        f"dtype {self.dtype_policy.name} differs from the global policy "
        f"{policy}, which the layers of the model take: call "
        "tf.keras.mixed_precision.set_global_policy before making the model."
      )

  def named_inputs(
    self, features: Mapping[str, tf.Tensor]
  ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """See the function of this name."""
    return named_inputs(features, self.other_features)

  def build_from_config(self, config: Mapping[str, Any]) -> None:
    """Does nothing: the constructor has made all variables.

    Keras would call the model with floats for its ids.
    """

  def get_config(self) -> dict[str, Any]:
    return {
      "config": self.config.to_dict(),
      "name": self.name,
      "trainable": self.trainable,
      "dtype": self.dtype_policy.name,
    }

  @classmethod
  def from_config(cls, config, custom_objects=None):
    values = dict(config)
    values["config"] = config_lib.AlbertConfig.from_dict(values["config"])
    trainable = values.pop("trainable", True)
    precision = tf.keras.mixed_precision
    policy = precision.global_policy()
    precision.set_global_policy(values.pop("dtype", policy))
    try:
      model = cls(**values)
    finally:
      precision.set_global_policy(policy)
    if not trainable:
      model.trainable = False
    return model


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertModel(FeatureModel):
  """The pretrained part that every task builds on.

      model = AlbertModel(AlbertConfig.from_preset("albert_base_v2"))
      outputs = model({"input_ids": ids, "input_mask": mask})

  Attributes:
    config: the `AlbertConfig`.
    embedding: the `FactorizedEmbedding`.
    encoder: the `SharedTransformerEncoder`.
    pooler: Dense H -> H with tanh, applied to the first position.
    load_report: of `from_checkpoint`, what happened to each name; else None.
  """

  load_report = None

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    recompute_activations: bool = False,
    layerwise_lr_decay: float = 1.0,
    **kwargs,
  ):
    """Makes the layers and their variables.

    Args:
      config: the model.
      recompute_activations: see `SharedTransformerEncoder`.
      layerwise_lr_decay: how much smaller the learning rate is from layer to
        layer downwards; see `training.optimization`.
      **kwargs: of `tf.keras.Model`.
    """
    super().__init__(config, **kwargs)
    self.embedding = factorized_embedding.FactorizedEmbedding(
      config.vocab_size,
      config.embedding_size,
      config.hidden_size,
      config.max_position_embeddings,
      config.type_vocab_size,
      config.hidden_dropout_prob,
      config.initializer_range,
      config.always_project_embedding,
      name="embeddings",
    )
    self.encoder = shared_transformer_encoder.SharedTransformerEncoder(
      config, recompute_activations, layerwise_lr_decay, name="encoder"
    )
    self.pooler = transformer_block.dense(
      config.hidden_size, config.initializer_range, "pooler"
    )
    # Every variable exists from here on, so that weights can be loaded,
    # counted and given to an optimizer before the first batch.
    with tf.init_scope():
      self({"input_ids": tf.zeros([1, 1], tf.int32)})

  def call(
    self,
    inputs: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    output_positions: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
  ) -> dict[str, Any]:
    """Encodes a batch.

    Args:
      inputs: `input_ids` <int32>[B, S]; `input_mask` <int32>[B, S], 1 for
        tokens and 0 for padding (all 1 when left out); `segment_ids`
        <int32>[B, S] (all 0 when left out). Hugging Face's names
        `attention_mask` and `token_type_ids` are those of the last two.
      training: whether dropout is applied.
      dropout_seed: <int32>[2]; makes dropout a function of the seed.
      output_positions: <int32>[B, Q], where the last block's output is needed
        besides the first position; elsewhere it is not computed. None: it is
        everywhere. What is computed is the same either way.
      num_layers: how many layers to apply; None: those of the configuration.
        See `SharedTransformerEncoder`.

    Returns:
      `sequence_output` <float>[B, S, H]; `pooled_output` <float>[B, H];
      `encoder_outputs`, a list of <float>[B, S, H], one per block;
      `embedding_output` <float>[B, S, E], before the projection. With
      `output_positions`, `sequence_output` and the last of `encoder_outputs`
      are <float>[B, 1 + Q, H], the first position in front.

    Raises:
      ValueError: `input_ids` is missing, an input is unknown or given twice,
        or a tensor has the wrong rank, dtype or length; the message names it.
        Or the model has no other depth than its own.
    """
    inputs, _ = self.named_inputs(inputs)
    input_ids = tf.convert_to_tensor(inputs["input_ids"])
    mask = inputs.get("input_mask")
    mask = tf.ones_like(input_ids) if mask is None else mask
    mask = tf.convert_to_tensor(mask)
    shapes.check_ids("input_mask", mask)
    shapes.check_same_shape("input_mask", mask, "input_ids", input_ids)
    hidden, embedded = self.embedding(
      input_ids,
      inputs.get("segment_ids"),
      training=training,
      dropout_seed=dropout_lib.fold_in(dropout_seed, 0),
    )
    encoder_outputs = self.encoder(
      hidden,
      mask,
      training=training,
      dropout_seed=dropout_lib.fold_in(dropout_seed, 1),
      rows=_with_first(output_positions),
      num_layers=num_layers,
    )
    sequence_output = encoder_outputs[-1]
    return {
      "sequence_output": sequence_output,
      "pooled_output": tf.tanh(self.pooler(sequence_output[:, 0])),
      "encoder_outputs": encoder_outputs,
      "embedding_output": embedded,
    }

  @property
  def layerwise_lr_decay(self) -> float:
    """As given."""
    return self.encoder.layerwise_lr_decay

  def rate_multipliers(self) -> list[tuple[tf.Variable, float]]:
    """Of the learning rate, for each variable below the pooler."""
    bottom = self.layerwise_lr_decay**self.config.num_hidden_layers
    embeddings = [(v, bottom) for v in self.embedding.trainable_variables]
    return embeddings + self.encoder.block_multipliers()

  def training_settings(self) -> dict[str, Any]:
    """The arguments that say how to train, for configs of Keras."""
    return {
      "recompute_activations": self.encoder.recompute_activations,
      "layerwise_lr_decay": self.layerwise_lr_decay,
    }

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), **self.training_settings()}

  @classmethod
  def from_checkpoint(
    cls, path: str, albert_config_file: str = "", **kwargs
  ) -> AlbertModel:
    """An encoder with pretrained weights, of any format.

        model = AlbertModel.from_checkpoint("albert_base_v2")
        print(model.load_report)

    Args:
      path: a run's folder or checkpoint, a TF1 checkpoint of
        google-research/albert or its folder, the folder of a TF Hub module, or
        of a Hugging Face model; or a .tar.gz or .tgz of any of these.
      albert_config_file: of a TensorFlow checkpoint; by default the one beside
        it, else that of the release with the same shapes.
      **kwargs: of `AlbertModel`, besides the configuration.

    Raises:
      ValueError, OSError: there is no checkpoint, or it is damaged or of
        another model; the message says it in one sentence.
    """
    with checkpoints.unpacked_archive(path) as folder:
      checkpoint = checkpoints.read_checkpoint(folder, albert_config_file)
      model = cls(checkpoint.config, **kwargs)
      # Reads the values, so the folder must still exist.
      model.load_report = checkpoints.fill(model, checkpoint)
    return model


def _with_first(positions: Optional[tf.Tensor]) -> Optional[tf.Tensor]:
  """<int32>[B, Q] to <int32>[B, 1 + Q], position 0 in front."""
  if positions is None:
    return None
  shapes.check_ids("output_positions", positions, "B Q")
  return tf.pad(positions, [[0, 0], [1, 0]])
