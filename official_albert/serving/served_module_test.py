"""Signatures of a served module: names, checks, and one traced model."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, distribution, modeling
from official_albert.serving import served_module
from official_albert.tokenization import in_graph

V, LONGEST = 11, 9
_CONFIG = AlbertConfig(
  vocab_size=V,
  embedding_size=2,
  hidden_size=4,
  num_hidden_layers=1,
  num_attention_heads=1,
  intermediate_size=4,
  max_position_embeddings=LONGEST,
)


class _Layer(tf.Module):
  """Texts of digits."""

  vocab_size, cls_id = V, 2


class _Sums(served_module.ServedModule):
  """Says the sum of the ids that are not masked, and of `more`."""

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
  forward = lambda self, **ids: {"sum": tf.reduce_sum(ids["input_ids"], -1)}  # noqa: E731


def make(cls=_Sums, layer=None, longest=7):
  return cls(types.SimpleNamespace(config=_CONFIG), layer, longest)


def test_signatures_share_one_trace():
  module = make(layer=_Layer())
  signatures = module.signatures()
  assert list(signatures) == ["measure", "ids", "examples"]
  assert module.traces == 1
  assert signatures["measure"](tf.constant(["abcd"]))["sum"] == 4 * 4 + 4
  ids = tf.constant([[2, 5, 7]])
  one = signatures["ids"](
    input_ids=ids,
    input_mask=tf.ones_like(ids),
    segment_ids=tf.zeros_like(ids),
    more=tf.constant([[100, 1]]),
  )
  assert one["sum"] == 14 + 101
  example = tf.train.Example()
  for name, values in (("input_ids", [2, 5, 7]), ("more", [100])):
    example.features.feature[name].int64_list.value.extend(values)
  examples = tf.constant([example.SerializeToString()])
  assert signatures["examples"](examples)["sum"] == 14 + 100


def test_which_signatures():
  assert list(make(layer=_Layer()).signatures("text")) == ["measure"]
  assert list(make().signatures("ids")) == ["ids", "examples"]
  for which in ("all", "text"):
    with pytest.raises(ValueError, match="no tokenizer, .*--signatures=ids"):
      make().signatures(which)
  with pytest.raises(ValueError, match="unknown signatures 'id'; choose"):
    make().signatures("id")


def test_ids_are_checked_and_rid_of_padding():
  function = make(layer=_Layer()).signatures("ids")["ids"]

  def total(ids):
    ids = tf.constant([ids])
    zeros = tf.zeros_like(ids)
    return function(
      input_ids=ids,
      input_mask=tf.ones_like(ids),
      segment_ids=zeros,
      more=zeros,
    )["sum"]

  assert total([2, 6, 2, 2]) == 8
  with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 10"):
    total([2, V])


def test_options_are_an_axis():
  signatures = make(_Options).signatures("ids")
  spec = signatures["ids"].structured_input_signature[1]["input_ids"]
  assert spec.shape.as_list() == [None, 3, None]
  request = make(_Options).example_requests(signatures, 2, 5)
  assert request["ids"]["input_ids"].shape == (2, 3, 5)
  sums = signatures["examples"](tf.constant(request["examples"]["examples"]))
  assert sums["sum"].numpy().tolist() == [[10] * 3] * 2


def test_example_requests_can_be_sent():
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


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match="10 exceeds the model's 9 position"):
    make(longest=LONGEST + 1)
  layer = _Layer()
  layer.vocab_size = V + 1
  with pytest.raises(ValueError, match="tokenizer has 12 pieces, but .* 11"):
    make(layer=layer)


_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] rain sun wind ##y cold , 9".split()
_LONGEST = 8


def make_encoder(tmp_path, precision="float32"):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(_PIECES), "utf-8")
  tf.keras.utils.set_random_seed(3)
  config = AlbertConfig(
    vocab_size=len(_PIECES),
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=13,
  )
  distribution.set_precision(precision)
  try:
    model = modeling.AlbertModel(config)
  finally:
    distribution.set_precision("float32")
  layer = in_graph.make_text_layer("wordpiece", str(path), True)
  return served_module.ServedEncoder(model, layer, _LONGEST)


def test_vectors_of_texts_and_pairs(tmp_path):
  module = make_encoder(tmp_path)
  signatures = module.signatures()
  assert list(signatures) == ["encode", "encode_pair", "ids", "examples"]
  one = signatures["encode"](text=tf.constant(["sun", "Windy, cold", ""]))
  assert set(one) == {
    "pooled_output",
    "sequence_output",
    "input_ids",
    "input_mask",
  }
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
    ids = ("input_ids", "input_mask", "segment_ids")
    features = {n: answers[n] for n in ids if n in answers}
    expected = module.model(features, training=False)
    for name in ("pooled_output", "sequence_output"):
      assert answers[name].dtype == tf.float32
      # The same operations but for what a graph does better.
      np.testing.assert_allclose(answers[name], expected[name], atol=1e-6)


def test_bfloat16_products_give_float32(tmp_path):
  ids = {
    "input_ids": tf.constant([[2, 6, 7, 8, 3]]),
    "input_mask": tf.constant([[1] * 5]),
    "segment_ids": tf.constant([[0] * 5]),
  }
  exact, rounded = (
    make_encoder(tmp_path, precision).signatures("ids")["ids"](**ids)
    for precision in ("float32", "mixed_bfloat16")
  )
  for name, value in rounded.items():
    assert value.dtype == tf.float32
    difference = np.abs(value - exact[name]).max()
    # Numbers of about 1 are rounded to 8 bits, 2^-9 of them, at some twenty
    # places one after the other; and they are rounded.
    assert 0 < difference < 20 * 2**-9, name


def test_no_vectors_of_no_texts(tmp_path):
  answers = make_encoder(tmp_path).signatures()["encode"](
    tf.zeros([0], tf.string)
  )
  assert answers["pooled_output"].shape == [0, 10]
  assert answers["sequence_output"].shape == [0, 2, 10]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
