"""SentencePiece models and WordPiece vocabularies."""

from __future__ import annotations

import math
import os

import pytest
import tensorflow as tf
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization import in_graph
from official_albert.tools.testing import fuzz

_LINES = ["in 1922, the ferry waited until may (7,9).", "the north harbour, 66"]
_TEXTS = (
  "",
  "The harbour, in 1922,",
  "\u00dc\ufb00\u2177 \ud55c\uad6d \u0301x",
  "x" * 999,
)
_PIECES = (
  *("", "\0", "a b", "x" * 9000, *"\u2581 \u2581the <unk> [MASK] 9,".split()),
)
_SCORES = (math.nan, math.inf, -math.inf, 3e38, -3e38, 0.0)
_SETTINGS = "model_type unk_id byte_fallback pad_id".split()
_WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the ##a \u4e2d har".split()
_MODEL, _VOCABULARY = "tokenizer.model", "vocab.txt"


def _use(tokenizer: tokenization.Tokenizer) -> None:
  for text in _TEXTS:
    ids = tokenizer.encode(text)
    tokenizer.tokenize(text)
    tokenizer.decode(ids)
    tokenizer.encode_with_offsets(text)
  tokenizer(_TEXTS, max_seq_length=9)
  _ = tokenizer.word_start_table


def _prepare_model(folder: str) -> None:
  model = toy_vocabulary.train(_LINES * 30, 60)
  files.write_bytes(os.path.join(folder, _MODEL), model)


def _read_model(folder: str) -> None:
  _use(tokenization.open_tokenizer(os.path.join(folder, _MODEL)))


def _read_in_graph(folder: str) -> None:
  """Uses tensorflow_text, which has an older SentencePiece in it."""
  path = os.path.join(folder, _MODEL)
  layer = in_graph.SentencePieceTextLayer(path, True)
  layer.tokenize(tf.constant(_TEXTS))


@st.composite
def _damaged_model(draw, valid: bytes) -> bytes:
  """Draws models with odd pieces, settings or rules of normalization."""
  model = sentencepiece_model_pb2.ModelProto.FromString(valid)
  for _ in range(draw(st.integers(1, 3))):
    place = draw(st.integers(0, len(model.pieces) - 1))
    piece = model.pieces[place]
    kind = draw(st.sampled_from("piece score type cut setting rules".split()))
    if kind == "piece":
      piece.piece = draw(fuzz.one_of(_PIECES))
    elif kind == "score":
      piece.score = draw(st.sampled_from(_SCORES))
    elif kind == "type":
      piece.type = draw(st.integers(1, 6))
    elif kind == "cut":
      del model.pieces[place]
    elif kind == "setting":
      name = draw(st.sampled_from(_SETTINGS))
      setattr(model.trainer_spec, name, draw(st.integers(1, 4)))
    else:
      rules = model.normalizer_spec
      rules.precompiled_charsmap = draw(
        fuzz.damaged_bytes(rules.precompiled_charsmap)
      )
  return model.SerializeToString()


def _prepare_vocabulary(folder: str) -> None:
  text = "".join(f"{word}\n" for word in _WORDS)
  files.write_text(os.path.join(folder, _VOCABULARY), text)


def _read_vocabulary(folder: str) -> None:
  path = os.path.join(folder, _VOCABULARY)
  tokenizer = tokenization.open_tokenizer(vocab_file=path)
  _use(tokenizer)
  for id in range(min(tokenizer.vocab_size, 99)):
    tokenizer.marked_piece(id)


_TARGETS = {
  "sentencepiece": fuzz.Target(
    _MODEL,
    _prepare_model,
    lambda valid: fuzz.damaged_bytes(valid) | _damaged_model(valid),
    _read_model,
  ),
  "sentencepiece_in_graph": fuzz.Target(
    _MODEL, _prepare_model, _damaged_model, _read_in_graph
  ),
  "wordpiece": fuzz.Target(
    _VOCABULARY, _prepare_vocabulary, fuzz.damaged_bytes, _read_vocabulary
  ),
}


@pytest.mark.parametrize("name", _TARGETS)
def test_target(name, tmp_path):
  fuzz.check(_TARGETS[name], str(tmp_path))
