"""Runs a table or figure of the paper as an experiment, at any scale.

    python -m tools.run_experiments --table=4 --scale=tiny --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT

Tables: 2 to 5, 7, 8 and 11 to 13 of arXiv 1909.11942; of its first version v1_1
and figure_1; several at once as --table=3,4, or all. TEXT has the documents to
pretrain on (what tools.create_pretraining_data reads), DATA has the folders
glue, squad and race.

Each row is pretrained with several seeds and fine-tuned on --tasks. Tables with
the same --output_dir share equal models. The same command resumes a run that
was killed. After each model, it writes OUT/table_NAME.md, .json and .png: our
numbers next to the paper's.
"""

from __future__ import annotations

import collections
import dataclasses
import glob
import os
from typing import Sequence

from absl import flags

from official_albert import files
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.experiments import report, runs, tables

# What there must be of each task in --task_data_dir.
_TASK_FILES = {
  "MNLI": "glue/MNLI",
  "SST-2": "glue/SST-2",
  "RACE": "race/RACE*",
  "SQuAD1.1": "squad/train-v1.1.json*",
  "SQuAD2.0": "squad/train-v2.0.json*",
}
_TABLE = flags.DEFINE_list(
  "table", None, f"all, or some of {', '.join(tables.TABLES)}, comma-separated."
)
_SCALE = flags.DEFINE_enum(
  "scale",
  "tiny",
  list(tables.SCALES),
  "Sizes of the models. "
  + "; ".join(f"{name}: {x.hardware}" for name, x in tables.SCALES.items()),
)
_INPUT_DIR = path_flags.define(
  "input_dir", "", "Folder of the text to pretrain on."
)
_ADDITIONAL_DIR = path_flags.define(
  "additional_input_dir", "", "Folder of more text, for table 7."
)
_TASK_DATA_DIR = path_flags.define("task_data_dir", "", "Folder of the tasks.")
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder for everything that is written."
)
_TASKS = flags.DEFINE_list(
  "tasks",
  None,
  f"Tasks to fine-tune on, of {', '.join(tables.TASKS)}, or none; default: the "
  "scale's.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates of each model; 0: the scale's.", lower_bound=0
)
_SEEDS = flags.DEFINE_integer(
  "seeds", 0, "Runs of each row; 0: the scale's.", lower_bound=0
)
_SEED = 12345  # The first one; the others follow it.
_PRETRAINING_FLAGS, _FINETUNING_FLAGS = (
  flags.DEFINE_string(
    f"{name}_flags",
    "",
    f"More flags of tools.run_{name}: '--distribution=tpu --tpu=local'.",
  )
  for name in ("pretraining", "finetuning")
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the commands, then stop.")


def chosen(flag: flags.FlagHolder, choices: Sequence[str]) -> list[str]:
  """Returns the choices in a list flag; all for "all", [] for "none"."""
  if unknown := {*flag.value} - {*choices, "all", "none"}:
    raise ValueError(
      f"--{flag.name} has no choice {', '.join(sorted(unknown))}: choose some "
      f"of {', '.join(choices)}."
    )
  return [x for x in choices if {x, "all"} & {*flag.value}]


def text_files(folder: str) -> str:
  """Returns the value of --input_files for all files of a folder."""
  return os.path.join(glob.escape(files.absolute(folder)), "*")


def find_task_data(folder: str, tasks: Sequence[str]) -> dict[str, str]:
  """Returns the value of --data_dir for each task."""
  found = {}
  for task in tasks:
    if not files.glob(os.path.join(glob.escape(folder), _TASK_FILES[task])):
      raise FileNotFoundError(
        f"--task_data_dir {folder} has no data of {task}, "
        f"{_TASK_FILES[task]}: set another folder, or choose another --tasks "
        "or --table."
      )
    found[task] = os.path.join(folder, os.path.dirname(_TASK_FILES[task]))
  return found


def choose_scale() -> tables.Scale:
  """Returns the scale of --scale with the changes of other flags."""
  scale = tables.SCALES[_SCALE.value]
  training = tables.parse_flags(_PRETRAINING_FLAGS.value)
  finetuning = tables.parse_flags(_FINETUNING_FLAGS.value)
  return dataclasses.replace(
    scale,
    steps=_TRAIN_STEPS.value or scale.steps,
    training={**scale.training, **training},
    finetuning={**scale.finetuning, **finetuning},
  )


def main(argv) -> None:
  del argv
  selected = [tables.TABLES[x] for x in chosen(_TABLE, list(tables.TABLES))]
  scale, output_dir = choose_scale(), files.absolute(_OUTPUT_DIR.value)
  tasks = list(scale.tasks)
  if _TASKS.value is not None:
    tasks = chosen(_TASKS, list(tables.TASKS))
  if not any(tables.SCORES in table.columns for table in selected):
    tasks = []
  for name, is_needed in (
    *(("input_dir", True), ("task_data_dir", bool(tasks))),
    ("additional_input_dir", any(table.name == "7" for table in selected)),
  ):
    if is_needed and not flags.FLAGS[name].value:
      raise ValueError(f"--{name} is missing: set it to a folder.")
  text, more = map(text_files, (_INPUT_DIR.value, _ADDITIONAL_DIR.value))
  task_dirs = find_task_data(files.absolute(_TASK_DATA_DIR.value), tasks)
  runner = runs.Runner(scale, text, more, task_dirs, output_dir, _DRY_RUN.value)
  seeds = range(_SEED, _SEED + (_SEEDS.value or scale.seeds))
  for table in selected:
    rows: dict[str, dict[str, list]] = {
      label: collections.defaultdict(list) for label in table.rows
    }
    steps = f"{scale.steps_of(table):,} steps"
    notes = f"scale {_SCALE.value}, {steps}, {len(seeds)} seeds from {_SEED}"
    written = ""
    for seed in seeds:
      model = ""
      for label, row in table.rows.items():
        model, values = runner.run(table, row, seed, model)
        for name, value in values.items():
          rows[label][name].append(value)
        if not _DRY_RUN.value:
          written = report.write(table, tasks, rows, notes, output_dir)
    if written:
      print(written, flush=True)


if __name__ == "__main__":
  flags.mark_flags_as_required(["table", "output_dir"])
  command_line.run(main)
