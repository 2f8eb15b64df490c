"""Tests of the names of variables in our checkpoints."""

from __future__ import annotations

import pytest
import tensorflow as tf

from official_albert import AlbertConfig, AlbertModel
from official_albert.checkpoints import variable_paths

_CONFIG = AlbertConfig(
  vocab_size=13,
  embedding_size=4,
  hidden_size=6,
  num_hidden_layers=2,
  num_hidden_groups=2,
  num_attention_heads=3,
  intermediate_size=5,
  max_position_embeddings=7,
)


def test_a_tree_is_saved_under_the_keys_of_the_model(tmp_path):
  model = AlbertModel(_CONFIG)
  variables = variable_paths.by_path(model)
  assert len(variables) == len(model.weights)
  assert variables["encoder/ffns/1/0/intermediate/bias"].shape == [5]
  copies = {path: tf.Variable(v + 1.0) for path, v in variables.items()}
  shapes = []
  for name, root in (("a", model), ("b", variable_paths.tree(copies))):
    path = tf.train.Checkpoint(model=root).write(str(tmp_path / name))
    reader = tf.train.load_checkpoint(path)
    shapes.append(reader.get_variable_to_shape_map())
  assert shapes[0] == shapes[1]
  assert {variable_paths.path_of(key) for key in shapes[0]} == {
    None,  # The object graph's.
    *variables,
  }
  before = variables["pooler/bias"].numpy()
  status = tf.train.Checkpoint(model=model).read(str(tmp_path / "b"))
  status.assert_consumed()
  assert (variables["pooler/bias"].numpy() == before + 1).all()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
