"""--recipe and --list_recipes: the values of a recipe as defaults of flags."""

from __future__ import annotations

from typing import Iterator, Optional

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


def mark_as_required(*names: str) -> None:
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
  """Sets the flags that are not given to the values of --recipe, if given."""
  if not _RECIPE.value:
    return None
  recipe = pretraining.get_recipe(_RECIPE.value)
  for name, value in recipe.flags.items():
    # --albert_config_file replaces the preset.
    if name != "preset" or not flags.FLAGS["albert_config_file"].present:
      flags.FLAGS.set_default(name, str(value))
  return recipe


def describe(
  recipe: Optional[pretraining.Recipe], manifest: tfrecords.Manifest
) -> Iterator[str]:
  """Yields lines about the recipe, if there is one, for the log."""
  if not recipe:
    return
  given = " ".join(f"--{name}={value}" for name, value in recipe.flags.items())
  yield f"recipe {recipe.name} ({recipe.run}): {given}"
  expected = f"; expected {recipe.expected}" if recipe.expected else ""
  yield f"  for {recipe.hardware}: {recipe.expected_time}{expected}"
  changed = [f"--{n}" for n in recipe.flags if flags.FLAGS[n].present]
  if changed:
    yield f"  changed by hand: {', '.join(changed)}"
  length = recipe.data["max_seq_length"]
  if manifest.max_seq_length != length:
    yield (
      f"note: recipe {recipe.name} is for sequences of {length} tokens, the "
      f"data has {manifest.max_seq_length}."
    )


def table() -> str:
  """Returns all recipes as a Markdown table."""
  return markdown.table(
    "recipe|preset|optimizer, peak rate|batch|micro-batches|steps|S|FLOPs"
    "|hardware|time|run".split("|"),
    [
      (
        recipe.name,
        recipe.preset,
        recipe.settings.get("optimizer", "lamb")
        + f" {recipe.learning_rate:.3g}",
        f"{recipe.batch:,}",
        recipe.settings.get("gradient_accumulation_steps", 1),
        f"{recipe.settings['num_train_steps']:,}",
        recipe.data["max_seq_length"],
        f"{recipe.operations:.1e}",
        recipe.hardware,
        recipe.expected_time,
        recipe.run if recipe.run == pretraining.NOT_RUN else recipe.expected,
      )
      for recipe in pretraining.RECIPES.values()
    ],
  )
