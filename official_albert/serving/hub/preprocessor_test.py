"""Tests of the saved preprocessor: ids of our tokenizers, shapes of TF Hub."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from official_albert.serving.hub import encoder as hub_encoder
from official_albert.serving.hub import preprocessor as hub_preprocessor
from official_albert.testing import toy_vocabulary
from official_albert.tokenization import in_graph

_SENTENCES = [
  "the mill by the river ground barley, oats and rye.",
  "its wheel turned until 1874, when 1874,5 litres broke the dam.",
  "lots (3,3) and (3,8), (3,1), (3,2) or (3,c) were sold quickly.",
]
_LINES = ["In 1874, 3,8 Lots", "mill", "", "Ca\u0301f\u00e9 \u4e2d", "9" * 40]
_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the mill tur ##ns , \u4e2d".split()


def _save(layer, folder, **arguments):
  module = hub_preprocessor.HubPreprocessor(layer, **arguments)
  hub_encoder.save_hub_object(module, str(folder))
  return tf.saved_model.load(str(folder))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
  proto = toy_vocabulary.train(_SENTENCES, 61)
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(proto)
  return str(path)


@pytest.fixture(scope="module")
def loaded(model_file, tmp_path_factory):
  layer = in_graph.SentencePieceTextLayer(model_file)
  folder = tmp_path_factory.mktemp("hub") / "preprocessor"
  return _save(layer, folder, seq_length=13)


def test_ids_are_those_of_the_tokenizer(loaded, model_file):
  python = tokenization.SentencePieceTokenizer(model_file)
  tokens = loaded.tokenize(tf.constant(_LINES))
  assert tokens.dtype == tf.int32 and tokens.shape.as_list() == [5, None]
  expected = python.encode_batch(_LINES)
  assert tokens.to_list() == expected
  assert sum(map(len, expected)) > 12
  packed = loaded(tf.constant(_LINES))
  assert list(map(tuple, (v.shape for v in packed.values()))) == [(5, 13)] * 3
  for row, ids in enumerate(expected):
    wanted, _ = tokenization.pack_pair(ids, None, 13, 2, 3)
    got = packed["input_word_ids"][row].numpy().tolist()
    assert got == wanted + [0] * (13 - len(wanted))
    assert int(tf.reduce_sum(packed["input_mask"][row])) == len(wanted)
  served = loaded.signatures["serving_default"](sentences=tf.constant(_LINES))
  for name, value in packed.items():
    assert (served[name].numpy() == value.numpy()).all()


def test_python_strings_empty_batches_and_tf_data(loaded):
  assert loaded(["mill", "dam"])["input_word_ids"].shape == [2, 13]
  assert loaded(tf.constant([], tf.string))["input_mask"].shape == [0, 13]
  data = tf.data.Dataset.from_tensor_slices(_LINES).batch(2).map(loaded)
  shapes = [tuple(batch["input_mask"].shape) for batch in data]
  assert shapes == [(2, 13), (2, 13), (1, 13)]


@pytest.mark.parametrize("seq_length", [9, tf.constant(9)])
def test_pairs_and_lengths(loaded, seq_length):
  tokens = [loaded.tokenize(_LINES), loaded.tokenize(_LINES[::-1])]
  packed = loaded.bert_pack_inputs(tokens, seq_length=seq_length)
  assert set(packed) == {"input_word_ids", "input_mask", "input_type_ids"}
  assert all(value.shape == [5, 9] for value in packed.values())
  a, b = (t.to_list() for t in tokens)
  ids, types = tokenization.pack_pair(a[0], b[0], 9, 2, 3)
  room = [0] * (9 - len(ids))
  assert packed["input_word_ids"][0].numpy().tolist() == ids + room
  assert packed["input_type_ids"][0].numpy().tolist() == types + room
  assert loaded.bert_pack_inputs(tokens[:1])["input_mask"].shape == [5, 13]
  with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
    loaded.bert_pack_inputs(tokens, seq_length=2)


def test_special_tokens(loaded, model_file):
  special = loaded.tokenize.get_special_tokens_dict()
  assert {name: int(value) for name, value in special.items()} == {
    "start_of_sequence_id": 2,
    "end_of_segment_id": 3,
    "padding_id": 0,
    "mask_id": 4,
    "vocab_size": tokenization.SentencePieceTokenizer(model_file).vocab_size,
  }
  assert all(v.dtype == tf.int32 and v.shape == [] for v in special.values())


def test_word_pieces_come_by_words(tmp_path):
  (tmp_path / "vocab.txt").write_text("\n".join(_PIECES), "utf-8")
  file = str(tmp_path / "vocab.txt")
  layer = in_graph.make_text_layer("wordpiece", file, True)
  loaded = _save(layer, tmp_path / "module")
  lines = ["The mill turns,", "\u4e2d\u4e2d x", ""]
  tokens = loaded.tokenize(lines)
  assert tokens.to_list() == [[[5], [6], [7, 8], [9]], [[10], [10], [1]], []]
  python = tokenization.WordPieceTokenizer(file, True)
  assert tokens.merge_dims(1, 2).to_list() == python.encode_batch(lines)
  packed = loaded.bert_pack_inputs([tokens, tokens], seq_length=12)
  assert packed["input_word_ids"][1].numpy().tolist() == [
    2, 10, 10, 1, 3, 10, 10, 1, 3, 0, 0, 0
  ]  # fmt: skip
  special = loaded.tokenize.get_special_tokens_dict()
  assert int(special["vocab_size"]) == 11 and int(special["mask_id"]) == 4
  assert loaded(lines)["input_word_ids"].shape == [3, 128]


def test_a_length_without_room(model_file):
  layer = in_graph.SentencePieceTextLayer(model_file)
  with pytest.raises(ValueError, match="at least 5, got 4"):
    hub_preprocessor.HubPreprocessor(layer, 4)


CLS, SEP, PAD = 71, 72, 5


def _ids(first, length):
  return list(range(first, first + length))


@tf.function(reduce_retracing=True)
def _pack(segments, seq_length):
  return hub_preprocessor.pack_segments(segments, seq_length, CLS, SEP, PAD)


def _ragged(rows):
  return tf.ragged.constant(rows, dtype=tf.int32)


@pytest.mark.parametrize("seq_length", [5, 8, 11])
def test_packs_as_fine_tuning_does(seq_length):
  lengths = list(itertools.product(range(8), repeat=2))
  rows_a = [_ids(11, a) for a, _ in lengths]
  rows_b = [_ids(31, b) for _, b in lengths]
  pairs = _pack([_ragged(rows_a), _ragged(rows_b)], tf.constant(seq_length))
  single = _pack([_ragged(rows_a)], tf.constant(seq_length))
  for packed, others in ((pairs, rows_b), (single, [None] * len(rows_a))):
    packed = {name: value.numpy() for name, value in packed.items()}
    for row, (a, b) in enumerate(zip(rows_a, others)):
      ids, types = tokenization.pack_pair(a, b, seq_length, CLS, SEP)
      room = seq_length - len(ids)
      expected = {
        "input_word_ids": ids + [PAD] * room,
        "input_mask": [1] * len(ids) + [0] * room,
        "input_type_ids": types + [0] * room,
      }
      for name, values in expected.items():
        assert packed[name].dtype == np.int32
        assert packed[name][row].tolist() == values, (name, a, b)


def test_shapes_of_empty_batches_and_of_graphs():
  none = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [])
  assert _pack([none, none], 6)["input_mask"].shape == [0, 6]
  spec = tf.RaggedTensorSpec([None, None], tf.int32)
  static = _pack.get_concrete_function([spec], 9).structured_outputs
  assert {tuple(x.shape) for x in static.values()} == {(None, 9)}


def test_invalid_segments():
  one, other = _ragged([[11], [12]]), _ragged([[11]])
  with pytest.raises(ValueError, match="one or two segments"):
    _pack([one] * 3, 9)
  with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
    _pack([one, one], tf.constant(2))
  with pytest.raises(tf.errors.InvalidArgumentError, match="batch sizes"):
    _pack([one, other], 9)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
