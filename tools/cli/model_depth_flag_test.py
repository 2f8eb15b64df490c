"""Tests of what --num_hidden_layers asks for."""

from __future__ import annotations

import types

import pytest

from official_albert import AlbertConfig
from tools.cli import model_depth_flag


def give(monkeypatch, value):
  holder = types.SimpleNamespace(value=value)
  monkeypatch.setattr(model_depth_flag, "NUM_HIDDEN_LAYERS", holder)


def test_a_depth_for_a_model_that_shares_everything(monkeypatch):
  config = AlbertConfig(num_hidden_layers=5)
  give(monkeypatch, 0)
  assert not model_depth_flag.given()
  assert model_depth_flag.at_depth(config) is config
  give(monkeypatch, 7)
  assert model_depth_flag.given()
  assert model_depth_flag.at_depth(config).num_hidden_layers == 7
  give(monkeypatch, -1)
  with pytest.raises(ValueError, match="num_hidden_layers must be at least 1"):
    model_depth_flag.at_depth(config)
  with pytest.raises(ValueError, match="sharing 'none' .* cannot have -1"):
    model_depth_flag.at_depth(AlbertConfig.from_preset("bert_base"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
