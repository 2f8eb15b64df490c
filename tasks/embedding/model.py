"""A model of embeddings, and how it is served: a vector for each text."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert import modeling, serving
from official_albert.serving import Tensors
from official_albert.tokenization import in_graph


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForEmbedding(modeling.HeadModel):
  """Pools the outputs of the encoder to a vector for each text.

  >>> import tensorflow as tf
  >>> from official_albert import AlbertConfig
  >>> from official_albert.tasks.embedding.model import AlbertForEmbedding
  >>> model = AlbertForEmbedding(AlbertConfig.from_preset("albert_tiny"))
  >>> ids = tf.constant([[2, 13, 41, 3], [2, 37, 9, 3]])
  >>> model({"input_ids": ids})["embedding"].shape
  TensorShape([2, 128])

  Attributes:
    pooling: one of `config.Pooling`. The vectors are not normalized.
  """

  other_features = ("label_ids", "example_id", "example_weight")

  def __init__(
    self,
    config: modeling.AlbertConfig,
    pooling: str = "mean",
    *args: Any,
    **kwargs: Any,
  ):
    """Creates the encoder and its variables; other arguments as `HeadModel`."""
    super().__init__(config, *args, **kwargs)
    self.pooling = pooling
    self._create_variables()

  @modeling.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    num_layers: Optional[int] = None,
    depths: Sequence[int] = (),
  ) -> dict[str, Any]:
    """Embeds texts; for the arguments see `AlbertModel`.

    An example may have K texts, <int32>[B, K, S].

    Returns:
      `embedding` <float32>[B, H] or [B, K, H]; and with `depths`, numbers of
      layers, `embeddings`: a list with the embedding after each.
    """
    inputs, _ = self.named_inputs(features)
    ids = inputs["input_ids"]
    texts = ids.shape[1:-1]  # [] or [K]
    length = tf.shape(ids)[-1]
    flat = {name: tf.reshape(x, [-1, length]) for name, x in inputs.items()}
    outputs = self.albert(
      flat, training=training, dropout_seed=dropout_seed, num_layers=num_layers
    )
    mask = flat.get("input_mask")
    if mask is None:
      mask = tf.ones_like(flat["input_ids"])

    def embed(hidden):
      # The pooler of other depths than the last is not computed yet.
      values = {"sequence_output": hidden}
      if self.pooling == "pooler":
        pooled = self.albert.pooler(hidden[:, 0])
        values["pooled_output"] = tf.tanh(pooled)
      vectors = modeling.pool(values, mask, self.pooling)
      return tf.reshape(vectors, [-1, *texts, vectors.shape[-1]])

    result = {"embedding": embed(outputs["sequence_output"])}
    if depths:
      blocks, each = outputs["encoder_outputs"], self.config.inner_group_num
      result["embeddings"] = [embed(blocks[each * d - 1]) for d in depths]
    return result

  def get_config(self) -> dict[str, Any]:
    return {**super().get_config(), "pooling": self.pooling}


class ServedEmbedding(serving.ServedModule):
  """Returns `embedding` <float32>[B, H].

  Attributes:
    pooling: how it is computed; that of the model, and whether it has length 1.
  """

  kind = "embedding"
  text_signatures = ("embed",)

  def __init__(
    self,
    model: AlbertForEmbedding,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    normalize: bool = True,
  ):
    """Serves the model; see `ServedModule`."""
    super().__init__(model, text_layer, max_seq_length)
    self.pooling = modeling.Pooling(model.pooling, normalize)

  def forward(self, **features: tf.Tensor) -> Tensors:
    embedding = self.model(features, training=False)["embedding"]
    if self.pooling.normalize:
      embedding = tf.math.l2_normalize(embedding, -1)
    return {"embedding": embedding}

  def text_functions(self) -> dict[str, serving.TextFunction]:
    def embed(text):
      return self.traced(self.packed(text))

    return {"embed": (serving.TEXT, embed)}

  def settings(self) -> dict[str, Any]:
    return dataclasses.asdict(self.pooling)
