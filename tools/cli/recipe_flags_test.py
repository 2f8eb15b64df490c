"""Tests of --recipe: every value is taken, what is given by hand wins."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from tasks import pretraining
from tasks.pretraining import data
from tools import quickstart
from tools.cli import recipe_flags

ROOT = pathlib.Path(__file__).parents[2]
ALL = list(pretraining.RECIPES.values())

# Prints, for each command line in argv[1], the flags that a recipe speaks of.
_TAKE = """
import json, sys
from absl import flags
from absl.testing import flagsaver
from tools.cli import recipe_flags
from tools import run_pretraining
taken = []
for line in json.loads(sys.argv[1]):
  saved = flagsaver.save_flag_values()
  flags.FLAGS(["run_pretraining", "--input_dir=in", "--model_dir=out", *line])
  recipe = recipe_flags.apply()
  taken.append({name: flags.FLAGS[name].value for name in recipe.flags})
  lines = recipe_flags.describe(
    recipe, type("Manifest", (), {"max_seq_length": 128})
  )
  taken[-1]["said"] = list(lines)
  flagsaver.restore_flag_values(saved)
print(json.dumps(taken))
"""


@pytest.fixture(scope="module")
def taken():
  """What each command line below leads to; one process, for its flags."""
  lines = [[f"--recipe={name}"] for name in pretraining.RECIPES]
  lines += [
    ["--train_batch_size=64", "--recipe=base_cpu", "--num_train_steps=7"],
    ["--recipe=base_cpu", "--albert_config_file=own.json"],
    # A value that is the flag's own default is the user's too.
    ["--recipe=base_gpu", "--precision=float32", "--random_seed=12345"],
  ]
  result = subprocess.run(
    [sys.executable, "-c", _TAKE, json.dumps(lines)],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout)


@pytest.mark.parametrize(
  "index", range(len(ALL)), ids=list(pretraining.RECIPES)
)
def test_every_value_of_a_recipe_is_taken(taken, index):
  recipe, values = ALL[index], dict(taken[index])
  said = values.pop("said")
  assert values.keys() == recipe.flags.keys()
  for name, value in recipe.flags.items():
    # As a flag of its type, or as text.
    assert values[name] == value or values[name] == str(value), name
  assert said[0].startswith(f"recipe {recipe.name} ({recipe.run}): --preset=")
  assert recipe.hardware in said[1] and recipe.expected in said[1]
  length = recipe.data["max_seq_length"]
  assert (len(said) == 2) == (length == 128)
  if length != 128:
    assert said[2].endswith(f"sequences of {length} tokens, the data has 128.")


def test_flags_given_by_hand_win(taken):
  values = taken[len(ALL)]
  assert int(values["train_batch_size"]) == 64
  assert values["num_train_steps"] == 7
  assert values["eval_steps"] == 1000  # The recipe's.
  changed = "  changed by hand: --num_train_steps, --train_batch_size"
  assert changed in values["said"]
  own_model = taken[len(ALL) + 1]
  assert own_model["preset"] is None
  assert own_model["num_train_steps"] == 10_000
  assert taken[len(ALL) + 2]["precision"] == "float32"


def test_data_flags_exist():
  settings = (data.ExampleSettings, data.BuildSettings)
  known = {f.name for kind in settings for f in dataclasses.fields(kind)}
  for recipe in ALL:
    assert set(recipe.data) <= known


def test_the_quickstart_trains_by_its_recipe():
  recipe = pretraining.get_recipe("quickstart")
  flags = {
    f"--{k}" if v is True else f"--{k}={v}" for k, v in recipe.flags.items()
  }
  assert set(quickstart._TRAINING_FLAGS) <= flags
  data = {f"--{k}={v}" for k, v in recipe.data.items()}
  assert set(quickstart._SEQUENCE_FLAGS) <= data


def test_table_has_a_row_for_each(capsys):
  lines = recipe_flags.table().splitlines()
  assert len(lines) == 2 + len(ALL)
  assert len({len(line) for line in lines}) == 1
  row = next(line for line in lines if line.startswith("| base_gpu "))
  cells = [cell.strip() for cell in row.strip("|").split("|")]
  assert cells[:7] == [
    "base_gpu",
    "albert_base_v2",
    "lamb 0.000622",
    "512",
    "16",
    "125,000",
    "512",
  ]
  assert cells[7] == "1.8e+19" and cells[-1] == "not yet run"
  assert capsys.readouterr().out == ""


def run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "tools.run_pretraining", *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


def test_recipes_are_listed_without_other_flags():
  result = run("--list_recipes")
  assert (result.returncode, result.stderr) == (0, "")
  assert result.stdout == recipe_flags.table() + "\n"


def test_unknown_recipe_is_one_sentence(tmp_path):
  result = run("--recipe=bas_gpu", "--input_dir=x", f"--model_dir={tmp_path}/r")
  assert result.returncode == 1
  assert len(result.stderr.splitlines()) == 1
  assert "unknown recipe 'bas_gpu'; did you mean base_gpu" in result.stderr
  assert not (tmp_path / "r").exists()


def test_folders_are_still_required():
  result = run("--recipe=base_gpu", "--model_dir=x")
  assert result.returncode == 2
  assert "Flag --input_dir must have a value" in result.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
