"""Tests of the accuracies by hand."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tasks.pretraining import metrics


def test_padding_counts_nowhere():
  vocab = 5
  outputs = {
    "masked_lm_logits": tf.one_hot([[1, 2, 0], [4, 3, 0]], vocab),
    "sentence_order_logits": tf.constant([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]),
  }
  outputs["masked_lm_logits"] = tf.concat(
    [outputs["masked_lm_logits"], tf.one_hot([[0, 0, 0]], vocab)], 0
  )
  batch = {
    "masked_lm_ids": tf.constant([[1, 2, 0], [4, 1, 0], [0, 0, 0]]),
    "masked_lm_weights": tf.constant(
      [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    ),
    "next_sentence_labels": tf.constant([[0], [0], [0]]),
  }
  values = metrics.accuracies(outputs, batch, tf.constant([1.0, 1.0, 0.0]))
  lm = values["masked_lm_accuracy"]
  order = values["sentence_order_accuracy"]
  assert (float(lm.total), float(lm.weight)) == (3.0, 4.0)
  assert (float(order.total), float(order.weight)) == (1.0, 2.0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
