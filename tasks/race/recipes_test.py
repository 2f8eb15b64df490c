"""Tests of the recipes against the published tables."""

from __future__ import annotations

import dataclasses

import pytest

from tasks.race import recipes

# Paper, Table 14: rate, batch, steps, warm-up, both dropouts, length.
TABLE_14 = (2e-5, 32, 12000, 1000, 0.1, 0.1, 512)


def test_race_is_table_14():
  assert dataclasses.astuple(recipes.RECIPES["race"]) == (*TABLE_14, 128)


def test_v2_differs_in_rate_and_dropout_only():
  first, second = (
    dataclasses.asdict(recipes.RECIPES[name]) for name in ("race", "race_v2")
  )
  changes = {key: second[key] for key in first if first[key] != second[key]}
  assert changes == {"learning_rate": 1e-5, "albert_dropout": 0.0}


def test_recipes_cannot_be_changed_by_accident():
  with pytest.raises(dataclasses.FrozenInstanceError):
    recipes.RECIPES["race"].learning_rate = 1.0
  with pytest.raises(TypeError):
    recipes.RECIPES["other"] = recipes.RECIPES["race"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
