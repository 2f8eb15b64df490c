"""Hand-made vectors first, then a model whose layers are known."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling
from tools.inspection import layer_similarity


def _model(**changes) -> modeling.AlbertModel:
  values = dict(
    vocab_size=97,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=11,
    initializer_range=0.4,
  )
  tf.keras.utils.set_random_seed(3)
  config = modeling.AlbertConfig(**{**values, **changes})
  return modeling.AlbertModel(config)


def test_distances_and_angles_by_hand():
  before = np.float32([[3, 0], [1, 1], [2, 0], [0, 5], [1, 0]])
  after = np.float32([[0, 4], [2, 2], [-2, 0], [0, 5], [1, 1]])
  distances, angles = layer_similarity.compare(before, after)
  np.testing.assert_allclose(distances, [5, 2**0.5, 4, 0, 1], rtol=1e-12)
  np.testing.assert_allclose(angles, [90, 0, 180, 0, 45], atol=1e-6)


def test_angles_of_neighbours_are_exact():
  # The cosine of 1e-9 differs from 1 by less than float64 can say.
  tiny = 1e-9
  before, after = np.array([[1.0, 0]]), np.array([[1.0, tiny]])
  _, angles = layer_similarity.compare(before, after)
  np.testing.assert_allclose(np.radians(angles), [tiny], rtol=1e-9)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(bad):
  with pytest.raises(ValueError, match="0 or not finite"):
    layer_similarity.compare(np.full([1, 3], bad), np.ones([1, 3]))
  with pytest.raises(ValueError, match="0 or not finite"):
    layer_similarity.compare(np.ones([1, 3]), np.full([1, 3], bad))


@pytest.mark.parametrize(
  "changes, layers",
  [({}, 3), ({"sharing": "none"}, 3), ({"inner_group_num": 2}, 6)],
)
def test_each_layer_of_a_model(changes, layers):
  model = _model(**changes)
  ids = np.int32([[2, 5, 6, 3], [2, 7, 8, 3]])
  found = layer_similarity.measure(model, [{"input_ids": ids}])
  assert len(found) == layers
  # The first layer by itself, from the projected embedding.
  first, _ = model.embedding(tf.constant(ids))
  attention, ffn = next(model.encoder.blocks())
  after = ffn(attention(first, tf.ones_like(ids))).numpy()
  distances, angles = layer_similarity.compare(first.numpy(), after)
  assert found[0].l2_distance == pytest.approx(distances.mean(), rel=1e-5)
  assert found[0].degrees == pytest.approx(angles.mean(), rel=1e-5)
  assert len({layer.l2_distance for layer in found}) == layers


def test_means_are_over_tokens_without_padding():
  model = _model()
  rows = [[2, 5, 6, 9, 3], [2, 7, 3]]
  alone = [
    layer_similarity.measure(model, [{"input_ids": np.int32([row])}])
    for row in rows
  ]
  ids = np.int32([rows[0], rows[1] + [0, 0]])
  mask = np.int32([[1] * 5, [1] * 3 + [0] * 2])
  together = layer_similarity.measure(
    model, [{"input_ids": ids, "input_mask": mask}]
  )
  parts = [{"input_ids": np.int32([row])} for row in rows]
  in_parts = layer_similarity.measure(model, parts)
  for index, layer in enumerate(together):
    for field in ("l2_distance", "degrees"):
      long, short = (getattr(found[index], field) for found in alone)
      expected = (5 * long + 3 * short) / 8
      assert getattr(layer, field) == pytest.approx(expected, rel=1e-5)
      assert getattr(in_parts[index], field) == pytest.approx(
        expected, rel=1e-5
      )


def test_nothing_to_measure_on():
  with pytest.raises(ValueError, match="no tokens"):
    layer_similarity.measure(_model(), [])
  none = np.zeros([1, 4], np.int32)
  with pytest.raises(ValueError, match="no tokens"):
    layer_similarity.measure(
      _model(), [{"input_ids": none, "input_mask": none}]
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
