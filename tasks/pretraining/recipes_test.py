"""Tests that recipes are consistent; cli/flags_test.py tests their flags."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from official_albert import modeling, training
from official_albert.tasks.pretraining import recipes

ALL = list(recipes.RECIPES.values())


def each(function):
  return pytest.mark.parametrize("recipe", ALL, ids=lambda r: r.name)(function)


def test_every_size_has_a_recipe_on_every_hardware():
  names = {
    f"{size}_{place}"
    for size in ("base", "large", "xlarge", "xxlarge")
    for place in ("tpu", "v5e_8", "v3_8", "gpu", "gpu_8", "cpu")
  }
  assert set(recipes.RECIPES) == names | {"small_budget", "quickstart"}
  for name, recipe in recipes.RECIPES.items():
    assert recipe.name == name
    if name not in ("small_budget", "quickstart"):
      assert recipe.preset == f"albert_{name.split('_')[0]}_v2"


@each
def test_settings_are_consistent(recipe):
  names = {field.name for field in dataclasses.fields(training.TrainConfig)}
  settings = {k: v for k, v in recipe.settings.items() if k in names}
  settings["learning_rate"] = recipe.learning_rate
  # Refuses steps, warm-up, optimizer, batch and micro-batches that conflict.
  training.TrainConfig(model_dir="unused", seed=recipe.seed, **settings)
  positions = modeling.PRESETS[recipe.preset].max_position_embeddings
  assert recipe.data["max_seq_length"] <= positions
  # Many epochs of one cut would show the same pairs again and again.
  assert recipe.data["masking"] == "dynamic"
  assert recipe.data["dupe_factor"] >= 8
  assert "max_predictions_per_seq" not in recipe.data  # The rule's.


@pytest.mark.parametrize("size", ["base", "large", "xlarge", "xxlarge"])
def test_the_papers_setting(size):
  recipe = recipes.get_recipe(f"{size}_tpu")
  assert recipe.learning_rate == 0.00176  # Exactly.
  settings = recipe.settings
  assert settings["train_batch_size"] == 4096
  assert settings["num_train_steps"] == 125_000
  assert settings["num_warmup_steps"] == 3125
  assert "optimizer" not in settings  # LAMB.
  assert recipe.data["max_seq_length"] == 512
  assert recipe.data["short_seq_prob"] == 0.1


@each
def test_small_batches_follow_the_square_root_rule(recipe):
  expected = 0.00176 * (recipe.batch / 4096) ** 0.5
  if recipe.name in ("small_budget", "quickstart"):
    expected = 0.003
  np.testing.assert_allclose(recipe.learning_rate, expected, rtol=1e-12)


def test_operations_by_hand():
  recipe = recipes.get_recipe("quickstart")
  per_example = recipe.operations / recipe.batch / 6000
  expected = modeling.PRESETS["albert_tiny"].pretraining_flops(64, 19)
  assert per_example == expected
  # By hand: layers, projection and pooler, then the head; times 3.
  s, h, i, e, v, p = 64, 128, 512, 128, 30000, 19
  layers = 4 * (8 * s * h * h + 4 * s * s * h + 4 * s * h * i)
  # The last layer's rows that no head looks at.
  layers -= (s - p - 1) * (4 * h * h + 4 * s * h + 4 * h * i)
  head = 2 * p * e * (h + v)
  assert expected == 3 * (layers + 2 * h * h + head)


def test_expected_time():
  # 2.0e16 operations at 2e11 a second are 28 hours.
  recipe = recipes.get_recipe("base_cpu")
  assert recipe.expected_time.startswith("28 hours at 0.2")
  # 1.4e20 operations at 8 x 197e12 x 0.3 a second are 83 hours.
  recipe = recipes.get_recipe("base_v5e_8")
  assert recipe.expected_time.startswith("83 hours at 30% of the peak")


def test_unknown_name_gets_the_nearest():
  with pytest.raises(ValueError, match="'bas_gpu'; did you mean base_gpu or"):
    recipes.get_recipe("bas_gpu")
  with pytest.raises(
    ValueError, match="recipe 'qqqqq'; There are .*quickstart"
  ):
    recipes.get_recipe("qqqqq")
