"""AlbertModel: embedding, encoder and pooler.

Reference: google-research/albert modeling.py (AlbertModel).
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert.modeling import (
  factorized_embedding,
  layers,
  shared_transformer_encoder,
)
from official_albert.modeling import inputs as inputs_lib


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertModel(inputs_lib.FeatureModel):
  """The pretrained encoder, which every task builds on.

  >>> import tensorflow as tf
  >>> from official_albert import AlbertConfig, AlbertModel
  >>> model = AlbertModel(AlbertConfig.from_preset("albert_tiny"))
  >>> ids = tf.constant([[2, 13, 41, 3, 0], [2, 37, 9, 25, 3]])
  >>> outputs = model({"input_ids": ids, "input_mask": tf.sign(ids)})
  >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
  (TensorShape([2, 5, 128]), TensorShape([2, 128]))

  Attributes:
    embedding: the `FactorizedEmbedding`.
    encoder: the `SharedTransformerEncoder`.
    pooler: Dense H -> H with tanh, applied to the first position.
    load_report: the `LoadReport` of `from_checkpoint`, else None.
  """

  load_report: Any = None
  # `official_albert.checkpoints` sets it, which knows the formats of files.
  from_checkpoint: Callable[..., AlbertModel]

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    recompute_activations: bool = False,
    **kwargs: Any,
  ):
    """Creates the layers and variables; see `SharedTransformerEncoder`."""
    super().__init__(config, **kwargs)
    policy = self.dtype_policy
    self.embedding = factorized_embedding.FactorizedEmbedding(
      config, name="embeddings", dtype=policy
    )
    self.encoder = shared_transformer_encoder.SharedTransformerEncoder(
      config, recompute_activations, name="encoder", dtype=policy
    )
    self.pooler = layers.dense(self, config.hidden_size, "pooler")
    self._create_variables()

  @layers.without_autograph
  def call(
    self,
    inputs: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    output_positions: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
    first_position: Optional[tf.Tensor] = None,
  ) -> dict[str, Any]:
    """Encodes a batch.

    Args:
      inputs: `input_ids` <int32>[B, S]; `input_mask` <int32>[B, S], 1 for
        tokens and 0 for padding (default: all 1); `segment_ids` <int32>[B, S]
        (default: all 0). The last two may have their Hugging Face names
        `attention_mask` and `token_type_ids`.
      training: whether to apply dropout.
      dropout_seed: <int32>[2]; makes dropout a function of the seed.
      output_positions: <int32>[B, Q]. The last block computes only these
        positions and the first one; None computes all. The values are the
        same either way.
      num_layers: the number of layers to apply; None means that of the
        configuration.
      first_position: <int32>[], the position of the first token; None means 0.

    Returns:
      `sequence_output` <float>[B, S, H]; `pooled_output` <float>[B, H];
      `encoder_outputs`, a list of <float>[B, S, H], one per block;
      `embedding_output` <float>[B, S, E], before the projection. With
      `output_positions`, `sequence_output` and the last of `encoder_outputs`
      are <float>[B, 1 + Q, H], with the first position in front.

    Raises:
      ValueError: an input is missing, unknown, given twice, or has the wrong
        rank, dtype or length; or the model cannot apply `num_layers` layers.
        Outside of a graph, also if an id is out of range. Lengths that are
        known only when a graph runs raise tf.errors.InvalidArgumentError.
    """
    named, _ = self.named_inputs(inputs)
    input_ids, mask, segment_ids = inputs_lib.encoder_inputs(
      named, self.config, training
    )
    rows = None
    if output_positions is not None:
      inputs_lib.check_ids("output_positions", output_positions, "B Q")
      rows = tf.pad(output_positions, [[0, 0], [1, 0]])  # Adds position 0.
    hidden, embedded = self.embedding(
      input_ids,
      segment_ids,
      training=training,
      dropout_seed=layers.fold_in(dropout_seed, 0),
      first_position=first_position,
    )
    encoder_outputs = self.encoder(
      hidden,
      mask,
      training=training,
      dropout_seed=layers.fold_in(dropout_seed, 1),
      rows=rows,
      num_layers=num_layers,
    )
    sequence_output = encoder_outputs[-1]
    return {
      "sequence_output": sequence_output,
      "pooled_output": tf.tanh(self.pooler(sequence_output[:, 0])),
      "encoder_outputs": encoder_outputs,
      "embedding_output": embedded,
    }

  def get_config(self) -> dict[str, Any]:
    recomputes = self.encoder.recompute_activations
    return {**super().get_config(), "recompute_activations": recomputes}

  @classmethod
  def from_preset(cls, preset: str, **kwargs: Any) -> AlbertModel:
    """Returns an encoder of a named size with random weights, and warns of it.

    >>> from official_albert import AlbertModel
    >>> model = AlbertModel.from_preset("albert_tiny")
    >>> model.config.hidden_size
    128

    `preset` is one of `PRESETS`; `kwargs` are those of the constructor.
    """
    config = config_lib.AlbertConfig.from_preset(preset)
    warnings.warn(
      f"{cls.__name__}.from_preset({preset!r}) has random weights: "
      f"{cls.__name__}.from_checkpoint reads pretrained ones.",
      stacklevel=2,
    )
    return cls(config, **kwargs)


def pool(
  outputs: Mapping[str, tf.Tensor], mask: tf.Tensor, pooling: str
) -> tf.Tensor:
  """Returns a vector for each text, <float32>[B, H]; see `config.Pooling`.

  Args:
    outputs: `sequence_output` <float>[B, S, H], and for the pooling "pooler"
      `pooled_output` <float>[B, H].
    mask: <int32>[B, S], 1 for tokens and 0 for padding.
    pooling: "mean", "cls", "max" or "pooler".
  """
  if pooling == "pooler":
    return tf.cast(outputs["pooled_output"], tf.float32)
  hidden = tf.cast(outputs["sequence_output"], tf.float32)
  if pooling == "cls":
    return hidden[:, 0]
  is_token = mask[..., None] > 0  # [B, S, 1]
  if pooling == "max":
    return tf.reduce_max(tf.where(is_token, hidden, hidden.dtype.min), 1)
  total = tf.reduce_sum(tf.where(is_token, hidden, 0.0), 1)
  return total / tf.reduce_sum(tf.cast(is_token, tf.float32), 1)


class HeadModel(inputs_lib.FeatureModel):
  """Base class of models with a head on top of an encoder.

  Attributes:
    albert: the `AlbertModel`.
  """

  def __init__(
    self,
    config: config_lib.AlbertConfig,
    recompute_activations: bool = False,
    **kwargs: Any,
  ):
    """Creates the encoder; see `AlbertModel`. Subclasses create the head."""
    super().__init__(config, **kwargs)
    options = {"name": "albert", "dtype": self.dtype_policy}
    self.albert = AlbertModel(config, recompute_activations, **options)

  def get_config(self) -> dict[str, Any]:
    recomputes = self.albert.encoder.recompute_activations
    return {**super().get_config(), "recompute_activations": recomputes}
