"""Runs a table or figure of the paper as an experiment, at any scale.

    python -m tools.run_experiments --table=4 --scale=tiny --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT
    python -m tools.run_experiments --list

Tables: 1 to 8 and 11 to 13 of arXiv 1909.11942, its figures figure_1 and
figure_2, and depth_schedule, depth_schedule_low_rate and depth_inference;
several at once as --table=3,4, or all. TEXT has the documents to pretrain on
(what tools.create_pretraining_data reads), DATA the folders of the GLUE tasks,
of SQuAD and RACE.

Each row is pretrained with several seeds and fine-tuned on --tasks. Tables with
the same --output_dir share models that are equal. The same command resumes a
run that was killed. At the end, or with --report_only at any time, it writes
OUT/table_NAME.md, .json and .png: our numbers next to the paper's, and whether
their direction is the same.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import signal
import sys
from typing import Any, BinaryIO, Optional, Sequence

from absl import flags

from official_albert import files
from tools.cli import command_line, path_flags
from tools.experiments import declaration, plan, results, runner, scales, tables

_LOCAL = "local"
_SETTINGS_FILE = "experiments.json"
_TEXT_SUFFIXES = ("txt", "jsonl", "txt.gz", "jsonl.gz", "txt.zst", "jsonl.zst")
# Folders and files by which the data of tasks is found.
_TASK_FILES = {
  "MNLI": ("glue", "MNLI"),
  "SST-2": ("glue", "SST-2"),
  "RACE": ("race", "RACE*"),
  "SQuAD1.1": ("squad", "train-v1.1.json*"),
  "SQuAD2.0": ("squad", "train-v2.0.json*"),
}
_TABLE = flags.DEFINE_list(
  "table", [], f"all, or some of {', '.join(tables.TABLES)}, comma-separated."
)
_SCALE = flags.DEFINE_enum(
  "scale", "tiny", list(scales.SCALES), "Sizes of the models; see --list."
)
_INPUT_DIR = path_flags.define(
  "input_dir", "", "Folder of the text to pretrain on."
)
_ADDITIONAL_DIR = path_flags.define(
  "additional_input_dir", "", "Folder of more text, for table 7."
)
_TASK_DATA_DIR = path_flags.define(
  "task_data_dir",
  "",
  "Folder of the tasks: GLUE's in it or in its glue/, SQuAD's and RACE's in it "
  "or in squad/ and race/.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "", "Folder for everything that is written."
)
_TASKS = flags.DEFINE_list(
  "tasks",
  None,
  f"Tasks to fine-tune on, of {', '.join(declaration.TASKS)}; none for none; "
  "default: the scale's.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates of each model; 0: the scale's."
)
_SEEDS = flags.DEFINE_integer("seeds", 0, "Runs of each row; 0: the scale's.")
_FIRST_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "The first seed; the others follow it."
)
_NUM_PARALLEL = flags.DEFINE_integer(
  "num_parallel",
  1,
  "Jobs at once, each on its share of the cores. Small models use one core "
  "better than many; use 1 where time is measured.",
)
_TPU = flags.DEFINE_string(
  "tpu", _LOCAL, "With --scale=base: where to pretrain, as in run_pretraining."
)
_FINETUNING_TPU = flags.DEFINE_string(
  "finetuning_tpu",
  _LOCAL,
  "With --scale=base: where to fine-tune; its batches need 8 or 16 cores, not "
  "a pod.",
)
_NUM_DEVICES = flags.DEFINE_integer(
  "num_devices",
  0,
  "Devices of --tpu, from which the micro-batches follow; 0: the scale's.",
)
_LIST = flags.DEFINE_bool("list", False, "List tables and scales, then stop.")
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "List the jobs of the table and their cost, then stop."
)
_REPORT_ONLY = flags.DEFINE_bool(
  "report_only", False, "Write the results of the finished jobs, then stop."
)


def print_all() -> None:
  """Prints what --list shows."""
  print("tables:")
  for t in tables.TABLES.values():
    print(f"  {t.name:24} {t.title} ({t.source})")
  print("scales:")
  for s in scales.SCALES.values():
    batch = s.training["train_batch_size"]
    print(
      f"  {s.name:24} {s.steps:,} steps of {batch} x {s.max_seq_length} "
      f"tokens; {s.hardware}"
    )


def print_jobs(
  table: declaration.Table, planned: plan.Plan, scale: scales.Scale
) -> None:
  """Prints what --dry_run shows of a table."""
  print(f"table {table.name}: {table.title}")
  jobs = planned.jobs.values()
  for job in jobs:
    note = f" ({job.note})" if job.note else ""
    print(f"  {job.cost:8.1e} FLOP  {job.title}{note}")
  total = sum(job.cost for job in jobs)
  estimate = "on this machine, at any scale"
  if table.trains:
    hours = total / scale.speed / 3600
    estimate = (
      f"about {hours:.2g} hours on {scale.hardware} ({scale.speed_source})"
    )
  print(f"{len(jobs)} jobs, {total:.1e} FLOP: {estimate}")


def text_files(flag: str, folder: str) -> str:
  """Returns globs for --input_files that match the texts of a folder."""
  if not os.path.isdir(folder):
    raise FileNotFoundError(
      f"--{flag} {folder} does not exist: set it to a folder of text."
    )
  if "," in folder:
    raise ValueError(f"{folder} has a comma in its name: rename the folder.")
  # Globs, as the names of a large corpus don't fit on a command line.
  patterns = [
    os.path.join(glob.escape(folder), f"*.{suffix}")
    for suffix in _TEXT_SUFFIXES
  ]
  found = [pattern for pattern in patterns if glob.glob(pattern)]
  if not found:
    raise FileNotFoundError(
      f"--{flag} {folder} has no text: its files must end in "
      f"{', '.join('.' + suffix for suffix in _TEXT_SUFFIXES)}."
    )
  return ",".join(found)


def find_task_data(folder: str, tasks: Sequence[str]) -> dict[str, str]:
  """Returns the value of --data_dir for each task."""
  if tasks and not folder:
    raise ValueError(
      "--task_data_dir is missing: set it to the folder of "
      f"{', '.join(tasks)}, or set --tasks=none."
    )
  found = {}
  for task in tasks:
    subfolder, name = _TASK_FILES[task]
    # The subfolder comes last and wins.
    for candidate in (folder, os.path.join(folder, subfolder)):
      if glob.glob(os.path.join(glob.escape(candidate), name)):
        found[task] = candidate
    if task not in found:
      raise FileNotFoundError(
        f"--task_data_dir {folder} has no data of {task}: set another folder, "
        "or remove the task from --tasks."
      )
  return found


def choose_tables() -> list[declaration.Table]:
  """Returns the tables of --table."""
  names = list(tables.TABLES) if _TABLE.value == ["all"] else _TABLE.value
  unknown = [name for name in names if name not in tables.TABLES]
  if unknown or not names:
    problem = f"unknown table {unknown[0]}" if unknown else "--table is missing"
    choices = ", ".join(tables.TABLES)
    raise ValueError(f"{problem}: choose all, or some of {choices}.")
  return [tables.TABLES[name] for name in names]


def choose_tasks(scale: scales.Scale) -> tuple[str, ...]:
  """Returns the tasks of --tasks, in the paper's order."""
  if _TASKS.value is None:
    return scale.tasks
  if _TASKS.value == ["none"]:
    return ()
  for task in _TASKS.value:
    if task not in declaration.TASKS:
      raise ValueError(
        f"unknown task {task}: choose some of {', '.join(declaration.TASKS)}, "
        "or none."
      )
  return tuple(task for task in declaration.TASKS if task in _TASKS.value)


def choose_scale() -> scales.Scale:
  """Returns the scale of --scale with the changes of other flags."""
  for flag in (_SEEDS, _TRAIN_STEPS, _NUM_DEVICES):
    if flag.value < 0:
      raise ValueError(f"--{flag.name} must not be negative, got {flag.value}.")
  cores = len(os.sched_getaffinity(0))
  if not 1 <= _NUM_PARALLEL.value <= cores:
    raise ValueError(
      f"--num_parallel must be from 1 to {cores}, the number of cores, "
      f"got {_NUM_PARALLEL.value}."
    )
  scale = scales.SCALES[_SCALE.value]
  on_tpu = "tpu" in scale.placement
  if on_tpu and _NUM_PARALLEL.value > 1:
    raise ValueError(
      f"--scale={scale.name} runs on a TPU, which one process uses at a time: "
      "remove --num_parallel."
    )
  for flag in (_TPU, _FINETUNING_TPU):
    if flag.value != _LOCAL and not on_tpu:
      raise ValueError(
        f"--{flag.name} is for --scale=base; --scale={scale.name} runs on "
        f"{scale.hardware}."
      )
  if _NUM_DEVICES.value and not scale.device_bytes:
    raise ValueError(
      f"--num_devices does not apply to --scale={scale.name}, whose steps are "
      "never split: remove it."
    )
  changes = dict(
    steps=_TRAIN_STEPS.value or scale.steps,
    num_devices=_NUM_DEVICES.value or scale.num_devices,
  )
  if on_tpu:
    tpu, tuning = {"tpu": _TPU.value}, {"tpu": _FINETUNING_TPU.value}
    changes["placement"] = {**scale.placement, **tpu}
    changes["finetuning_placement"] = {**scale.finetuning_placement, **tuning}
  return dataclasses.replace(scale, **changes)


def find_place(
  chosen: Sequence[declaration.Table], tasks: Sequence[str]
) -> plan.Place:
  """Returns the folders that the flags name."""
  if not _OUTPUT_DIR.value:
    raise ValueError("--output_dir is missing: set it to a folder.")
  output_dir = os.path.abspath(_OUTPUT_DIR.value)
  needed = tasks if any(table.tasks for table in chosen) else ()
  if _REPORT_ONLY.value:  # Needs no text and no tasks.
    if not os.path.isdir(output_dir):
      raise FileNotFoundError(
        f"--output_dir {output_dir} does not exist: set it to the folder of "
        "the results, or remove --report_only."
      )
    return plan.Place(output_dir, "-", "-", dict.fromkeys(needed, "-"))
  if not _INPUT_DIR.value:
    raise ValueError("--input_dir is missing: set it to a folder of text.")
  text, additional, task_data = (
    flag.value and os.path.abspath(flag.value)
    for flag in (_INPUT_DIR, _ADDITIONAL_DIR, _TASK_DATA_DIR)
  )
  return plan.Place(
    output_dir,
    text_files("input_dir", text),
    text_files("additional_input_dir", additional) if additional else "",
    find_task_data(task_data, needed),
  )


def check_settings(scale: scales.Scale, place: plan.Place) -> dict[str, Any]:
  """Returns the settings of all results of a folder, including earlier ones."""
  settings: dict[str, Any] = dict(
    scale=scale.name,
    data=dict(scale.data),
    finetuning=dict(scale.finetuning),
    task_flags={k: dict(v) for k, v in scale.task_flags.items()},
  )
  if not _REPORT_ONLY.value:
    settings["input_files"] = place.input_files
    if place.additional_files:
      settings["additional_files"] = place.additional_files
  before = command_line.read_settings(place.path(_SETTINGS_FILE))
  for name, value in settings.items():
    if before.get(name, value) != value:
      raise ValueError(
        f"{place.output_dir} was made with {name} {before[name]!r}, not "
        f"{value!r}: set another --output_dir."
      )
  return {**settings, **before}


def run_table(
  table: declaration.Table,
  scale: scales.Scale,
  planned: plan.Plan,
  output_dir: str,
  tasks: Sequence[str],
  seeds: Sequence[int],
  lock_file: Optional[BinaryIO],
) -> dict[str, str]:
  """Runs the unfinished jobs of a table and writes its results.

  Without `lock_file`, runs nothing.

  Returns:
    The reason for each failed job, by its key.
  """
  from tools.experiments import report  # Matplotlib takes a second to load.

  print(f"table {table.name}: {table.title}", flush=True)
  running = runner.Runner(
    planned.jobs, output_dir, _NUM_PARALLEL.value, lock_file=lock_file
  )
  if lock_file and len(running.values) < len(planned.jobs):
    running.run()
  values = running.values
  made = report.Report(
    table,
    scale,
    tuple(tasks),
    tuple(seeds) if table.trains else (),
    results.collect(table, planned.cells, values, tasks),
    running.failed,
    len(planned.jobs) - len(values) - len(running.failed),
    running.machines(),
  )
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", made.to_markdown())
  files.write_text(f"{path}.json", made.to_json())
  if any(result.values for result in made.rows):
    made.draw(f"{path}.png")
  print(made.to_markdown(), flush=True)
  return running.failed


def main(argv) -> None:
  del argv
  if _LIST.value:
    print_all()
    return
  # The default handler would leave the jobs running.
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  chosen, scale = choose_tables(), choose_scale()
  tasks = choose_tasks(scale)
  place = find_place(chosen, tasks)
  seeds = [_FIRST_SEED.value + i for i in range(_SEEDS.value or scale.seeds)]
  # Plans all tables before the first one runs, which may take days.
  plans = [
    plan.make_plan(table, scale, place, tasks, seeds) for table in chosen
  ]
  if _DRY_RUN.value:
    for table, planned in zip(chosen, plans):
      print_jobs(table, planned, scale)
    return
  lock_file = None
  if not _REPORT_ONLY.value:
    lock_file = runner.lock(place.output_dir)
  settings = check_settings(scale, place)
  if lock_file:
    files.write_json(place.path(_SETTINGS_FILE), settings)
  failed: dict[str, str] = {}
  for table, planned in zip(chosen, plans):
    failed |= run_table(
      table, scale, planned, place.output_dir, tasks, seeds, lock_file
    )
  if failed:
    key, reason = next(iter(failed.items()))
    raise ValueError(
      f"{len(failed)} jobs failed, the first of them {key}: {reason}; the same "
      "command runs them again."
    )


if __name__ == "__main__":
  command_line.run(main)
