"""SentencePiece models and WordPiece vocabularies."""

from __future__ import annotations

import math
import os
from typing import Any, Sequence

import tensorflow as tf
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from official_albert import files, tokenization
from official_albert.testing import toy_vocabulary
from official_albert.tokenization import in_graph
from official_albert.tools.testing import fuzz, mutations

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
_WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the ##a \u4e2d har".split()


def _use(tokenizer: tokenization.Tokenizer) -> None:
  for text in _TEXTS:
    ids = tokenizer.encode(text)
    tokenizer.tokenize(text)
    tokenizer.decode(ids)
    tokenizer.encode_with_offsets(text)
  tokenizer(_TEXTS, max_seq_length=9)
  _ = tokenizer.word_start_table


def _model(folder: str) -> str:
  return os.path.join(folder, "tokenizer.model")


def _prepare_model(folder: str) -> None:
  files.write_bytes(_model(folder), toy_vocabulary.train(_LINES * 30, 60))


def _read_model(folder: str, content: Any) -> None:
  _use(tokenization.open_tokenizer(_model(folder)))


def _read_in_graph(folder: str, content: Any) -> None:
  """Uses tensorflow_text, which has an older SentencePiece in it."""
  layer = in_graph.make_text_layer("sentencepiece", _model(folder), True)
  layer.tokenize(tf.constant(_TEXTS))


def _damage_rules(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws models whose rules of normalization are damaged."""
  model = sentencepiece_model_pb2.ModelProto.FromString(valid)

  def change(rules: bytes) -> bytes:
    model.normalizer_spec.precompiled_charsmap = rules
    return model.SerializeToString()

  rules = model.normalizer_spec.precompiled_charsmap
  return mutations.damaged_bytes(rules).map(change)


def _damage_pieces(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws models with odd pieces and settings."""
  model = sentencepiece_model_pb2.ModelProto.FromString(valid)
  edit = st.tuples(
    st.integers(0, len(model.pieces) - 1),
    st.sampled_from([*_PIECES, *_SCORES, *range(1, 7), True, None]),
    st.sampled_from(["model_type", "unk_id", "byte_fallback", "pad_id"]),
    st.integers(0, 4),
  )

  def apply(edits) -> bytes:
    changed = sentencepiece_model_pb2.ModelProto.FromString(valid)
    for place, value, setting, number in edits:
      if value is True:
        setattr(changed.trainer_spec, setting, number or 1)
      elif place >= len(changed.pieces):
        continue
      elif value is None:
        del changed.pieces[place]
      elif isinstance(value, str):
        changed.pieces[place].piece = value
      elif isinstance(value, float):
        changed.pieces[place].score = value
      else:
        changed.pieces[place].type = value
    return changed.SerializeToString()

  return st.lists(edit, min_size=1, max_size=3).map(apply)


def _prepare_vocabulary(folder: str) -> Sequence[bytes]:
  return ["".join(f"{word}\n" for word in _WORDS).encode()]


def _read_vocabulary(folder: str, content: Any) -> None:
  path = os.path.join(folder, "vocab.txt")
  tokenizer = tokenization.open_tokenizer(vocab_file=path)
  _use(tokenizer)
  for id in range(min(tokenizer.vocab_size, 99)):
    tokenizer.marked_piece(id)


TARGETS = (
  fuzz.Target(
    "sentencepiece",
    _prepare_model,
    lambda valid: st.one_of(
      mutations.damaged_bytes(valid),
      _damage_pieces(valid),
      _damage_rules(valid),
    ),
    _read_model,
    "tokenizer.model",
  ),
  fuzz.Target(
    "sentencepiece_in_graph",
    _prepare_model,
    lambda valid: st.one_of(_damage_pieces(valid), _damage_rules(valid)),
    _read_in_graph,
    "tokenizer.model",
  ),
  fuzz.Target(
    "wordpiece",
    _prepare_vocabulary,
    mutations.damaged_bytes,
    _read_vocabulary,
    "vocab.txt",
  ),
)
