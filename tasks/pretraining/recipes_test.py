"""Tests that recipes are consistent; cli/flags_test.py tests their flags."""

from __future__ import annotations

import dataclasses

import pytest

from official_albert import modeling, training
from official_albert.tasks.pretraining import data, recipes

ALL = [x for x in recipes.RECIPES.values() if not x.lengths]


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.name)
def test_settings_are_consistent(recipe):
  names = {field.name for field in dataclasses.fields(training.TrainConfig)}
  settings = {k: v for k, v in recipe.settings.items() if k in names}
  # Refuses steps, warm-up, optimizer, batch and micro-batches that conflict.
  config = training.TrainConfig("unused", seed=recipe.seed, **settings)
  is_small = recipe.name == "small_budget"
  rate = 0.003 if is_small else 0.00176 * (recipe.batch / 4096) ** 0.5
  assert config.learning_rate == pytest.approx(rate)
  assert config.num_warmup_steps == (
    config.num_train_steps // (10 if is_small else 40)
  )
  model = modeling.PRESETS[recipe.preset]
  length = recipe.data["max_seq_length"]
  assert length <= model.max_position_embeddings
  # Many epochs of one cut would show the same pairs again and again.
  assert recipe.data["masking"] == "dynamic"
  assert recipe.data["dupe_factor"] >= 8
  assert "max_predictions_per_seq" not in recipe.data  # The rule's.
  # The expected time.
  predictions = data.num_to_predict(length, data.MASKED_LM_PROB)
  operations = config.num_train_steps * recipe.batch
  operations *= model.pretraining_flops(length, predictions)
  if recipe.tpu:
    generation, count = recipe.tpu.split("-")
    # Peak in bfloat16 of a v3's core and a v5e's chip:
    # https://cloud.google.com/tpu/docs/v3 (123e12 a chip) and .../v5e.
    speed = 0.3 * int(count) * {"v3": 61.5e12, "v5e": 197e12}[generation]
  elif "GPU" in recipe.hardware:
    speed = 24 * 40e12 * recipe.settings.get("num_devices", 1)
  else:
    speed = 0.2e12
  expected = operations / speed / 3600
  if not is_small:
    assert recipe.expected_time.split()[0] == f"{expected:.0f}"


@pytest.mark.parametrize(
  "name, tokens, batch", [("h100_10min", 32_768, 512), ("quickstart", 4096, 64)]
)
def test_a_recipe_with_phases(name, tokens, batch):
  recipe = recipes.get_recipe(name)
  lists = {
    name: [*map(float, str(value).split(","))]
    for name, value in recipe.settings.items()
    if name.startswith(("phase_", "train_batch", "masked_"))
  }
  shares = lists.pop("masked_lm_prob")
  assert {len(x) for x in lists.values()} == {len(recipe.lengths)}
  assert sum(lists["phase_steps"]) == recipe.settings["num_train_steps"]
  assert 10 * recipe.settings["num_warmup_steps"] == sum(lists["phase_steps"])
  assert recipe.lengths[-1] == recipe.data["max_seq_length"]
  # Short sequences, few layers and many masks come first.
  for values in (recipe.lengths, lists["phase_layers"]):
    assert [*values] == sorted(values)
  assert shares == sorted(shares)[::-1] and len(shares) in (1, 3)
  # An update has about as many tokens in each phase.
  for length, size in zip(recipe.lengths, lists["train_batch_size"]):
    assert length * size == pytest.approx(tokens, rel=0.02)
  model = modeling.PRESETS[recipe.preset]
  assert lists["phase_layers"][-1] == model.num_hidden_layers
  assert recipe.batch == batch
