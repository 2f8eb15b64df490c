"""Runs a table of the paper as an experiment, with small models.

    python -m tools.run_experiments --table=4 --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT

Tables: 2 to 5, 7, 8 and 11 to 13 of arXiv 1909.11942; several at once as
--table=3 --table=4. TEXT has the documents to pretrain on (what
tools.create_pretraining_data reads), DATA has the folders glue, squad and race.
--scale=gpu has larger models, each with its best of three learning rates.

Each row is pretrained with several seeds and fine-tuned on --tasks. Tables with
the same --output_dir share equal models. The same command resumes a run that
was killed. After each model, it prints OUT/table_NAME.md, our numbers next to
the paper's, and writes it and .json.
"""

from __future__ import annotations

import collections
import glob
import os

from absl import flags

from official_albert import files
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.experiments import runs, tables

_TABLE = flags.DEFINE_multi_enum(
  "table", None, list(tables.TABLES), "Table to run."
)
_INPUT_DIR, _ADDITIONAL_DIR, _TASK_DATA_DIR = (
  path_flags.define(name, "", f"Folder of {text}.")
  for name, text in {
    "input_dir": "the text to pretrain on",
    "additional_input_dir": "more text, for table 7",
    "task_data_dir": "the tasks",
  }.items()
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder for everything that is written."
)
_TASKS = flags.DEFINE_multi_enum(
  "tasks",
  None,
  [*tables.TASKS, "none"],
  "Task to fine-tune on; default: those of the scale.",
)
_SCALE = flags.DEFINE_enum(
  "scale", "tiny", list(tables.SCALES), "Sizes and settings of the models."
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps",
  None,
  "Updates of a model, of which tables of large models take a share; default: "
  "those of the scale.",
  lower_bound=1,
)
_SEEDS = flags.DEFINE_integer("seeds", 3, "Runs of each row.", lower_bound=1)
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


def _folder(flag: flags.FlagHolder) -> str:
  if not flag.value:
    raise ValueError(f"--{flag.name} is missing: set it to a folder.")
  return files.absolute(flag.value)


def _find_task(task: str) -> str:
  """Returns the value of --data_dir for a task."""
  folder, (_, wanted, _) = _folder(_TASK_DATA_DIR), tables.TASKS[task]
  if not files.glob(os.path.join(glob.escape(folder), wanted)):
    raise FileNotFoundError(
      f"--task_data_dir {folder} has no data of {task}, {wanted}: set another "
      "folder, or choose another --tasks or --table."
    )
  return os.path.join(folder, os.path.dirname(wanted))


def main(_) -> None:
  scale, names = tables.SCALES[_SCALE.value], dict.fromkeys(_TABLE.value)
  selected = [
    tables.TABLES[x]._replace(rows=scale.rows(tables.TABLES[x])) for x in names
  ]
  tasks = [x for x in tables.TASKS if x in (_TASKS.value or scale.tasks)]
  text = glob.escape(_folder(_INPUT_DIR))
  additional = ""
  if "7" in names:
    additional = glob.escape(_folder(_ADDITIONAL_DIR))
  runner = runs.Runner(
    scale,
    _TRAIN_STEPS.value or scale.steps,
    {**scale.training, **tables.parse_flags(_PRETRAINING_FLAGS.value)},
    tables.parse_flags(_FINETUNING_FLAGS.value),
    os.path.join(text, "*"),
    os.path.join(additional, "*"),
    {task: _find_task(task) for task in tasks},
    files.absolute(_OUTPUT_DIR.value),
    _DRY_RUN.value,
  )
  for table in selected:
    rows: dict = {x: collections.defaultdict(list) for x in table.rows}
    steps, seeds = runner.steps_of(table), _SEEDS.value
    notes = f"{steps:,} steps, {seeds} seeds from {_SEED}, {_SCALE.value}"
    for seed in range(_SEED, _SEED + seeds):
      for label, row in table.rows.items():
        for name, value in runner.run(table, row, seed).items():
          rows[label][name].append(value)
        if not _DRY_RUN.value:
          text = runs.write_report(table, tasks, rows, notes, runner.output_dir)
          print(text)


if __name__ == "__main__":
  flags.mark_flags_as_required(["table", "output_dir"])
  command_line.run(main)
