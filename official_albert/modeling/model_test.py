"""Tests of AlbertModel: sizes, inputs, padding, precision, saving."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import official_albert
from official_albert import AlbertConfig, AlbertModel

B, S = 3, 7
SMALL = AlbertConfig(
  vocab_size=29,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=11,
  initializer_range=0.3,
)


def batch(seed=0):
  rng = np.random.default_rng(seed)
  return {
    "input_ids": tf.constant(rng.integers(0, 29, [B, S]), tf.int32),
    "input_mask": tf.constant(np.arange(S) < [[S], [4], [2]], tf.int32),
    "segment_ids": tf.constant(rng.integers(0, 2, [B, S]), tf.int32),
  }


def test_output_shapes():
  outputs = AlbertModel(SMALL)(batch())
  assert outputs["sequence_output"].shape == [B, S, 10]
  assert outputs["pooled_output"].shape == [B, 10]
  assert outputs["embedding_output"].shape == [B, S, 6]
  assert [x.shape for x in outputs["encoder_outputs"]] == [[B, S, 10]] * 3
  assert outputs["encoder_outputs"][-1] is outputs["sequence_output"]


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("embedding_size", [6, 10])
@pytest.mark.parametrize("groups, inner", [(1, 1), (2, 1), (3, 2)])
def test_closed_form_count_equals_the_built_model(
  sharing, embedding_size, groups, inner
):
  config = dataclasses.replace(
    SMALL,
    sharing=sharing,
    embedding_size=embedding_size,
    num_hidden_groups=groups,
    inner_group_num=inner,
  )
  assert AlbertModel(config).count_params() == config.parameter_count()
  if embedding_size == config.hidden_size:
    config = dataclasses.replace(config, always_project_embedding=True)
    assert AlbertModel(config).count_params() == config.parameter_count()


def test_padding_does_not_change_real_tokens():
  model = AlbertModel(SMALL)
  inputs = batch()
  mask = inputs["input_mask"].numpy() == 1
  other = dict(inputs, input_ids=tf.where(mask, inputs["input_ids"], 28))
  before = model(inputs)["sequence_output"].numpy()
  after = model(other)["sequence_output"].numpy()
  np.testing.assert_array_equal(before[mask], after[mask])


def test_mask_and_segments_have_defaults():
  model = AlbertModel(SMALL)
  ids = batch()["input_ids"]
  full = model(
    {
      "input_ids": ids,
      "input_mask": tf.ones_like(ids),
      "segment_ids": tf.zeros_like(ids),
    }
  )
  short = model({"input_ids": ids})
  np.testing.assert_array_equal(
    full["sequence_output"], short["sequence_output"]
  )


@pytest.mark.parametrize("training", [False, True])
def test_output_positions_equal_the_rows_of_the_full_output(training):
  model, inputs = AlbertModel(SMALL), batch()
  positions = tf.constant(np.random.default_rng(0).integers(0, S, [B, 4]))
  positions = tf.cast(positions, tf.int32)
  full = model(inputs, training=training)
  picked = model(inputs, training=training, output_positions=positions)
  expected = tf.gather(full["sequence_output"], positions, batch_dims=1)
  actual = picked["sequence_output"]
  np.testing.assert_allclose(actual[:, 1:], expected, atol=1e-6)
  np.testing.assert_allclose(
    actual[:, 0], full["sequence_output"][:, 0], atol=1e-6
  )
  np.testing.assert_allclose(
    picked["pooled_output"], full["pooled_output"], atol=1e-6
  )
  np.testing.assert_array_equal(
    picked["encoder_outputs"][0], full["encoder_outputs"][0]
  )
  with pytest.raises(ValueError, match="output_positions"):
    model(inputs, output_positions=positions[0])


def test_input_ids_are_required():
  with pytest.raises(ValueError, match="needs input_ids, got only: input_mask"):
    AlbertModel(SMALL)({"input_mask": tf.ones([B, S], tf.int32)})


def test_hugging_face_names_are_accepted():
  model, inputs = AlbertModel(SMALL), batch()
  expected = model(inputs)["sequence_output"].numpy()
  renamed = {
    "input_ids": inputs["input_ids"],
    "attention_mask": inputs["input_mask"],
    "token_type_ids": inputs["segment_ids"],
  }
  np.testing.assert_array_equal(expected, model(renamed)["sequence_output"])
  mixed = {**renamed, "segment_ids": renamed.pop("token_type_ids")}
  del mixed["token_type_ids"]
  np.testing.assert_array_equal(expected, model(mixed)["sequence_output"])
  # Hugging Face's tokenizers return int64 without TensorFlow.
  arrays = {k: v.numpy().astype(np.int64) for k, v in mixed.items()}
  np.testing.assert_array_equal(expected, model(arrays)["sequence_output"])


@pytest.mark.parametrize(
  "name, message",
  [
    (
      "attention_maks",
      r"unknown input 'attention_maks': the model takes input_ids, input_mask "
      r"\(or attention_mask\), segment_ids \(or token_type_ids\)\.",
    ),
    ("label_ids", "unknown input 'label_ids'"),
    ("attention_mask", "attention_mask and input_mask are two names of one"),
    ("token_type_ids", "segment_ids and token_type_ids are two names of one"),
  ],
)
def test_unknown_and_duplicate_names_are_refused(name, message):
  inputs = batch()
  inputs[name] = inputs["input_mask"]
  with pytest.raises(ValueError, match=message):
    AlbertModel(SMALL)(inputs)


def test_lists_of_inputs_are_refused():
  with pytest.raises(ValueError, match="takes a dict with input_ids, not list"):
    AlbertModel(SMALL)(list(batch().values()))


def test_bfloat16_keeps_variables_and_is_close():
  inputs = batch()
  model = AlbertModel(SMALL)
  tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
  try:
    half = AlbertModel(SMALL)
  finally:
    tf.keras.mixed_precision.set_global_policy("float32")
  half.set_weights(model.get_weights())
  assert {v.dtype for v in half.weights} == {tf.float32}
  outputs = half(inputs)
  assert outputs["sequence_output"].dtype == tf.bfloat16
  difference = (
    tf.cast(outputs["sequence_output"], tf.float32)
    - model(inputs)["sequence_output"]
  )
  # LayerNorm's outputs are about 1, bfloat16 has 8 bits, and the errors of
  # six sublayers add up.
  assert np.abs(difference.numpy()).max() < 6 * 2.0**-6


def test_graph_with_unknown_batch_and_length():
  model = AlbertModel(SMALL)
  spec = tf.TensorSpec([None, None], tf.int32)
  run = tf.function(
    lambda ids: model({"input_ids": ids})["sequence_output"],
    input_signature=[spec],
  )
  for shape in ([1, 1], [5, 3], [2, 11]):
    ids = tf.ones(shape, tf.int32)
    np.testing.assert_allclose(
      run(ids), model({"input_ids": ids})["sequence_output"], atol=1e-5
    )


def test_serialization():
  model = AlbertModel(SMALL, name="mine")
  clone = AlbertModel.from_config(model.get_config())
  assert clone.config == SMALL and clone.name == "mine"
  clone.set_weights(model.get_weights())
  np.testing.assert_array_equal(
    model(batch())["pooled_output"], clone(batch())["pooled_output"]
  )


def test_public_names_of_the_package():
  assert official_albert.AlbertModel is AlbertModel
  with pytest.raises(AttributeError, match="AlbertModle"):
    _ = official_albert.AlbertModle


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
