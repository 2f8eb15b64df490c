"""What a pretrained model offers to TF Serving: raw text in, words out."""

from __future__ import annotations

import tensorflow as tf

from official_albert import text_layers
from tasks.pretraining import model as model_lib

_WORD_START = "\u2581"


class FillMask(tf.Module):
  """Fills each `[MASK]` of raw strings with the most probable pieces.

  Attributes:
    model: the `AlbertForPretraining`.
    text_layer: makes the model's inputs from strings, inside the graph.
    top_k: how many pieces are returned for each mask.
  """

  def __init__(
    self,
    model: model_lib.AlbertForPretraining,
    text_layer: text_layers.FillMaskTextLayer,
    top_k: int = 5,
  ):
    """Composes the module.

    Raises:
      ValueError: top_k is not between 1 and the vocabulary's size, or the
        text layer makes sequences that the model cannot take.
    """
    super().__init__(name="fill_mask")
    if not 1 <= top_k <= model.config.vocab_size:
      raise ValueError(
        f"top_k must be between 1 and {model.config.vocab_size}, got {top_k}."
      )
    if text_layer.max_seq_length > model.config.max_position_embeddings:
      raise ValueError(
        f"max_seq_length {text_layer.max_seq_length} exceeds the model's "
        f"{model.config.max_position_embeddings} position embeddings."
      )
    self.model = model
    self.text_layer = text_layer
    self.top_k = top_k

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
  def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
    """Fills masks.

    Args:
      text: <string>[B], UTF-8, with `[MASK]` where a piece is wanted.

    Returns:
      For the M masks of each text, in order, and the k best pieces each:
      `tokens` <string>[B, M, k], without the word-start mark;
      `token_ids` <int32>[B, M, k]; `probabilities` <float32>[B, M, k];
      `mask_positions` <int32>[B, M]. Texts with fewer masks than M have empty
      tokens, probability 0 and position -1 there.
    """
    features = self.text_layer(text)
    positions = features.pop("mask_positions")
    there = positions >= 0
    features["masked_lm_positions"] = tf.maximum(positions, 0)
    logits = self.model(features, training=False)["masked_lm_logits"]
    probabilities, ids = tf.math.top_k(tf.nn.softmax(logits), self.top_k)
    pieces = self.text_layer.text_layer.pieces(ids)
    tokens = tf.strings.regex_replace(pieces, f"^{_WORD_START}", "")
    there_k = tf.broadcast_to(there[..., None], tf.shape(ids))
    return {
      "tokens": tf.where(there_k, tokens, ""),
      "token_ids": tf.where(there_k, ids, 0),
      "probabilities": tf.where(there_k, probabilities, 0.0),
      "mask_positions": positions,
    }

  def save(self, directory: str) -> None:
    """Writes a SavedModel that holds the weights and `fill_mask`, no more.

    Saved as they are, Keras layers would add every function they have been
    traced with, those of the training step too, which need XLA.
    """
    module = tf.Module(name=self.name)
    module.model_weights = self.model.variables
    module.text_layer = self.text_layer
    module.fill_mask = self.fill_mask
    tf.saved_model.save(
      module, directory, signatures={"serving_default": self.fill_mask}
    )
