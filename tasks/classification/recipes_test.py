"""Tests of the settings for one's own texts."""

from __future__ import annotations

import dataclasses

import pytest

from tasks.classification import recipes


def test_each_kind_of_data_has_one():
  assert list(recipes.RECIPES) == [
    f"text_{pair}{kind}"
    for pair in ("", "pair_")
    for kind in ("classification", "regression")
  ]


def test_they_cannot_be_changed_by_accident():
  recipe = recipes.RECIPES["text_regression"]
  with pytest.raises(dataclasses.FrozenInstanceError):
    recipe.learning_rate = 1.0


def test_values_are_within_what_the_paper_uses():
  """Table 14: rates 1e-5 to 5e-5, batches 16 to 128, dropouts 0 to 0.1."""
  for recipe in recipes.RECIPES.values():
    assert 1e-5 <= recipe.learning_rate <= 5e-5
    assert 16 <= recipe.train_batch_size <= 128
    assert recipe.albert_dropout == 0 and recipe.classifier_dropout == 0.1
    assert recipe.max_seq_length <= 512 and recipe.num_train_epochs > 0


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
