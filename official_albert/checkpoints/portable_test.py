"""Tests of selecting a model's weights."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert import AlbertConfig
from official_albert.checkpoints import checkpoint_files, portable
from official_albert.checkpoints import names as checkpoint_names

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
  """Returns shapes by name."""
  return {
    row.tf1: row.shape_in(_CONFIG, classes)
    for row in checkpoint_names.rows(_CONFIG, head)
  }


def _value(name, shape, asked=None):
  def read():
    asked.append(name)
    return np.full(shape, len(name))

  return checkpoint_files.StoredValue(name, shape, read)


def _select(stored, **arguments):
  values = {name: _value(name, shape) for name, shape in stored.items()}
  return portable.select("there", _CONFIG, values, **arguments)


def test_values_are_read_on_access():
  asked = []
  names = ("a", "bc")
  tensors = portable.LazyTensors({n: _value(n, (2,), asked) for n in names})
  assert portable.shapes_of(tensors) == {"a": (2,), "bc": (2,)}
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
  assert set(without.unexpected.values()) == {portable.OPTIMIZER_STATE}
  assert len(_select(stored, include_optimizer=True).slots) == 2 * 32
  del stored["bert/pooler/dense/bias/adam_m"]
  with pytest.raises(ValueError, match="holds 63 of the 64 optimizer slots"):
    _select(stored, include_optimizer=True)


@pytest.mark.parametrize(
  "changes, head, message",
  [
    ({"bert/embeddings/LayerNorm/beta": None}, "", "lacks bert/embeddings/Lay"),
    ({"bert/pooler/dense/bias": None}, "", "lacks bert/pooler/dense/bias"),
    (
      {"bert/embeddings/word_embeddings": (14, 4)},
      "",
      r"shape \[14, 4\] in there but \[13, 4",
    ),
    (None, "", "no variable with an ALBERT name; its first is 'weights'"),
    ({}, "squad1", "has no squad1 head"),
    ({}, "squad", "unknown head 'squad'"),
  ],
)
def test_weights_that_do_not_fit(changes, head, message):
  stored = {"weights": (3,)} if changes is None else {**_stored(), **changes}
  stored = {name: shape for name, shape in stored.items() if shape}
  with pytest.raises(ValueError, match=message):
    _select(stored, head=head)


def test_some_heads_need_no_pooler():
  stored = {n: s for n, s in _stored("squad1").items() if "pooler" not in n}
  checkpoint = _select(stored)
  assert len(checkpoint.missing) == 2 and not checkpoint.has_pooler


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
