"""Tests of fill-mask against the model called by hand, and after reloading."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tasks.pretraining import serving
from official_albert.testing import toy_models
from official_albert.tokenization import in_graph

K, MAX_LENGTH = 3, 13


@pytest.fixture(scope="module")
def tokenizer(corpus):
  return tokenization.SentencePieceTokenizer(f"{corpus}/toy.model")


@pytest.fixture(scope="module")
def served(tokenizer):
  tf.keras.utils.set_random_seed(1)
  # Two rows of the vocabulary have no piece.
  config = toy_models.config(
    tokenizer.vocab_size + 2, MAX_LENGTH, initializer_range=0.5
  )
  model = model_lib.AlbertForPretraining(config)
  unused = np.arange(config.vocab_size) >= tokenizer.vocab_size
  model.masked_lm.output_bias.assign(9.0 * unused)
  layer = in_graph.SentencePieceTextLayer(tokenizer.model_file)
  return serving.ServedPretraining(model, layer, MAX_LENGTH, K)


@pytest.fixture(scope="module")
def signatures(served):
  return served.signatures()


def call(served, ids, segments=None, masks=()):
  return served.model(
    {
      "input_ids": tf.constant([ids]),
      "segment_ids": tf.constant([segments or [0] * len(ids)]),
      "masked_lm_positions": tf.constant([list(masks)], tf.int32),
    }
  )


SENTENCES = ["the [MASK] sat", "The dogs [MASK] under [MASK] trees"]
PAIRS = (["the cat sat", "Rivers."], ["on a mat " * 9, ""])


def test_masks_are_filled_as_by_hand(served, signatures, tokenizer):
  assert next(iter(signatures)) == "fill_mask"
  answers = signatures["fill_mask"](tf.constant(SENTENCES))
  assert answers["tokens"].shape == [2, 2, K]
  for row, sentence in enumerate(SENTENCES):
    ids = [tokenizer.cls_id]
    for index, part in enumerate(sentence.split("[MASK]")):
      ids += [tokenizer.mask_id] * (index > 0) + tokenizer.encode(part)
    ids.append(tokenizer.sep_id)
    masks = [i for i, x in enumerate(ids) if x == tokenizer.mask_id]
    outputs = call(served, ids, masks=masks)
    chances = tf.nn.softmax(outputs["masked_lm_logits"])[0].numpy()
    assert (chances.argmax(axis=1) >= tokenizer.vocab_size).all()
    chances = chances[:, : tokenizer.vocab_size]
    for index, position in enumerate(masks):
      assert answers["mask_positions"][row, index] == position
      best = np.argsort(-chances[index])[:K]
      np.testing.assert_array_equal(answers["token_ids"][row, index], best)
      np.testing.assert_allclose(
        answers["probabilities"][row, index], chances[index][best], rtol=1e-4
      )
      tokens = [t.decode() for t in answers["tokens"][row, index].numpy()]
      assert tokens == [
        tokenizer.id_to_piece(int(i)).removeprefix("\u2581") for i in best
      ]
  # The first text has fewer masks than the second.
  assert answers["mask_positions"].numpy().tolist()[0][1] == -1
  assert answers["tokens"].numpy()[0, 1].tolist() == [b""] * K
  assert np.all(answers["probabilities"].numpy()[0, 1] == 0)


def packed(tokenizer, a, b):
  ids = [None if text is None else tokenizer.encode(text) for text in (a, b)]
  return tokenization.pack_pair(
    *ids, MAX_LENGTH, tokenizer.cls_id, tokenizer.sep_id
  )


def test_pairs_equal_the_model(served, signatures, tokenizer):
  texts = {"text_a": tf.constant(PAIRS[0]), "text_b": tf.constant(PAIRS[1])}
  order = signatures["sentence_order"](**texts)
  vectors = signatures["encode_pair"](**texts)
  for row, (a, b) in enumerate(zip(*PAIRS)):
    ids, segments = packed(tokenizer, a, b)
    outputs = call(served, ids, segments)
    chance = tf.nn.softmax(outputs["sentence_order_logits"])[0, 1]
    np.testing.assert_allclose(
      order["swapped_probability"][row], chance, rtol=0, atol=1e-5
    )
    for name, end in (("pooled_output", None), ("sequence_output", len(ids))):
      np.testing.assert_allclose(
        vectors[name][row, :end], outputs[name][0], rtol=0, atol=1e-5
      )
    assert vectors["input_ids"][row, : len(ids)].numpy().tolist() == ids
    assert vectors["segment_ids"].numpy()[row, : len(ids)].tolist() == segments


def test_ids_give_all_outputs(served, signatures, tokenizer):
  ids, _ = packed(tokenizer, "the cat sat on a mat", None)
  outputs = call(served, ids, masks=[2, 0, 5])
  answers = signatures["ids"](
    input_ids=tf.constant([ids]),
    input_mask=tf.ones([1, len(ids)], tf.int32),
    segment_ids=tf.zeros([1, len(ids)], tf.int32),
    masked_lm_positions=tf.constant([[2, 0, 5]]),
  )
  heads = {"masked_lm_logits", "sentence_order_logits"}
  assert answers.keys() == {"pooled_output", "sequence_output"} | heads
  for name, value in answers.items():
    np.testing.assert_allclose(value, outputs[name], atol=1e-5)


def test_empty_batches(signatures):
  none = tf.zeros([0], tf.string)
  filled = signatures["fill_mask"](none)
  assert filled["tokens"].shape[0] == 0 and filled["tokens"].shape[2] == K
  assert signatures["encode"](none)["pooled_output"].shape == [0, 10]
  order = signatures["sentence_order"](text_a=none, text_b=none)
  assert order["swapped_probability"].shape == [0]


@pytest.mark.parametrize(
  "texts", [["no mask"], ["a [MASK]", "[mask]"], ["to " * 20 + "[MASK]"]]
)
def test_texts_without_a_mask_are_refused(signatures, texts):
  message = r"every text must have a \[MASK\] within its first 11 tokens"
  with pytest.raises(tf.errors.InvalidArgumentError, match=message):
    signatures["fill_mask"](text=tf.constant(texts))


@pytest.mark.parametrize(
  "positions, message",
  [
    ([[3]], "from 0 to S - 1"),
    ([[1], [1]], "have a row for each sequence"),
    ([[1] * (MAX_LENGTH + 1)], f"at most {MAX_LENGTH} columns"),
  ],
)
def test_wrong_positions_are_refused(signatures, positions, message):
  ids = tf.constant([[2, 5, 3]])
  features = dict(input_ids=ids, input_mask=ids // ids, segment_ids=ids * 0)
  message = f"masked_lm_positions .*{message}"
  with pytest.raises(tf.errors.InvalidArgumentError, match=message):
    positions = tf.constant(positions)
    signatures["ids"](**features, masked_lm_positions=positions)


def test_a_model_of_one_segment_serves_single_texts(served, tokenizer):
  config = dataclasses.replace(served.config, type_vocab_size=1)
  layer = in_graph.SentencePieceTextLayer(tokenizer.model_file)
  model = model_lib.AlbertForPretraining(config)
  module = serving.ServedPretraining(model, layer, MAX_LENGTH)
  names = "fill_mask", "encode", "fill_mask_by_layer"
  assert module.text_signatures == names
  assert [*module.signatures("text")] == ["fill_mask", "encode"]


def test_bad_settings_are_refused(served):
  with pytest.raises(ValueError, match="top_k is .*, but must be from 1 to"):
    serving.ServedPretraining(served.model, None, 9, 0)
  with pytest.raises(ValueError, match="14 exceeds the model's 13"):
    serving.ServedPretraining(served.model, None, MAX_LENGTH + 1)
