"""Tests that TPU recipes fit into the memory of their TPU.

docs/tpu_rows.jsonl holds the steps that the TPU's compiler has compiled, with
their memory; the page docs/tpu.md says how to add one. A step that differs from
all of them in any setting is unknown and fails. Nothing is compiled here.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

import pytest

from official_albert import modeling
from official_albert.tasks.pretraining import recipes
from official_albert.tools.tpu_compile.rows import Step

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_RECIPES = [x for x in recipes.RECIPES.values() if x.tpu]
# The flags that may occur: those of the step, then those without influence.
_FLAGS = {
  *("preset", "max_seq_length", "precision", "optimizer"),
  *("train_batch_size", "gradient_accumulation_steps"),
  *("distribution", "tpu", "random_seed", "eval_batch_size", "eval_steps"),
  *("num_train_steps", "num_warmup_steps"),
}


def key(tpu: str, step: Step) -> tuple[str, str]:
  """Returns what equal steps on a kind of TPU have in common."""
  text = json.dumps(dataclasses.asdict(step), sort_keys=True)
  return re.match(r"v\d+\w*", tpu)[0], text


_ROWS = {
  key(row["topology"], Step(**row["step"])): row["compiled"]
  for row in map(
    json.loads, (_ROOT / "docs/tpu_rows.jsonl").read_text().splitlines()
  )
}


def step_of(recipe) -> Step:
  """Returns what a core or chip of the recipe's TPU computes in an update."""
  flags = recipe.flags
  assert not flags.keys() - _FLAGS, "this test does not know a flag"
  size, rest = divmod(recipe.batch, int(recipe.tpu.split("-")[1]))
  assert not rest
  return Step(
    modeling.AlbertConfig.from_preset(recipe.preset).to_dict(),
    batch_size=size,
    gradient_accumulation_steps=int(
      flags.get("gradient_accumulation_steps", 1)
    ),
    optimizer=flags.get("optimizer", "lamb"),
    precision=flags.get("precision", "float32"),
    max_seq_length=recipe.data["max_seq_length"],
  )


@pytest.mark.parametrize("recipe", _RECIPES, ids=lambda recipe: recipe.name)
def test_recipes_fit(recipe):
  step = step_of(recipe)
  row = _ROWS.get(key(recipe.tpu, step))
  assert row, f"docs/tpu_rows.jsonl has no row for {recipe.tpu}: {step}"
  assert row["fits"]
  # An evaluation has no gradients, so a batch that trains can be evaluated.
  micro_batches = step.gradient_accumulation_steps
  assert recipe.settings["eval_batch_size"] == recipe.batch // micro_batches
  # The table of recipes has the compiler's memory.
  text = (_ROOT / "docs/tpu.md").read_text()
  (line,) = re.findall(rf"^\| {recipe.name} .*$", text, re.MULTILINE)
  assert [cell.strip() for cell in line.strip("|").split("|")] == [
    recipe.name,
    recipe.tpu,
    f"{recipe.batch:,}",
    f"{micro_batches} x {step.batch_size // micro_batches}",
    f"{recipe.settings['num_train_steps']:,}",
    f"{row['used'] / 2**30:.2f} GiB",
    f"{recipe.expected_time.split()[0]} h",
  ]


def test_every_size_has_a_recipe_for_each_tpu():
  assert len(_RECIPES) == 12
  slices = {(recipe.preset, recipe.tpu) for recipe in _RECIPES}
  for size in ("base", "large", "xlarge", "xxlarge"):
    assert {(f"albert_{size}_v2", tpu) for tpu in ("v3-8", "v5e-8")} <= slices
