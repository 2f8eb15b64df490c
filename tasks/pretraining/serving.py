"""The SavedModel signatures of a pretrained model for raw text and for ids."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from official_albert import modeling, serving, tokenization
from official_albert.serving import Tensors
from official_albert.settings import check_number
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tokenization import in_graph


class ServedPretraining(serving.ServedModule):
  """Fills masks, detects swapped texts and encodes.

  Attributes:
    model: the `AlbertForPretraining`.
    top_k: number of pieces returned for each mask.
  """

  kind = "pretraining"
  text_signatures = (
    *("fill_mask", "sentence_order", *serving.TEXT_SIGNATURES),
    "fill_mask" + serving.BY_LAYER,
  )
  extra_ids = {"masked_lm_positions": "B P"}

  def __init__(
    self,
    model: model_lib.AlbertForPretraining,
    text_layer: Optional[in_graph.TextLayer],
    max_seq_length: int,
    top_k: int = 5,
  ):
    """Initializes the module; top_k is from 1 to the vocabulary size."""
    super().__init__(model, text_layer, max_seq_length)
    pieces = (text_layer or model.config).vocab_size
    check_number("top_k", top_k, least=1, most=pieces, whole=True)
    self.top_k = top_k

  def forward(self, **features: tf.Tensor) -> Tensors:
    """Applies the encoder and both heads.

    Returns:
      `pooled_output` <float32>[B, H], `sequence_output` <float32>[B, S, H],
      `masked_lm_logits` <float32>[B, P, V], `sentence_order_logits`
      <float32>[B, 2].
    """
    outputs = self.model(features, training=False)
    logits = ("masked_lm_logits", "sentence_order_logits")
    return {
      **serving.encoder_outputs(outputs),
      **{name: outputs[name] for name in logits},
    }

  def ids_outputs(self, features: Tensors) -> Tensors:
    masked = features["masked_lm_positions"]
    masked = serving.check_rank("masked_lm_positions", masked, "B P")
    batch, length = tf.unstack(tf.shape(features["input_ids"]))
    rows, columns = tf.unstack(tf.shape(masked))
    most = self.config.max_position_embeddings
    checks = [
      serving.check_range("masked_lm_positions", masked, length, "S - 1"),
      serving.refuse_unless(
        # Each column computes scores of the whole vocabulary.
        tf.equal(rows, batch) & (columns <= most),
        "masked_lm_positions must have a row for each sequence and at most "
        f"{most} columns, but the number of sequences and its shape are",
        batch,
        rows,
        columns,
      ),
    ]
    masked = serving.after_checks(checks, masked)
    return self.traced({**features, "masked_lm_positions": masked})

  def plain_outputs(self, features: Tensors) -> Tensors:
    # Only the masked LM, because each output costs time on a phone.
    outputs = self.forward(**features)
    return {"masked_lm_logits": outputs["masked_lm_logits"]}

  def run_without_masks(self, features: Tensors) -> Tensors:
    """Returns the outputs of `forward` for texts without masked positions."""
    nowhere = features["input_ids"][:, :0]  # [B, 0]
    return self.traced({**features, "masked_lm_positions": nowhere})

  def text_functions(self) -> dict[str, serving.TextFunction]:
    def encode(features):
      return serving.encoder_outputs(self.run_without_masks(features))

    def sentence_order(text_a, text_b):
      outputs = self.run_without_masks(self.packed(text_a, text_b))
      chances = tf.nn.softmax(outputs["sentence_order_logits"])
      return {"swapped_probability": chances[:, 1]}

    return {
      "fill_mask": (serving.TEXT, self._fill_mask),
      "fill_mask" + serving.BY_LAYER: (serving.TEXT, self._fill_by_layer),
      "sentence_order": (serving.PAIR, sentence_order),
      **serving.encode_functions(self.packed, encode),
    }

  def _fill_mask(self, text: tf.Tensor) -> Tensors:
    """Returns the k best pieces for each of the M masks of a text.

    Each text <string>[B] must have a mask within its first tokens.

    Returns:
      `tokens` <string>[B, M, k], without the word-start mark; `token_ids`
      <int32>[B, M, k]; `probabilities` <float32>[B, M, k]; `mask_positions`
      <int32>[B, M]. For texts with fewer masks than M, the tokens are empty,
      the probabilities 0 and the positions -1.
    """
    features = self.text_layer.pack_masked(self.max_seq_length, text)
    positions = features.pop("mask_positions")
    is_mask = positions >= 0
    check = serving.refuse_unless(
      tf.reduce_all(tf.reduce_any(is_mask, axis=1)),
      "every text must have a [MASK] within its first "
      f"{self.max_seq_length - 2} tokens: add one to each text.",
    )
    positions = serving.after_checks([check], positions)  # [B, M]
    features["masked_lm_positions"] = tf.maximum(positions, 0)
    outputs = self.traced(features)
    chances = tf.nn.softmax(outputs["masked_lm_logits"])  # [B, M, V]
    # The vocabulary of the model may have more rows than pieces.
    chances = chances[..., : self.text_layer.vocab_size]
    probabilities, ids = tf.math.top_k(chances, self.top_k)  # [B, M, k]
    tokens = tf.strings.regex_replace(
      self.text_layer.pieces(ids), f"^{tokenization.WORD_START}", ""
    )
    is_mask = tf.broadcast_to(is_mask[..., None], tf.shape(ids))
    return {
      "tokens": tf.where(is_mask, tokens, ""),
      "token_ids": tf.where(is_mask, ids, 0),
      "probabilities": tf.where(is_mask, probabilities, 0.0),
      "mask_positions": positions,
    }

  def _fill_by_layer(self, text: tf.Tensor) -> Tensors:
    """Returns `_fill_mask` after each layer, [B, L, M, k] and [B, L, M]."""
    layers = self.config.num_hidden_layers
    module = self.with_model(serving.model_of_layers(self.model))
    with modeling.plain_operations_only():
      found = module._fill_mask(tf.tile(text, [layers]))
    return {k: tf.stack(tf.split(x, layers), 1) for k, x in found.items()}

  def settings(self) -> dict[str, Any]:
    return {"top_k": self.top_k}
