"""The best pieces for masks, of a model that can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tasks.pretraining import mask_filling

_PIECES = np.array(["<pad>", "\u2581a", "b", "\u2581\u2581c"])


class _Vocabulary:
  """Four pieces, of a model that has five rows."""

  vocab_size = len(_PIECES)

  def pieces(self, ids):
    return tf.gather(tf.constant(_PIECES), ids)


class _Layer:
  text_layer, max_seq_length = _Vocabulary(), 9


def _logits(features, positions):
  """The piece of the mask's own number is the best, and that before it."""
  assert set(features) == {"input_ids"}
  rows = tf.gather(features["input_ids"], positions, batch_dims=1)
  # The fifth row would win everywhere.
  return (
    2 * tf.one_hot(rows, 5)
    + tf.one_hot(rows - 1, 5)
    + 9 * tf.one_hot(tf.fill(tf.shape(rows), 4), 5)
  )


@tf.function
def _fill(ids, positions):
  features = {"input_ids": ids, "mask_positions": positions}
  return mask_filling.fill_masks(features, _Layer(), 2, _logits)


def test_the_best_of_each_mask():
  ids = tf.constant([[0, 1, 2], [3, 0, 1]])
  said = _fill(ids, tf.constant([[1, 2], [0, -1]]))
  assert said["mask_positions"].numpy().tolist() == [[1, 2], [0, -1]]
  assert said["token_ids"].numpy().tolist() == [
    [[1, 0], [2, 1]],
    [[3, 2], [0, 0]],
  ]
  assert said["tokens"].numpy().tolist() == [
    [[b"a", b"<pad>"], [b"b", b"a"]],
    # One mark is the word's start; a second one is text.
    [["\u2581c".encode(), b"b"], [b"", b""]],
  ]
  # Beside the row that no piece belongs to: e^2 of e^9 + e^2 + e + 2.
  best = np.exp(2) / (np.exp(9) + np.exp(2) + np.e + 2)
  np.testing.assert_allclose(
    said["probabilities"][0, :, 0], [best, best], rtol=1e-5
  )
  assert not said["probabilities"][1, 1].numpy().any()


def test_texts_without_a_mask_are_refused():
  with pytest.raises(
    tf.errors.InvalidArgumentError, match="needs a .MASK., .* first 7 tokens"
  ):
    _fill(tf.constant([[1], [2]]), tf.constant([[0], [-1]]))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
