"""Tests of the recipes: they hold together, and claim nothing that was not run.

That their flags exist, and are taken, is in tools/recipe_flags_test.
"""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from official_albert import modeling, training
from tasks.pretraining import recipes

ALL = list(recipes.RECIPES.values())


def each(function):
  return pytest.mark.parametrize("recipe", ALL, ids=lambda r: r.name)(function)


def test_every_size_has_a_recipe_on_every_hardware():
  names = {
    f"{size}_{place}"
    for size in ("base", "large", "xlarge", "xxlarge")
    for place in ("tpu", "gpu", "cpu")
  }
  assert set(recipes.RECIPES) == names | {"quickstart"}
  for name, recipe in recipes.RECIPES.items():
    assert recipe.name == name
    if name != "quickstart":
      assert recipe.preset == f"albert_{name.split('_')[0]}_v2"


@each
def test_settings_hold_together(recipe):
  names = {field.name for field in dataclasses.fields(training.TrainConfig)}
  settings = {k: v for k, v in recipe.settings.items() if k in names}
  settings["learning_rate"] = recipe.learning_rate
  # Refuses steps, warm-up, optimizer, batch and micro-batches that do not go
  # with each other.
  training.TrainConfig(model_dir="unused", seed=recipe.seed, **settings)
  positions = modeling.PRESETS[recipe.preset].max_position_embeddings
  assert recipe.data["max_seq_length"] <= positions
  # 15% of the tokens have room.
  predictions = recipe.data["max_predictions_per_seq"]
  assert predictions >= round(0.15 * recipe.data["max_seq_length"])


@each
def test_only_what_was_run_has_a_number(recipe):
  assert recipe.hardware and recipe.expected_time
  if recipe.name == "quickstart":
    assert "4.367" in recipe.expected and "tools.quickstart" in recipe.run
  else:
    assert (recipe.run, recipe.expected) == ("not yet run", "")


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
  if recipe.name == "quickstart":
    assert recipe.learning_rate == 0.0015
    return
  assert "learning_rate" not in recipe.settings
  expected = 0.00176 * (recipe.batch / 4096) ** 0.5
  np.testing.assert_allclose(recipe.learning_rate, expected, rtol=1e-12)


def test_a_gpu_holds_what_a_core_of_the_pod_holds():
  for size in ("base", "large", "xlarge", "xxlarge"):
    tpu, gpu = (
      recipes.get_recipe(f"{size}_tpu"),
      recipes.get_recipe(f"{size}_gpu"),
    )
    cores = int(tpu.hardware.split("v3-")[1].split()[0])
    micro = gpu.batch // gpu.settings["gradient_accumulation_steps"]
    assert tpu.batch // cores == micro
    assert f"{micro} a core" in tpu.hardware


def test_operations_are_those_that_the_task_counts():
  recipe = recipes.get_recipe("quickstart")
  per_example = recipe.operations / recipe.batch / 8600
  expected = recipes.training_flops(modeling.PRESETS["albert_tiny"], 64, 10)
  assert per_example == expected
  # By hand: layers, projection and pooler, then the head; times 3.
  s, h, i, e, v, p = 64, 128, 512, 128, 30000, 10
  layers = 4 * (8 * s * h * h + 4 * s * s * h + 4 * s * h * i)
  # The last layer's rows that no head looks at.
  layers -= (s - p - 1) * (4 * h * h + 4 * s * h + 4 * h * i)
  head = 2 * p * e * (h + v)
  assert expected == 3 * (layers + 2 * h * h + head)
  # 2.0e16 operations at 2e11 a second are 28 hours.
  assert recipes.get_recipe("base_cpu").expected_time.startswith(
    "28 hours at 0.2"
  )


def test_unknown_name_gets_the_nearest():
  with pytest.raises(ValueError, match="'bas_gpu'; did you mean base_gpu or"):
    recipes.get_recipe("bas_gpu")
  with pytest.raises(ValueError, match="did you mean base_tpu or .*quickstart"):
    recipes.get_recipe("qqqqq")


def test_a_recipe_without_a_run_has_no_number():
  recipe = recipes.get_recipe("base_cpu")
  with pytest.raises(ValueError, match="recipe base_cpu must have an expected"):
    dataclasses.replace(recipe, expected="loss 2")
  with pytest.raises(ValueError, match="recipe base_cpu must have an expected"):
    dataclasses.replace(recipe, run="python -m something")
  with pytest.raises(ValueError, match="unknown preset 'albert_bas'"):
    dataclasses.replace(recipe, preset="albert_bas")
  with pytest.raises(dataclasses.FrozenInstanceError):
    recipe.preset = "albert_tiny"
  assert isinstance(recipes.RECIPES, types.MappingProxyType)


_CONFIG = modeling.AlbertConfig(
  vocab_size=97,
  embedding_size=6,
  hidden_size=10,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=14,
)


def _product(rows, inner, columns):
  return 2 * rows * inner * columns


def test_every_product_is_counted_three_times():
  s, p = 7, 2
  rows = p + 1
  whole = 4 * _product(s, 10, 10) + 2 * 2 * _product(s, 5, s)
  whole += _product(s, 10, 14) + _product(s, 14, 10)
  # Keys and values are of all positions, the rest of the three that are asked.
  last = 2 * _product(s, 10, 10) + 2 * _product(rows, 10, 10)
  last += 2 * 2 * _product(rows, 5, s)
  last += _product(rows, 10, 14) + _product(rows, 14, 10)
  others = _product(s, 6, 10) + _product(1, 10, 10)
  head = _product(p, 10, 6) + _product(p, 6, 97)
  assert recipes.training_flops(_CONFIG, s, p) == 3 * (
    whole + last + others + head
  )


def test_no_more_rows_are_counted_than_there_are():
  every = recipes.training_flops(_CONFIG, 7, 6)
  more = recipes.training_flops(_CONFIG, 7, 8)
  assert more - every == 3 * 2 * (_product(1, 10, 6) + _product(1, 6, 97))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
