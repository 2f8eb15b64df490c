"""Signatures of a served module: names, checks, and one traced model."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, modeling
from official_albert.serving import served_module
from official_albert.tokenization import in_graph

_CONFIG = AlbertConfig(
  vocab_size=12,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=14,
  max_position_embeddings=13,
)


class _Layer(tf.Module):
  vocab_size, cls_id = 12, 2


class _Sums(served_module.ServedModule):
  """Sums the ids that are not masked, and `more`."""

  kind = "sums"
  text_signatures = ("measure",)
  extra_ids = {"more": "B P"}
  traces = 0

  def forward(self, input_ids, input_mask, segment_ids, more):
    self.traces += 1
    rows = tf.reduce_sum(input_ids * input_mask + segment_ids, axis=-1)
    return {"sum": rows + tf.reduce_sum(more, axis=-1)}

  def text_functions(self):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def measure(text):
      ids = tf.strings.length(text)[:, None]
      return self.run(
        input_ids=ids, input_mask=ids, segment_ids=ids, more=ids[:, :0]
      )

    return {"measure": measure}


class _Options(_Sums):
  options, extra_ids = 3, {}

  def forward(self, input_ids, input_mask, segment_ids):
    return {"sum": tf.reduce_sum(input_ids, -1)}


def make(cls=_Sums, layer=None, longest=7):
  return cls(types.SimpleNamespace(config=_CONFIG), layer, longest)


def ids_request(*ids, more=()):
  ids = tf.constant([ids])
  return {
    "input_ids": ids,
    "input_mask": tf.ones_like(ids),
    "segment_ids": tf.zeros_like(ids),
    "more": tf.constant([more], tf.int32),
  }


def test_signatures_share_one_trace():
  module = make(layer=_Layer())
  signatures = module.signatures()
  assert list(signatures) == ["measure", "ids", "examples"]
  assert module.traces == 1
  assert signatures["measure"](tf.constant(["abcd"]))["sum"] == 4 * 4 + 4
  request = ids_request(2, 5, 7, more=(100, 1))
  assert signatures["ids"](**request)["sum"] == 14 + 101
  example = tf.train.Example()
  for name, values in (("input_ids", [2, 5, 7]), ("more", [100])):
    example.features.feature[name].int64_list.value.extend(values)
  examples = tf.constant([example.SerializeToString()])
  assert signatures["examples"](examples)["sum"] == 14 + 100
  module.run_with(lambda **features: {"sum": features["input_ids"][:, 0]})
  assert module.signatures()["ids"](**request)["sum"] == 2


def test_selected_signatures():
  assert list(make(layer=_Layer()).signatures("text")) == ["measure"]
  assert list(make().signatures("ids")) == ["ids", "examples"]
  for which in ("all", "text"):
    with pytest.raises(ValueError, match="no tokenizer, .*--signatures=ids"):
      make().signatures(which)


def test_ids_are_checked_and_server_padding_is_masked():
  function = make(layer=_Layer()).signatures("ids")["ids"]
  assert function(**ids_request(2, 6, 2, 2))["sum"] == 8
  with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 11"):
    function(**ids_request(2, 12))


def test_options_are_an_axis():
  module = make(_Options)
  signatures = module.signatures("ids")
  spec = signatures["ids"].structured_input_signature[1]["input_ids"]
  assert spec.shape.as_list() == [None, 3, None]
  request = module.example_requests(signatures, 2, 5)
  assert request["ids"]["input_ids"].shape == (2, 3, 5)
  sums = signatures["examples"](tf.constant(request["examples"]["examples"]))
  assert sums["sum"].numpy().tolist() == [[10] * 3] * 2


def test_example_requests_are_valid():
  module = make(layer=_Layer())
  signatures = module.signatures()
  requests = module.example_requests(signatures, 3, 6)
  assert list(requests) == list(signatures)
  for name, inputs in requests.items():
    sent = {key: tf.constant(value) for key, value in inputs.items()}
    assert signatures[name](**sent)["sum"].shape == [3], name
  assert requests["ids"]["input_ids"].shape == (3, 6)
  assert requests["ids"]["input_ids"].dtype == np.int32
  assert requests["measure"]["text"].tolist() == ["the the the the"] * 3


def test_lengths_and_tokenizers_that_do_not_fit():
  with pytest.raises(ValueError, match="14 exceeds the model's 13 position"):
    make(longest=14)
  with pytest.raises(ValueError, match="must be at least 1"):
    make(longest=0)
  layer = _Layer()
  layer.vocab_size = 13
  with pytest.raises(ValueError, match="tokenizer has 13 pieces, but .* 12"):
    make(layer=layer)


_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] rain sun wind ##y cold , 9".split()


def make_encoder(tmp_path, precision="float32"):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(_PIECES), "utf-8")
  tf.keras.utils.set_random_seed(3)
  distribution.set_precision(precision)
  try:
    model = modeling.AlbertModel(_CONFIG)
  finally:
    distribution.set_precision("float32")
  layer = in_graph.make_text_layer("wordpiece", str(path), True)
  return served_module.ServedEncoder(model, layer, 8)


def test_vectors_of_texts_and_pairs(tmp_path):
  module = make_encoder(tmp_path)
  signatures = module.signatures()
  assert list(signatures) == ["encode", "encode_pair", "ids", "examples"]
  vectors = ("pooled_output", "sequence_output")
  one = signatures["encode"](text=tf.constant(["sun", "Windy, cold", ""]))
  assert set(one) == {*vectors, "input_ids", "input_mask"}
  assert one["input_ids"].numpy().tolist() == [
    [2, 6, 3, 0, 0, 0],
    [2, 7, 8, 10, 9, 3],
    [2, 3, 0, 0, 0, 0],
  ]
  two = signatures["encode_pair"](
    text_a=tf.constant(["sun sun sun sun"]), text_b=tf.constant(["9 9 9"])
  )
  assert two["input_ids"].numpy().tolist() == [[2, 6, 6, 6, 3, 11, 11, 3]]
  assert two["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]]
  for answers in (one, two):
    features = {n: x for n, x in answers.items() if n not in vectors}
    expected = module.model(features, training=False)
    for name in vectors:
      assert answers[name].dtype == tf.float32
      # The graph optimizer may reorder sums.
      np.testing.assert_allclose(answers[name], expected[name], atol=1e-6)
  none = signatures["encode"](tf.zeros([0], tf.string))
  assert none["pooled_output"].shape == [0, 10]
  assert none["sequence_output"].shape == [0, 2, 10]


def test_bfloat16_products_give_float32(tmp_path):
  ids = ids_request(2, 6, 7, 8, 3)
  del ids["more"]
  exact, rounded = (
    make_encoder(tmp_path, precision).signatures("ids")["ids"](**ids)
    for precision in ("float32", "mixed_bfloat16")
  )
  for name, value in rounded.items():
    assert value.dtype == tf.float32
    # Numbers of about 1 are rounded to 8 bits in some twenty places.
    assert 0 < np.abs(value - exact[name]).max() < 20 * 2**-9, name


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
