"""Tests of selecting a model's weights, and of tokenizer files."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from official_albert import AlbertConfig
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable as portable_checkpoint
from official_albert.checkpoints import tokenizer_files
from official_albert.testing import toy_vocabulary

_CONFIG = AlbertConfig(
  vocab_size=13,
  embedding_size=4,
  hidden_size=6,
  num_hidden_layers=1,
  num_attention_heads=3,
  intermediate_size=5,
  max_position_embeddings=7,
)


def _stored(head="pretraining", classes=0):
  return {
    row.tf1: row.shape_in(_CONFIG, classes)
    for row in checkpoint_names.rows(_CONFIG, head)
  }


def _select(stored, **arguments):
  return portable_checkpoint.select(
    "there", _CONFIG, stored, lambda name: np.zeros(stored[name]), **arguments
  )


def test_values_are_read_on_access():
  asked = []

  def load(name):
    asked.append(name)
    return np.full([2], len(name))

  tensors = portable_checkpoint.LazyTensors({"a": [2], "bc": [2]}, load)
  assert portable_checkpoint.shapes_of(tensors) == {"a": (2,), "bc": (2,)}
  assert list(tensors) == ["a", "bc"] and "a" in tensors and not asked
  assert tensors["bc"].tolist() == [2, 2]
  assert asked == ["bc"]
  with pytest.raises(KeyError):
    tensors["d"]


@pytest.mark.parametrize(
  "head, classes",
  [
    ("none", 0),
    ("masked_lm", 0),
    ("pretraining", 0),
    ("classification", 3),
    ("regression", 1),
    ("squad1", 0),
    ("squad2", 0),
  ],
)
def test_the_head_is_detected(head, classes):
  checkpoint = _select(_stored(head, classes))
  assert checkpoint.head == head
  assert len(checkpoint.rows) == len(_stored(head, classes))
  assert not checkpoint.missing and not checkpoint.unexpected
  assert checkpoint.step == 0
  assert bool(checkpoint.notes) == (head == "regression")


def test_names_that_are_not_carried():
  stored = {**_stored(), "beta1_power": (), "global_step": ()}
  checkpoint = _select(stored, head="none")
  assert len(checkpoint.unexpected) == 8
  assert checkpoint.unexpected["beta1_power"].endswith("with head none")
  assert "global_step" in checkpoint.tensors


def test_optimizer_state_on_request():
  stored = _stored()
  for name in list(stored):
    stored[f"{name}/adam_m"] = stored[f"{name}/adam_v"] = stored[name]
  without = _select(stored)
  assert not without.slots
  assert set(without.unexpected.values()) == {
    "optimizer state, carried on request only"
  }
  assert len(_select(stored, include_optimizer=True).slots) == 2 * 32
  del stored["bert/pooler/dense/bias/adam_m"]
  with pytest.raises(ValueError, match="holds 63 of the 64 optimizer slots"):
    _select(stored, include_optimizer=True)


def test_missing_variables_and_other_shapes():
  stored = _stored()
  del stored["bert/embeddings/LayerNorm/beta"]
  with pytest.raises(ValueError, match="lacks bert/embeddings/LayerNorm/beta"):
    _select(stored)
  stored = {**_stored(), "bert/embeddings/word_embeddings": (14, 4)}
  with pytest.raises(ValueError, match=r"shape \[14, 4\] in there but \[13, 4"):
    _select(stored)
  with pytest.raises(ValueError, match="no variable with an ALBERT name"):
    _select({"weights": (3,)})
  with pytest.raises(ValueError, match="has no squad1 head"):
    _select(_stored(), head="squad1")
  with pytest.raises(ValueError, match="unknown head 'squad'"):
    _select(_stored(), head="squad")


def test_some_heads_need_no_pooler():
  stored = _stored("squad1")
  stored = {n: s for n, s in stored.items() if "pooler" not in n}
  assert len(_select(stored).missing) == 2
  stored = {n: s for n, s in _stored().items() if "pooler" not in n}
  with pytest.raises(ValueError, match="lacks bert/pooler"):
    _select(stored)


def test_a_tokenizer_is_opened_by_its_kind(tmp_path):
  content = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ntea\n"
  (tmp_path / "vocab.txt").write_bytes(content)
  path = str(tmp_path / "vocab.txt")
  file = tokenizer_files.TokenizerFile(path, "wordpiece", False)
  assert file.sha256() == hashlib.sha256(content).hexdigest()
  tokenizer = file.open()
  assert tokenizer.kind == "wordpiece" and not tokenizer.lower_case
  assert tokenizer.encode("tea Tea") == [5, 1]
  model = str(tmp_path / "tokenizer.model")
  (tmp_path / "tokenizer.model").write_bytes(toy_vocabulary.numbers(23))
  file = tokenizer_files.TokenizerFile(model, "sentencepiece")
  assert file.open().kind == "sentencepiece"
  with pytest.raises(ValueError, match="vocab.txt"):
    tokenizer_files.TokenizerFile(path, "sentencepiece").open()


def test_the_tokenizer_given_by_flags(tmp_path):
  path = str(tmp_path / "vocab.txt")
  chosen = tokenizer_files.chosen_tokenizer
  assert chosen("", "", True) is None
  with pytest.raises(FileNotFoundError, match="vocab.txt does not exist"):
    chosen("", path, True)
  (tmp_path / "vocab.txt").touch()
  assert chosen("", path, False) == tokenizer_files.TokenizerFile(
    path, "wordpiece", False
  )
  assert chosen(path, "", True).kind == "sentencepiece"
  with pytest.raises(ValueError, match="two tokenizers for one model"):
    chosen("a", "b", True)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
