"""How well masked tokens and the order of sentences are recovered."""

from __future__ import annotations

from typing import Mapping

import tensorflow as tf

from official_albert import training


def accuracies(
  outputs: Mapping[str, tf.Tensor],
  batch: Mapping[str, tf.Tensor],
  example_weight: tf.Tensor,
) -> dict[str, training.Ratio]:
  """Shares of right answers, as sums and weights.

  Args:
    outputs: `masked_lm_logits` <float32>[B, P, V], `sentence_order_logits`
      <float32>[B, 2].
    batch: `masked_lm_ids` <int32>[B, P], `masked_lm_weights` <float32>[B, P]
      (0 for padding, which does not count), `next_sentence_labels`
      <int32>[B, 1].
    example_weight: <float32>[B], 0 for rows that only fill up a batch.

  Returns:
    `masked_lm_accuracy` and `sentence_order_accuracy`.
  """

  def ratio(logits, labels, weights) -> training.Ratio:
    right = tf.argmax(logits, -1, output_type=labels.dtype) == labels
    return training.Ratio(
      tf.reduce_sum(tf.cast(right, tf.float32) * weights),
      tf.reduce_sum(weights),
    )

  return {
    "masked_lm_accuracy": ratio(
      outputs["masked_lm_logits"],
      batch["masked_lm_ids"],
      batch["masked_lm_weights"],
    ),
    "sentence_order_accuracy": ratio(
      outputs["sentence_order_logits"],
      batch["next_sentence_labels"][:, 0],
      example_weight,
    ),
  }
