"""--recipe and --list_recipes: the values of a recipe as defaults of flags."""

from __future__ import annotations

from typing import Iterable, Optional

from absl import flags

import tfrecords
from tasks import pretraining
from tools.cli import markdown

_RECIPE = flags.DEFINE_string(
  "recipe",
  "",
  "Use the values of this recipe for flags that are not given; see "
  "--list_recipes.",
)
_LIST = flags.DEFINE_bool("list_recipes", False, "Print the recipes and exit.")


def mark_as_required(names: Iterable[str]) -> None:
  """Marks flags as required, except for --list_recipes."""
  for name in names:
    flags.register_multi_flags_validator(
      [name, "list_recipes"],
      lambda values, name=name: (
        values["list_recipes"] or values[name] is not None
      ),
      message=f"Flag --{name} must have a value other than None.",
    )


def listing() -> bool:
  """Prints the recipes if --list_recipes is given; returns whether it is."""
  if _LIST.value:
    print(table())
  return _LIST.value


def apply() -> Optional[pretraining.Recipe]:
  """Sets the flags that are not given to the values of the recipe.

  Returns:
    The recipe, or None without --recipe.

  Raises:
    ValueError: the recipe is unknown.
  """
  if not _RECIPE.value:
    return None
  recipe = pretraining.get_recipe(_RECIPE.value)
  for name, value in recipe.flags.items():
    # --albert_config_file replaces the preset.
    if name != "preset" or not flags.FLAGS["albert_config_file"].present:
      flags.FLAGS.set_default(name, str(value))
  return recipe


def describe(
  recipe: pretraining.Recipe, manifest: tfrecords.Manifest
) -> Iterable[str]:
  """Yields lines about the recipe for the log."""
  given = " ".join(f"--{name}={value}" for name, value in recipe.flags.items())
  yield f"recipe {recipe.name} ({recipe.run}): {given}"
  yield f"  for {recipe.hardware}: {recipe.expected_time}" + (
    f"; expected {recipe.expected}" if recipe.expected else ""
  )
  changed = [n for n in recipe.flags if flags.FLAGS[n].present]
  if changed:
    yield f"  changed by hand: {', '.join(f'--{name}' for name in changed)}"
  length = recipe.data["max_seq_length"]
  if manifest.max_seq_length != length:
    yield (
      f"note: recipe {recipe.name} is for sequences of {length} tokens, the "
      f"data has {manifest.max_seq_length}."
    )


_COLUMNS = {
  "recipe": lambda r: r.name,
  "preset": lambda r: r.preset,
  "optimizer, peak rate": lambda r: (
    f"{r.settings.get('optimizer', 'lamb')} {r.learning_rate:.3g}"
  ),
  "batch": lambda r: f"{r.batch:,}",
  "micro-batches": lambda r: str(
    r.settings.get("gradient_accumulation_steps", 1)
  ),
  "steps": lambda r: f"{r.settings['num_train_steps']:,}",
  "S": lambda r: str(r.data["max_seq_length"]),
  "FLOPs": lambda r: f"{r.operations:.1e}",
  "hardware": lambda r: r.hardware,
  "time": lambda r: r.expected_time,
  "run": lambda r: r.run if r.run == pretraining.NOT_RUN else r.expected,
}


def table() -> str:
  """Returns all recipes as a Markdown table."""
  return markdown.table(
    list(_COLUMNS),
    [
      [show(recipe) for show in _COLUMNS.values()]
      for recipe in pretraining.RECIPES.values()
    ],
  )
