"""Tests of surgery on small tables, and on models before and after."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from official_albert import (
  AlbertConfig,
  AlbertModel,
  checkpoints,
  modeling,
  tokenization,
)
from official_albert.checkpoints import loading
from official_albert.checkpoints import surgery as checkpoint_surgery

GOLDEN = pathlib.Path(__file__).parents[1] / "testdata"
WORDS = "bert/embeddings/word_embeddings"
POSITIONS = "bert/embeddings/position_embeddings"
BIAS = "cls/predictions/output_bias"
GROUP = "bert/encoder/transformer/group_{}/inner_group_0/LayerNorm/beta"
SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


def read(folder="two_groups", checkpoint="trained_lamb.ckpt-10"):
  """Reads a TF1 checkpoint after ten steps, with slots."""
  path = GOLDEN / folder
  config = AlbertConfig.from_json_file(str(path / "albert_config.json"))
  reader = tf.train.load_checkpoint(str(path / checkpoint))
  names = reader.get_variable_to_shape_map()
  return config, {name: reader.get_tensor(name) for name in names}


class WithMaskedLm(tf.keras.Model):
  """An encoder with the masked LM head."""

  def __init__(self, config):
    super().__init__()
    self.albert = AlbertModel(config)
    self.masked_lm = modeling.MaskedLMHead(
      config.vocab_size, config.embedding_size, config.hidden_act
    )
    self({"input_ids": tf.zeros([1, 1], tf.int32)}, tf.zeros([1, 1], tf.int32))

  def call(self, inputs, positions):
    hidden = self.albert(inputs)["sequence_output"]
    return hidden, self.masked_lm(hidden, positions, self.albert.embedding)


def outputs(config, tensors, inputs):
  """Returns the encoder's outputs; values for all variables are required."""
  model = AlbertModel(config)
  for name, variable in loading.tf1_variables(model).items():
    variable.assign(tensors[name])
  result = model(inputs)
  return result["encoder_outputs"] + [result["pooled_output"]]


def batch(config, length, seed=5):
  rng = np.random.default_rng(seed)
  shape = (3, length)
  return {
    "input_ids": rng.integers(0, config.vocab_size, shape, np.int32),
    "input_mask": np.arange(length)[None] < np.array([[length], [4], [1]]),
    "segment_ids": rng.integers(0, 2, shape, np.int32),
  }


def as_int(inputs):
  return {name: np.asarray(value, np.int32) for name, value in inputs.items()}


def snapshot(tensors):
  return {name: value.copy() for name, value in tensors.items()}


def assert_unchanged(tensors, before):
  assert set(tensors) == set(before)
  for name, value in tensors.items():
    np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("folder,groups", [("two_groups", 4), ("one_group", 3)])
def test_more_groups_give_equal_outputs(folder, groups):
  config, tensors = read(folder)
  before = snapshot(tensors)
  wider, result = checkpoint_surgery.expand_groups(config, tensors, groups)
  assert wider == dataclasses.replace(config, num_hidden_groups=groups)
  assert_unchanged(tensors, before)
  inputs = as_int(batch(config, 7))
  for a, b in zip(
    outputs(config, tensors, inputs), outputs(wider, result, inputs)
  ):
    np.testing.assert_array_equal(a, b)
  # Each variable of a group has three values, as slots are copied.
  each = len([name for name in tensors if "/group_0/" in name])
  assert each == 3 * 16 * config.inner_group_num
  added = (groups - config.num_hidden_groups) * each
  assert len(result) == len(tensors) + added
  assert result["global_step"] == tensors["global_step"]


def by_group(groups, extra=""):
  return {
    GROUP.format(g) + extra: np.array([10.0 * g], np.float32)
    for g in range(groups)
  }


def tiny(**changes):
  values = {
    "vocab_size": 7,
    "embedding_size": 2,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_attention_heads": 2,
    "max_position_embeddings": 3,
  }
  return AlbertConfig(**{**values, **changes})


@pytest.mark.parametrize(
  "layers,old,new,expected",
  [
    (12, 2, 6, [0, 0, 0, 10, 10, 10]),
    (5, 2, 4, [0, 0, 10, 10]),  # 5 layers: 0 0 0 1 1, then 0 0 1 2 3.
    (5, 2, 5, [0, 0, 0, 10, 10]),  # No multiple, but no layer is torn.
    (4, 2, 2, [0, 10]),
  ],
)
def test_sources_of_new_groups(layers, old, new, expected):
  config = tiny(num_hidden_layers=layers, num_hidden_groups=old)
  tensors = {**by_group(old), **by_group(old, "/adam_v")}
  _, result = checkpoint_surgery.expand_groups(config, tensors, new)
  for extra in ("", "/adam_v"):
    values = [result[GROUP.format(g) + extra].item() for g in range(new)]
    assert values == expected
  assert len(result) == 2 * new


def test_impossible_groups():
  config = tiny(num_hidden_layers=12, num_hidden_groups=2)
  for groups in (1, 3):
    with pytest.raises(ValueError, match="layers 5 and 6 of 12 would share"):
      checkpoint_surgery.expand_groups(config, by_group(2), groups)
  with pytest.raises(ValueError, match="num_hidden_groups 13 exceeds"):
    checkpoint_surgery.expand_groups(config, by_group(2), 13)
  with pytest.raises(ValueError, match=r"has the groups \[0, 1, 2\], but"):
    checkpoint_surgery.expand_groups(config, by_group(3), 4)
  torn = {**by_group(2), GROUP.format(1) + "/adam_m": np.zeros(1)}
  with pytest.raises(ValueError, match="differ in inner_group_0/.*/adam_m"):
    checkpoint_surgery.expand_groups(config, torn, 4)
  with pytest.raises(ValueError, match="sharing='ffn' cannot be given"):
    checkpoint_surgery.expand_groups(
      dataclasses.replace(config, sharing="ffn"), by_group(2), 4
    )


def positions():
  table = np.array([[0, 6], [3, 0], [9, 12]], np.float32)
  return {POSITIONS: table, f"{POSITIONS}/adam_v": table * 2, WORDS: table}


@pytest.mark.parametrize(
  "method,length,expected",
  [
    ("interpolate", 5, [[0, 6], [1.5, 3], [3, 0], [6, 6], [9, 12]]),
    ("interpolate", 4, [[0, 6], [2, 2], [5, 4], [9, 12]]),
    (
      "tile",
      7,
      [[0, 6], [3, 0], [9, 12], [0, 6], [3, 0], [9, 12], [0, 6]],
    ),
    ("interpolate", 3, [[0, 6], [3, 0], [9, 12]]),
    ("interpolate", 2, [[0, 6], [3, 0]]),
    ("tile", 2, [[0, 6], [3, 0]]),
  ],
)
def test_positions(method, length, expected):
  tensors = positions()
  before = snapshot(tensors)
  config, result = checkpoint_surgery.resize_positions(
    tiny(), tensors, length, method
  )
  assert_unchanged(tensors, before)
  assert config == tiny(max_position_embeddings=length)
  table, slot = result[POSITIONS], result[f"{POSITIONS}/adam_v"]
  assert table.dtype == slot.dtype == np.float32
  # 2/3 is rounded.
  np.testing.assert_allclose(table, expected, rtol=3e-7)
  np.testing.assert_allclose(slot, 2 * np.array(expected), rtol=3e-7)
  assert result[WORDS] is tensors[WORDS]


def test_both_methods_repeat_a_single_position():
  tensors = {POSITIONS: np.array([[4.0, -1.0]], np.float32)}
  config = tiny(max_position_embeddings=1)
  for method in checkpoints.POSITION_METHODS:
    _, result = checkpoint_surgery.resize_positions(config, tensors, 3, method)
    np.testing.assert_array_equal(result[POSITIONS], [[4.0, -1.0]] * 3)


def test_tiled_positions_keep_outputs_up_to_the_old_length():
  config, tensors = read()
  longer, result = checkpoint_surgery.resize_positions(config, tensors, 61)
  inputs = as_int(batch(config, config.max_position_embeddings))
  for a, b in zip(
    outputs(config, tensors, inputs), outputs(longer, result, inputs)
  ):
    np.testing.assert_array_equal(a, b)
  assert outputs(longer, result, as_int(batch(config, 61)))[0].shape[1] == 61
  # A shorter table keeps the outputs of short texts.
  shorter, result = checkpoint_surgery.resize_positions(config, tensors, 8)
  inputs = as_int(batch(config, 8))
  for a, b in zip(
    outputs(config, tensors, inputs), outputs(shorter, result, inputs)
  ):
    np.testing.assert_array_equal(a, b)


def test_impossible_positions():
  with pytest.raises(ValueError, match="choose one of tile, interpolate"):
    checkpoint_surgery.resize_positions(tiny(), positions(), 5, "stretch")
  with pytest.raises(ValueError, match="must be at least 1, got 0"):
    checkpoint_surgery.resize_positions(tiny(), positions(), 0)
  with pytest.raises(ValueError, match="no bert/embeddings/position_embed"):
    checkpoint_surgery.resize_positions(tiny(), {}, 5)
  with pytest.raises(ValueError, match=r"shape \[3, 2\], but .* has 4 rows"):
    checkpoint_surgery.resize_positions(
      tiny(max_position_embeddings=4), positions(), 5
    )


def words():
  table = np.array([[9, 9]] * 5 + [[1, 2], [3, 8]], np.float32)
  bias = np.array([7, 7, 7, 7, 7, -1, -4], np.float32)
  return {
    WORDS: table,
    f"{WORDS}/adam_m": table * 10,
    BIAS: bias,
    POSITIONS: np.zeros((3, 2), np.float32),
  }


def test_rows_of_common_and_new_pieces():
  tensors = words()
  before = snapshot(tensors)
  old = [*SPECIAL, "▁a", "b"]
  new = [*SPECIAL, "b", "▁ab", "c", "▁▁", "▁abb"]
  cuts = {
    "▁ab": ["▁a", "b"],
    "c": ["c"],  # Unknown, as `tokenize` returns it.
    "▁▁": ["▁", "[CLS]"],
    "▁abb": ["▁a", "b", "b", "<unk>"],
  }
  config, result, report = checkpoint_surgery.change_vocabulary(
    tiny(), tensors, old, new, cuts.__getitem__
  )
  assert_unchanged(tensors, before)
  assert config == tiny(vocab_size=10)
  expected = np.array([[3, 8], [2, 5], [2, 5], [2, 5], [7 / 3, 6]], np.float32)
  np.testing.assert_array_equal(result[WORDS][:5], tensors[WORDS][:5])
  np.testing.assert_array_equal(result[WORDS][5:], expected)
  np.testing.assert_allclose(
    result[f"{WORDS}/adam_m"][5:], 10 * expected, rtol=1e-6
  )
  np.testing.assert_array_equal(
    result[BIAS], np.array([7] * 5 + [-4, -2.5, -2.5, -2.5, -3], np.float32)
  )
  assert result[BIAS].dtype == result[WORDS].dtype == np.float32
  assert result[POSITIONS] is tensors[POSITIONS]
  assert report == checkpoint_surgery.VocabularyReport(
    copied=6,
    from_parts=("▁ab", "▁abb"),
    from_mean=("c", "▁▁"),
    dropped=("▁a",),
  )
  assert str(report).startswith("6 pieces copied, 2 new ones made from")
  assert str(report).endswith("2 from the mean of all, 1 old ones dropped")


def test_without_cut_new_pieces_get_the_mean():
  tensors = {WORDS: words()[WORDS]}  # An encoder without head.
  _, result, report = checkpoint_surgery.change_vocabulary(
    tiny(), tensors, [*SPECIAL, "▁a", "b"], [*SPECIAL, "▁ab"]
  )
  np.testing.assert_array_equal(result[WORDS][5], [2, 5])
  assert set(result) == {WORDS}
  assert report.from_mean == ("▁ab",)
  assert report.dropped == ("b", "▁a")


def test_the_last_of_equal_pieces_counts():
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  _, result, _ = checkpoint_surgery.change_vocabulary(
    tiny(), words(), [*special, "x", "x"], [*special, "x"]
  )
  np.testing.assert_array_equal(result[WORDS][5], [3, 8])


def test_a_shuffled_vocabulary_gives_equal_outputs():
  config, tensors = read("one_group")
  old = [*SPECIAL, *(f"p{i}" for i in range(5, config.vocab_size))]
  order = np.random.default_rng(3).permutation(config.vocab_size)
  changed, result, report = checkpoint_surgery.change_vocabulary(
    config, tensors, old, [old[i] for i in order]
  )
  assert changed == config
  assert report.copied == config.vocab_size
  inputs = as_int(batch(config, 7))
  moved = {**inputs, "input_ids": np.argsort(order)[inputs["input_ids"]]}
  results = []
  for values, read_ids in ((tensors, inputs), (result, as_int(moved))):
    model = WithMaskedLm(config)
    for name, variable in loading.tf1_variables(model).items():
      variable.assign(values[name])
    results.append(model(read_ids, tf.constant([[1, 2], [3, 0], [0, 0]])))
  (hidden, logits), (hidden_moved, logits_moved) = results
  np.testing.assert_array_equal(hidden, hidden_moved)
  # Sums may be in another order in a product with permuted columns.
  np.testing.assert_allclose(
    logits.numpy()[..., order], logits_moved, atol=1e-6
  )


def test_vocabularies_that_do_not_fit():
  old = [*SPECIAL, "▁a", "b"]
  with pytest.raises(ValueError, match="old vocabulary has 6 pieces, but .* 7"):
    checkpoint_surgery.change_vocabulary(tiny(), words(), old[:-1], old)
  with pytest.raises(ValueError, match=r"new vocabulary lacks \[SEP\]: both"):
    checkpoint_surgery.change_vocabulary(
      tiny(), words(), old, [p for p in old if p != "[SEP]"]
    )
  bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
  with pytest.raises(ValueError, match="new vocabulary lacks <pad>, <unk>:"):
    checkpoint_surgery.change_vocabulary(tiny(), words(), old, bert)
  with pytest.raises(ValueError, match="old vocabulary lacks <pad>, <unk>, "):
    checkpoint_surgery.change_vocabulary(tiny(), words(), list("abcdefg"), bert)
  with pytest.raises(ValueError, match="checkpoint has no .*word_embeddings"):
    checkpoint_surgery.change_vocabulary(tiny(), {}, old, old)
  with pytest.raises(ValueError, match=r"output_bias has shape \[6\]"):
    checkpoint_surgery.change_vocabulary(
      tiny(), {**words(), BIAS: np.zeros(6)}, old, old
    )


_RELEASED = (
  pathlib.Path(__file__).resolve().parents[3]
  / "shared/data/tokenizer/30k-clean.model"
)


def wordpiece(path, pieces):
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  path.write_text("\n".join([*special, *pieces]) + "\n", encoding="utf-8")
  return tokenization.WordPieceTokenizer(path)


def test_wordpiece(tmp_path):
  tokenizer = wordpiece(
    tmp_path / "vocab.txt", ["他", "port", "##s", "##ide", "##t", "##他", "t"]
  )
  assert checkpoint_surgery.pieces_of(tokenizer)[4:7] == [
    "[MASK]",
    "他",
    "port",
  ]
  cut = checkpoint_surgery.cutter(tokenizer)
  assert cut("ports") == ["port", "##s"]
  assert cut("Portside") == ["port", "##s", "##ide"]  # As text is read.
  assert cut("##side") == ["##s", "##ide"]
  assert cut("##st") == ["##s", "##t"]
  # Not in the vocabulary within a word, so it is cut like a word.
  assert cut("##port") == ["port"]
  assert cut("##x") == ["[UNK]"]
  assert cut("##") == ["[UNK]", "[UNK]"]
  assert cut("他t") == ["他", "t"]


def test_sentencepiece(tmp_path):
  path = tokenization.train_model(tmp_path / "tiny.model")
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  pieces = checkpoint_surgery.pieces_of(tokenizer)
  assert pieces[:5] == list(tokenization.SPECIAL_PIECES)
  assert len(pieces) == tokenizer.vocab_size
  cut = checkpoint_surgery.cutter(tokenizer)
  assert cut("▁ferry") == tokenizer.tokenize("ferry")
  assert cut("▁the▁port") == tokenizer.tokenize("the port")
  # No piece within a word has the mark of a space.
  inside = cut("erry")
  assert "".join(inside) == "erry" and set(inside) <= set(pieces)
  assert cut("щerry") == ["щ", *inside]
  assert cut("▁щ") == ["▁", "щ"]
  assert cut("▁") == []


def test_a_vocabulary_with_byte_fallback(tmp_path):
  path = tokenization.train_model(
    tmp_path / "bytes.model", byte_fallback=True, vocab_size=350
  )
  cut = checkpoint_surgery.cutter(
    tokenization.SentencePieceTokenizer(str(path))
  )
  assert cut("щ")[-2:] == ["<0xD1>", "<0x89>"]


@pytest.mark.skipif(not _RELEASED.exists(), reason="needs the released model")
def test_the_released_vocabulary():
  cut = checkpoint_surgery.cutter(
    tokenization.SentencePieceTokenizer(str(_RELEASED))
  )
  assert cut("▁harbourfront") == ["▁harbour", "front"]
  assert cut("front") == ["front"]
  assert cut("1922,") == ["1922", ","]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
