"""Tests of fill-mask against the model called by hand, and after reloading."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_albert import AlbertConfig, text_layers, tokenization
from tasks.pretraining import model as model_lib
from tasks.pretraining import serving

K, MAX_LENGTH = 3, 13
_TEXT = [
  "the river runs down to the sea",
  "a boat goes up the river with the wind",
  "the wind comes from the sea and goes to the hills",
  "down in the hills the rain falls on the river",
] * 5
_CLIENT = """
import json, sys
sys.modules["official_albert"] = sys.modules["sentencepiece"] = None
import tensorflow as tf, tensorflow_text
fill = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = fill(text=tf.constant(json.loads(sys.argv[2])))
print("RESULT" + json.dumps({
    "tokens": [[[t.decode() for t in m] for m in row]
               for row in answers["tokens"].numpy()],
    "probabilities": answers["probabilities"].numpy().tolist(),
    "mask_positions": answers["mask_positions"].numpy().tolist()}))
"""


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> str:
  proto = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(_TEXT),
    model_writer=proto,
    vocab_size=60,
    hard_vocab_limit=False,
    pad_id=0,
    unk_id=1,
    bos_id=-1,
    eos_id=-1,
    control_symbols="[CLS],[SEP],[MASK]",
    minloglevel=2,
  )
  path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
  path.write_bytes(proto.getvalue())
  return str(path)


@pytest.fixture(scope="module")
def tokenizer(model_file):
  return tokenization.SentencePieceTokenizer(model_file)


@pytest.fixture(scope="module")
def fill_mask(model_file, tokenizer):
  tf.keras.utils.set_random_seed(1)
  config = AlbertConfig(
    vocab_size=tokenizer.vocab_size,
    embedding_size=6,
    hidden_size=10,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=14,
    max_position_embeddings=MAX_LENGTH,
    initializer_range=0.5,
  )
  return serving.FillMask(
    model_lib.AlbertForPretraining(config),
    text_layers.FillMaskTextLayer(
      text_layers.SentencePieceTextLayer(model_file), MAX_LENGTH
    ),
    K,
  )


SENTENCES = ["the [MASK] runs", "The wind [MASK] from [MASK] sea", "no mask"]


def expected(fill_mask, tokenizer, sentence):
  """Probabilities [M, V] by the Python tokenizer and a batch of one."""
  ids = [tokenizer.cls_id]
  for index, part in enumerate(sentence.split("[MASK]")):
    ids += [tokenizer.mask_id] * (index > 0) + tokenizer.encode(part)
  ids.append(tokenizer.sep_id)
  masks = [i for i, x in enumerate(ids) if x == tokenizer.mask_id]
  outputs = fill_mask.model(
    {
      "input_ids": tf.constant([ids]),
      "masked_lm_positions": tf.constant([masks], tf.int32),
    }
  )
  return masks, tf.nn.softmax(outputs["masked_lm_logits"])[0].numpy()


def test_equals_the_model_called_by_hand(fill_mask, tokenizer):
  answers = fill_mask.fill_mask(tf.constant(SENTENCES))
  assert answers["tokens"].shape == [3, 2, K]
  for row, sentence in enumerate(SENTENCES[:2]):
    masks, chances = expected(fill_mask, tokenizer, sentence)
    for index, position in enumerate(masks):
      assert answers["mask_positions"][row, index] == position
      best = np.argsort(-chances[index])[:K]
      np.testing.assert_array_equal(answers["token_ids"][row, index], best)
      np.testing.assert_allclose(
        answers["probabilities"][row, index], chances[index][best], atol=1e-5
      )
      tokens = [t.decode() for t in answers["tokens"][row, index].numpy()]
      assert tokens == [
        tokenizer.id_to_piece(int(i)).replace("\u2581", "") for i in best
      ]


def test_missing_masks_are_empty(fill_mask):
  answers = fill_mask.fill_mask(tf.constant(SENTENCES))
  assert answers["mask_positions"].numpy().tolist()[2] == [-1, -1]
  assert answers["tokens"].numpy()[2].tolist() == [[b""] * K] * 2
  assert np.all(answers["probabilities"].numpy()[2] == 0)
  nothing = fill_mask.fill_mask(tf.constant(["no mask at all"]))
  assert nothing["tokens"].shape == [1, 0, K]


def test_saved_model_in_a_clean_process(fill_mask, tmp_path):
  fill_mask.save(str(tmp_path))
  saved = saved_model_pb2.SavedModel.FromString(
    (tmp_path / "saved_model.pb").read_bytes()
  )
  functions = saved.meta_graphs[0].graph_def.library.function
  # A server need not have XLA.
  assert functions
  assert not any(f.attr["_XlaMustCompile"].b for f in functions)
  result = subprocess.run(
    [sys.executable, "-I", "-c", _CLIENT, str(tmp_path)]
    + [json.dumps(SENTENCES)],
    cwd="/",
    capture_output=True,
    text=True,
    check=True,
  )
  served = json.loads(result.stdout.split("RESULT")[1])
  answers = fill_mask.fill_mask(tf.constant(SENTENCES))
  np.testing.assert_allclose(
    served["probabilities"], answers["probabilities"], atol=1e-6
  )
  np.testing.assert_array_equal(
    served["mask_positions"], answers["mask_positions"]
  )
  assert (
    served["tokens"][0][0][0] == answers["tokens"][0, 0, 0].numpy().decode()
  )


def test_bad_settings_are_refused(fill_mask, model_file):
  text_layer = fill_mask.text_layer
  with pytest.raises(ValueError, match="top_k must be between 1 and"):
    serving.FillMask(fill_mask.model, text_layer, 0)
  longer = text_layers.FillMaskTextLayer(text_layer.text_layer, MAX_LENGTH + 1)
  with pytest.raises(ValueError, match="14 exceeds the model's 13"):
    serving.FillMask(fill_mask.model, longer)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
