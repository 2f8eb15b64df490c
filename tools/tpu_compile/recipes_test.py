"""Tests that TPU recipes, and TPU commands in documents, fit into memory.

docs/tpu_rows.jsonl holds the steps that the TPU's compiler has compiled, with
their memory; the page docs/tpu.md says how to add one. A step that differs from
all of them in any setting is unknown and fails. Nothing is compiled here.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shlex

import pytest

from official_albert import files, modeling
from official_albert.tasks import pretraining
from official_albert.tools.tpu_compile import rows
from official_albert.tools.tpu_compile.rows import Step

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DOCUMENTS = [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")]
_RECIPES = [x for x in pretraining.RECIPES.values() if x.tpu]
_GIB = 2**30
_PROGRAMS = "run_pretraining|run_finetuning"
_FOLDERS = ("input_dir", "model_dir", "output_dir")
# The flags that may occur: those of the step, then those without influence.
_FLAGS = {
  *("preset", "task", "max_seq_length", "precision", "optimizer"),
  *("train_batch_size", "gradient_accumulation_steps"),
  *("recipe", "mode", "distribution", "tpu", "random_seed", *_FOLDERS),
  *("data_dir", "init_checkpoint", "eval_batch_size", "eval_steps"),
  *("num_train_steps", "num_warmup_steps"),
}


def key(tpu: str, step: Step) -> tuple[str, str]:
  """Returns what equal steps on a kind of TPU have in common."""
  # The default and its value are the same step.
  step = dataclasses.replace(step, max_predictions_per_seq=step.predictions)
  return re.match(r"v\d+\w*", tpu)[0], step.to_json()


_ROWS = {
  key(row.topology, row.step): row
  for row in map(
    rows.Row.from_json, (_ROOT / "docs/tpu_rows.jsonl").read_text().splitlines()
  )
}


def check(tpu: str, step: Step) -> rows.Row:
  """Returns the step's row; fails unless it was compiled and fits."""
  row = _ROWS.get(key(tpu, step))
  assert row, f"docs/tpu_rows.jsonl has no row for {tpu}: {step}"
  assert row.compiled.fits, row
  return row


def step_of(tpu: str, values, **settings) -> Step:
  """Returns what a core or chip of `tpu`, such as v3-8, computes in an update.

  `values` are the flags of the training, with the optimizer and the preset;
  `settings` are fields of the step that are not flags.
  """
  unknown = values.keys() - _FLAGS
  assert not unknown, f"this test does not know the flags {unknown}"
  batch_size, rest = divmod(
    int(values["train_batch_size"]), int(tpu.split("-")[1])
  )
  assert not rest, values
  return Step(
    modeling.AlbertConfig.from_preset(values["preset"]).to_dict(),
    batch_size=batch_size,
    gradient_accumulation_steps=int(
      values.get("gradient_accumulation_steps", 1)
    ),
    optimizer=values["optimizer"],
    precision=values.get("precision", "float32"),
    **settings,
  )


def pretraining_step(recipe, changes) -> Step:
  """Returns the step of a recipe with changed flags."""
  return step_of(
    recipe.tpu,
    {"optimizer": "lamb", **recipe.flags, **changes},
    max_seq_length=recipe.data["max_seq_length"],
  )


@pytest.mark.parametrize("recipe", _RECIPES, ids=lambda recipe: recipe.name)
def test_recipes_fit(recipe):
  step = pretraining_step(recipe, {})
  check(recipe.tpu, step)
  # An evaluation has no gradients, so a batch that trains can be evaluated.
  assert recipe.settings["eval_batch_size"] == (
    recipe.batch // step.gradient_accumulation_steps
  )


def test_every_size_has_a_recipe_for_each_tpu():
  assert len(_RECIPES) == 12
  slices = {(recipe.preset, recipe.tpu) for recipe in _RECIPES}
  for size in ("base", "large", "xlarge", "xxlarge"):
    assert {(f"albert_{size}_v2", tpu) for tpu in ("v3-8", "v5e-8")} <= slices


def check_commands(text) -> list[str]:
  """Checks a document's commands for TPUs; returns their programs.

  Their TPU is that of the latest `--accelerator-type` in the document.
  """
  found, tpu, recipe = [], "", None
  blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
  for line in "".join(blocks).replace("\\\n", " ").splitlines():
    created = re.search(r"--accelerator-type=(\S+)", line)
    if created:
      tpu = created[1].replace("v5litepod", "v5e")
    command = re.search(rf"-m tools\.({_PROGRAMS}) (.*)", line)
    if not command:
      continue
    program, arguments = command[1], shlex.split(command[2], comments=True)
    values = dict(x.lstrip("-").partition("=")[::2] for x in arguments)
    own = None
    if "recipe" in values:
      own = pretraining.get_recipe(values["recipe"])
    if "tpu" not in values and not (own and own.tpu):
      continue
    found.append(program)
    if {**(own.settings if own else {}), **values}.get("tpu") != "local":
      # The hosts of a slice see no folder of this machine.
      folders = [values[name] for name in _FOLDERS if name in values]
      assert all(map(files.is_remote, folders)), values
    recipe = own or recipe
    assert recipe and recipe.tpu == tpu, values
    if program == "run_pretraining":
      assert own, f"no recipe: {values}"
      check(tpu, pretraining_step(own, values))
      continue
    # The encoder is that of the latest recipe. MNLI's recipe has no dropout in
    # it, as the presets.
    assert values["task"] == "mnli"
    flags = {"optimizer": "adamw", "preset": recipe.preset, **values}
    length = int(values["max_seq_length"])
    check(
      tpu, step_of(tpu, flags, task="classification", max_seq_length=length)
    )
  return found


def test_commands_in_documents_fit():
  found = {path.name: check_commands(path.read_text()) for path in _DOCUMENTS}
  assert found["README.md"] == ["run_pretraining"]
  assert found["tpu.md"].count("run_pretraining") >= 2
  assert "run_finetuning" in found["tpu.md"]


@pytest.mark.parametrize(
  "arguments, reason",
  [
    ("--recipe=base_v5e_8 --gradient_accumulation_steps=1", "has no row"),
    ("--recipe=base_v5e_8 --train_batch_size=8192", "has no row"),
    ("--recipe=base_v5e_8 --precision=float32", "has no row"),
    ("--recipe=base_v5e_8 --optimizer=adamw", "has no row"),
    ("--recipe=base_v5e_8 --preset=albert_base_v1", "has no row"),  # Dropout.
    ("--recipe=base_v5e_8 --recompute_activations", "does not know"),
    ("--recipe=base_v5e_8 --tpu=slice --model_dir=run", "run"),
    ("--recipe=base_v3_8", "base_v3_8"),  # For another TPU.
    ("--distribution=tpu --tpu=local --preset=albert_base_v2", "no recipe"),
  ],
)
def test_commands_that_do_not_fit_are_found(arguments, reason):
  train = "python -m tools.run_pretraining \\\n "
  text = (
    "```sh\ngcloud x --accelerator-type=v5litepod-8\n"
    f"{train} --recipe=base_v5e_8  # Fits.\n"
  )
  assert check_commands(f"{text}```") == ["run_pretraining"]
  with pytest.raises(AssertionError, match=reason):
    check_commands(f"{text}{train} {arguments}\n```")


def test_the_table_of_recipes_has_the_compilers_memory():
  text = (_ROOT / "docs/tpu.md").read_text()
  for recipe in _RECIPES:
    (line,) = re.findall(rf"^\| {recipe.name} .*$", text, re.MULTILINE)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    step = pretraining_step(recipe, {})
    micro_batches = step.gradient_accumulation_steps
    assert cells == [
      recipe.name,
      recipe.tpu,
      f"{recipe.batch:,}",
      f"{micro_batches} x {step.batch_size // micro_batches}",
      f"{recipe.settings['num_train_steps']:,}",
      f"{check(recipe.tpu, step).compiled.used / _GIB:.2f} GiB",
      f"{recipe.expected_time.split()[0]} h",
    ]
