"""Tests that TPU recipes, and TPU commands in documents, fit into memory.

docs/tpu_rows.jsonl holds the memory that the TPU's compiler reports; the page
docs/tpu.md says how to add rows. Nothing is compiled here.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import NamedTuple

import pytest

from official_albert import modeling
from tasks import pretraining
from tools.tpu_compile import rows

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ROWS_FILE = _ROOT / "docs/tpu_rows.jsonl"
_ROWS = [
  rows.Row.from_json(line) for line in _ROWS_FILE.read_text().splitlines()
]
_DOCUMENTS = [*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md")]
_RECIPES = [x for x in pretraining.RECIPES.values() if x.tpu]
_GIB = 2**30
# What several micro-batches take besides one, in bytes a parameter. The most in
# docs/tpu_rows.jsonl, where it has both, is 29.2.
_SUM_BYTES = 40


class Step(NamedTuple):
  """What a training command computes on one core or chip at a time."""

  tpu: str
  preset: str
  task: str
  length: int
  batch: float
  micro_batches: int

  def rows(self) -> dict[int, int]:
    """Returns the memory in bytes of each batch that is known to fit."""
    found = {}
    config = modeling.AlbertConfig.from_preset(self.preset)
    for row in _ROWS:
      step, spare = row.step, 0
      micro_batches = step.gradient_accumulation_steps
      if micro_batches not in (1, self.micro_batches):
        continue
      if micro_batches < self.micro_batches:
        spare = _SUM_BYTES * config.parameter_count()
      if (
        (row.name, step.task, step.mode) == (self.preset, self.task, "training")
        and row.topology.split(":")[0] == self.tpu.split("-")[0]
        and step.max_seq_length == self.length
        and row.compiled.fits
        and row.compiled.used + spare <= row.compiled.available
      ):
        batch = step.batch_size // micro_batches
        found[batch] = max(found.get(batch, 0), row.compiled.used)
    return found

  def largest(self) -> int:
    """Returns the largest batch that is known to fit; 0 if none is known."""
    return max(self.rows(), default=0)

  def check(self) -> None:
    """Fails unless the batch is known to fit."""
    assert self.batch == int(self.batch) > 0, self
    assert self.batch <= self.largest(), f"{self}: at most {self.largest()} fit"


def pretraining_step(recipe, settings) -> Step:
  """Returns the step of a recipe with other settings."""
  replicas = int(recipe.tpu.split("-")[1])
  micro_batches = int(settings.get("gradient_accumulation_steps", 1))
  batch = int(settings["train_batch_size"]) / micro_batches / replicas
  length = recipe.data["max_seq_length"]
  preset = settings.get("preset", recipe.preset)
  return Step(recipe.tpu, preset, "pretraining", length, batch, micro_batches)


@pytest.mark.parametrize("recipe", _RECIPES, ids=lambda recipe: recipe.name)
def test_recipes_fit(recipe):
  step = pretraining_step(recipe, recipe.settings)
  step.check()
  # An evaluation has no gradients, so a batch that trains can be evaluated.
  replicas = int(recipe.tpu.split("-")[1])
  assert recipe.settings["eval_batch_size"] == step.batch * replicas
  # With fewer micro-batches than the memory allows, the check above fails.
  with pytest.raises(AssertionError, match="at most"):
    step._replace(batch=step.largest() + 1).check()


def test_every_size_has_a_recipe_for_each_tpu():
  assert len(_RECIPES) == 12
  slices = {(recipe.preset, recipe.tpu) for recipe in _RECIPES}
  for size in ("base", "large", "xlarge", "xxlarge"):
    assert {(f"albert_{size}_v2", tpu) for tpu in ("v3-8", "v5e-8")} <= slices


def commands(text):
  """Yields the accelerator and the flags of each command for TPUs.

  The accelerator is that of the latest `--accelerator-type` in the document.
  """
  tpu, recipe = "", None
  for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
    for line in block.replace("\\\n", " ").splitlines():
      created = re.search(r"--accelerator-type=(\S+)", line)
      if created:
        tpu = created[1].replace("v5litepod", "v5e")
      program = re.search(r"-m tools\.(run_pretraining|run_finetuning) ", line)
      if not program:
        continue
      arguments = shlex.split(line[program.end() :], comments=True)
      values = dict(
        argument.lstrip("-").partition("=")[::2] for argument in arguments
      )
      if "recipe" in values:
        recipe = pretraining.get_recipe(values["recipe"])
      if "tpu" in values or ("recipe" in values and recipe.tpu):
        yield program[1], tpu, recipe, values


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_fit(path):
  for program, tpu, recipe, values in commands(path.read_text()):
    assert recipe, f"{path.name}: a command for TPUs names a recipe: {values}"
    assert recipe.tpu == tpu, (path.name, values)
    if program == "run_pretraining":
      pretraining_step(recipe, {**recipe.settings, **values}).check()
      continue
    replicas = int(tpu.split("-")[1])
    # The encoder is that of the page's recipe.
    Step(
      *(tpu, recipe.preset, "classification"),
      int(values["max_seq_length"]),
      int(values["train_batch_size"]) / replicas,
      micro_batches=1,
    ).check()


def test_documents_have_such_commands():
  found = {
    path.name: [program for program, *_ in commands(path.read_text())]
    for path in _DOCUMENTS
  }
  assert found["README.md"] == ["run_pretraining"]
  assert found["tpu.md"].count("run_pretraining") >= 2
  assert "run_finetuning" in found["tpu.md"]


def test_a_batch_that_is_too_large_is_found():
  create = "gcloud x --accelerator-type=v5litepod-8\n"
  train = "python -m tools.run_pretraining --recipe=base_v5e_8"
  text = f"```sh\n{create}{train} \\\n  --gradient_accumulation_steps=1\n```"
  ((_, tpu, recipe, values),) = commands(text)
  assert (tpu, recipe.name) == ("v5e-8", "base_v5e_8")
  step = pretraining_step(recipe, {**recipe.settings, **values})
  assert step.batch == 512
  with pytest.raises(AssertionError, match="at most"):
    step.check()
  ((*_, recipe, values),) = commands(f"```sh\n{train} # The same.\n```")
  assert values == {"recipe": "base_v5e_8"}


def test_the_table_of_recipes_has_the_compilers_memory():
  text = (_ROOT / "docs/tpu.md").read_text()
  for recipe in _RECIPES:
    (line,) = re.findall(rf"^\| {recipe.name} .*$", text, re.MULTILINE)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    step = pretraining_step(recipe, recipe.settings)
    used = step.rows()[int(step.batch)]
    hours = recipe.expected_time.split()[0]
    assert cells == [
      recipe.name,
      recipe.tpu,
      f"{recipe.batch:,}",
      f"{step.micro_batches} x {step.batch:.0f}",
      f"{recipe.settings['num_train_steps']:,}",
      f"{used / _GIB:.2f} GiB",
      f"{hours} h",
    ]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
