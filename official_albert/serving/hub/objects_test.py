"""Tests of reusable objects: what is there after saving and loading."""

from __future__ import annotations

import os

import pytest
import tensorflow as tf

from official_albert.serving.hub import objects as hub_objects


class Scale(hub_objects.HubObject):
  """Multiplies by its only weight."""

  def __init__(self, weight):
    @tf.function
    def scale(x, training=False):
      return x * weight + (1.0 if training else 0.0)

    for training in (True, False):
      spec = tf.TensorSpec([None], tf.float32, "x")
      scale.get_concrete_function(spec, training=training)
    super().__init__(scale, [weight])

  def signature(self):
    spec = tf.TensorSpec([None], tf.float32, "x")

    @tf.function(input_signature=[spec])
    def serve(x):
      return {"y": self.__call__(x)}

    return serve


def test_the_interface_survives(tmp_path):
  folder = str(tmp_path / "module")
  hub_objects.save_hub_object(Scale(tf.Variable(3.0)), folder)
  loaded = tf.saved_model.load(folder)
  assert float(loaded(tf.constant([7.0]))[0]) == 21.0
  assert float(loaded(tf.constant([7.0]), training=True)[0]) == 22.0
  assert len(loaded.variables) == 1 and loaded.variables[0].trainable
  assert loaded.trainable_variables[0] is loaded.variables[0]
  assert list(loaded.regularization_losses) == []
  served = loaded.signatures["serving_default"](x=tf.constant([5.0]))
  assert served["y"].numpy().tolist() == [15.0]
  assert sorted(os.listdir(folder)) == ["assets", "saved_model.pb", "variables"]


def test_a_folder_that_cannot_be_written(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(OSError, match="could not be written"):
    hub_objects.save_hub_object(
      Scale(tf.Variable(3.0)), str(tmp_path / "file" / "module")
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
