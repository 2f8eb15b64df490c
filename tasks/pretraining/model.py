"""AlbertForPretraining: the encoder with two pretraining heads.

Reference: google-research/albert run_pretraining.py (model_fn_builder).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import modeling


@tf.keras.utils.register_keras_serializable(package="official_albert")
class AlbertForPretraining(modeling.HeadModel):
  """Masked LM (tied to the word table) and sentence order over one encoder."""

  other_features = (
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
    "token_boundary",
    "example_weight",
  )

  def __init__(self, config: modeling.AlbertConfig, *args, **kwargs):
    """Creates the layers and their variables; see `HeadModel`."""
    super().__init__(config, *args, **kwargs)
    policy = self.dtype_policy
    self.masked_lm = modeling.MaskedLMHead(
      config, name="masked_lm", dtype=policy
    )
    # The classes are 0 for sentences in order, 1 for swapped ones.
    self.sentence_order = modeling.ClassificationHead(
      config, 2, name="sentence_order", dtype=policy
    )
    self._create_variables("masked_lm_positions")

  @modeling.without_autograph
  def call(
    self,
    features: Mapping[str, tf.Tensor],
    training: Optional[bool] = None,
    dropout_seed: Optional[tf.Tensor] = None,
    logits_only: bool = False,
    num_layers: Optional[int] = None,
    first_position: Optional[tf.Tensor] = None,
  ) -> dict[str, Any]:
    """Applies the encoder and the heads; see also `AlbertModel`.

    Args (the others: see `AlbertModel`):
      features: the inputs of `AlbertModel`, and `masked_lm_positions`
        <int32>[B, P]. Other features of a record (`other_features`) are
        ignored.
      logits_only: whether the last block computes only the positions that the
        heads need. The logits are the same, for 6% less work with twelve
        layers and 17% less with four.

    Returns:
      `masked_lm_logits` <float32>[B, P, V], `sentence_order_logits`
      <float32>[B, 2] (0 in order, 1 swapped), and the outputs of `AlbertModel`;
      of these only `pooled_output` if `logits_only`.
    """
    inputs, others = self.named_inputs(features)
    positions = others["masked_lm_positions"]
    modeling.check_ids("masked_lm_positions", positions, "B P")
    outputs = self.albert(
      inputs,
      training=training,
      dropout_seed=dropout_seed,
      output_positions=positions if logits_only else None,
      num_layers=num_layers,
      first_position=first_position,
    )
    hidden = outputs["sequence_output"]
    if logits_only:  # The output has the first position, then the masked ones.
      hidden, positions = hidden[:, 1:], None
    pooled = outputs["pooled_output"]
    return {
      **({"pooled_output": pooled} if logits_only else outputs),
      "masked_lm_logits": self.masked_lm(
        hidden, positions, self.albert.embedding, training=training
      ),
      "sentence_order_logits": self.sentence_order(pooled),
    }
