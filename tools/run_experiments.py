"""Runs a table or figure of the paper as an experiment, at any scale.

    python -m tools.run_experiments --table=4 --scale=tiny --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT
    python -m tools.run_experiments --list

Tables: 1 to 8 and 11 to 13 of arXiv 1909.11942 (9 and 10 are printed, not run);
of its first version v1_1, figure_1 and figure_2; task_texts, depth_schedule and
depth_inference; several at once as --table=3,4, or all. TEXT has the documents
to pretrain on (what tools.create_pretraining_data reads), DATA the folders of
the GLUE tasks, of SQuAD and RACE.

Each row is pretrained with several seeds and fine-tuned on --tasks. Tables with
the same --output_dir share equal models. The same command resumes a run that
was killed. At the end, or with --report_only at any time, it writes
OUT/table_NAME.md, .json and .png: our numbers next to the paper's, and whether
their direction is the same; and OUT/results.md: the score (how many directions
of the paper are shown, contradicted or not resolved) and all tables of --table.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from typing import Any, BinaryIO, Optional, Sequence

from absl import flags

from official_albert import files
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.experiments import (
  plan,
  report,
  results,
  runner,
  scales,
  tables,
)

_LOCAL = "local"
_SETTINGS_FILE = "experiments.json"
_TEXT_SUFFIXES = tuple(
  kind + packed
  for kind in ("txt", "jsonl")
  for packed in ("", ".gz", ".zst", ".zstd")
)
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
  f"Tasks to fine-tune on, of {', '.join(tables.TASKS)}; none for none; "
  "default: the scale's.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates of each model; 0: the scale's.", lower_bound=0
)
_SEEDS = flags.DEFINE_integer(
  "seeds",
  0,
  "Runs of each row; 0: the scale's.",
  lower_bound=0,
  upper_bound=1000,
)
_FIRST_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "The first seed; the others follow it."
)
_NUM_PARALLEL = flags.DEFINE_integer(
  "num_parallel",
  1,
  "Jobs at once, each on its share of the cores. Small models use one core "
  "better than many; use 1 where time is measured.",
  lower_bound=1,
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
  "Devices of --tpu, which determine the micro-batches; 0: the scale's.",
  lower_bound=0,
)
_LIST = flags.DEFINE_bool("list", False, "List tables and scales, then stop.")
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "List the jobs of the table and their cost, then stop."
)
_REPORT_ONLY = flags.DEFINE_bool(
  "report_only", False, "Write the results of the finished jobs, then stop."
)


def print_choices() -> None:
  """Prints what --list shows."""
  print("tables:")
  for t in tables.TABLES.values():
    print(f"  {t.name:24} {t.title} ({t.source})")
  print("scales:")
  for s in scales.SCALES.values():
    print(
      f"  {s.name:24} {s.steps:,} steps of {s.batch_size} x "
      f"{s.max_seq_length} tokens; {s.hardware}"
    )


def print_jobs(
  table: tables.Table, planned: plan.Plan, scale: scales.Scale
) -> None:
  """Prints what --dry_run shows of a table."""
  print(f"table {table.name}: {table.title}")
  for job in planned.jobs.values():
    note = f" ({job.note})" if job.note else ""
    print(f"  {job.cost:8.1e} FLOP  {job.key}{note}")
  total = sum(job.cost for job in planned.jobs.values())
  estimate = "on this machine, at any scale"
  if table.trains:
    hours = total / scale.speed / 3600
    estimate = (
      f"about {hours:.2g} hours on {scale.hardware} ({scale.speed_source})"
    )
  print(f"{len(planned.jobs)} jobs, {total:.1e} FLOP: {estimate}")


def text_files(flag: str, folder: str) -> str:
  """Returns globs for --input_files that match the texts of a folder."""
  if "," in folder:
    raise ValueError(f"{folder} has a comma in its name: rename the folder.")
  # Globs, as the names of a large corpus don't fit on a command line.
  names = files.list_dir(folder) if files.is_dir(folder) else []
  found = [
    os.path.join(glob.escape(folder), f"*.{suffix}")
    for suffix in _TEXT_SUFFIXES
    if any(name.endswith(f".{suffix}") for name in names)
  ]
  if not found:
    raise FileNotFoundError(
      f"--{flag} {folder} has no text: set it to a folder of "
      f"{', '.join('.' + suffix for suffix in _TEXT_SUFFIXES)} files."
    )
  return ",".join(found)


def find_task_data(folder: str, tasks: Sequence[str]) -> dict[str, str]:
  """Returns the value of --data_dir for each task."""
  found = {}
  for task in tasks:
    subfolder, name = _TASK_FILES[task]
    # The subfolder comes last and wins.
    for candidate in (folder, os.path.join(folder, subfolder)):
      if files.glob(os.path.join(glob.escape(candidate), name)):
        found[task] = candidate
    if task not in found:
      raise FileNotFoundError(
        f"--task_data_dir {folder} has no data of {task}: set another folder, "
        "or choose another --tasks or --table."
      )
  return found


def choose(
  flag: flags.FlagHolder, choices: Sequence[str], other: str
) -> list[str]:
  """Returns the values of a list flag; [] if it is `other` alone."""
  if flag.value == [other]:
    return []
  unknown = [name for name in flag.value if name not in choices]
  if unknown or not flag.value:
    problem = f"has no choice {unknown[0]}" if unknown else "is missing"
    raise ValueError(
      f"--{flag.name} {problem}: choose {other}, or some of "
      f"{', '.join(choices)}."
    )
  return flag.value


def choose_scale() -> scales.Scale:
  """Returns the scale of --scale with the changes of other flags."""
  cores = len(os.sched_getaffinity(0))
  if _NUM_PARALLEL.value > cores:
    raise ValueError(
      f"--num_parallel is {_NUM_PARALLEL.value}, but there are {cores} cores."
    )
  scale = scales.SCALES[_SCALE.value]
  on_tpu = scale.tpu is not None
  # What was set, and whether the scale allows it.
  for flag, is_set, allowed in (
    (_TPU, _TPU.value != _LOCAL, on_tpu),
    (_FINETUNING_TPU, _FINETUNING_TPU.value != _LOCAL, on_tpu),
    (_NUM_DEVICES, _NUM_DEVICES.value, scale.device_bytes),
    (_NUM_PARALLEL, _NUM_PARALLEL.value > 1, not on_tpu),
  ):
    if is_set and not allowed:
      raise ValueError(
        f"--{flag.name} does not apply to --scale={scale.name}, which runs on "
        f"{scale.hardware}: remove it."
      )
  slices = {_TPU.value, _FINETUNING_TPU.value} != {_LOCAL}
  if slices and _OUTPUT_DIR.value and not files.is_remote(_OUTPUT_DIR.value):
    raise ValueError(
      f"--output_dir {_OUTPUT_DIR.value} is on this machine, where the hosts "
      "of a TPU that is not local cannot read or write: use a gs:// address."
    )
  return dataclasses.replace(
    scale,
    steps=_TRAIN_STEPS.value or scale.steps,
    num_devices=_NUM_DEVICES.value or scale.num_devices,
    tpu=_TPU.value if on_tpu else None,
    finetuning_tpu=_FINETUNING_TPU.value if on_tpu else None,
  )


def find_place(
  chosen: Sequence[tables.Table], tasks: Sequence[str]
) -> plan.Place:
  """Returns the folders that the flags name."""
  if not any(tables.SCORES in table.columns for table in chosen):
    tasks = ()
  if any({*tables.TEXT_COLUMNS} & {*table.columns} for table in chosen):
    tasks = list(dict.fromkeys((*tasks, *tables.TEXTS)))
  needed = [_OUTPUT_DIR]
  if not _REPORT_ONLY.value:  # Which needs no text and no tasks.
    needed += [_INPUT_DIR, _TASK_DATA_DIR] if tasks else [_INPUT_DIR]
  for flag in needed:
    if not flag.value:
      raise ValueError(f"--{flag.name} is missing: set it to a folder.")
  output_dir = files.absolute(_OUTPUT_DIR.value)
  if _REPORT_ONLY.value:
    if not files.is_dir(output_dir):
      raise FileNotFoundError(
        f"--output_dir {output_dir} does not exist: set it to the folder of "
        "the results, or remove --report_only."
      )
    return plan.Place(output_dir, "-", "-", dict.fromkeys(tasks, "-"))
  text, additional, task_data = (
    flag.value and files.absolute(flag.value)
    for flag in (_INPUT_DIR, _ADDITIONAL_DIR, _TASK_DATA_DIR)
  )
  return plan.Place(
    output_dir,
    text_files("input_dir", text),
    text_files("additional_input_dir", additional) if additional else "",
    find_task_data(task_data, tasks),
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
  return command_line.check_settings(place.path(_SETTINGS_FILE), settings)


def run_table(
  table: tables.Table,
  scale: scales.Scale,
  planned: plan.Plan,
  output_dir: str,
  tasks: Sequence[str],
  seeds: Sequence[int],
  lock_file: Optional[BinaryIO],
) -> report.Report:
  """Runs the unfinished jobs of a table and writes its results.

  Without `lock_file`, runs nothing.
  """
  print(f"table {table.name}: {table.title}", flush=True)
  running = runner.Runner(
    planned.jobs, output_dir, _NUM_PARALLEL.value, lock_file=lock_file
  )
  if lock_file and len(running.values) < len(planned.jobs):
    running.run()
  made = report.Report(
    table,
    scale,
    tuple(tasks),
    tuple(seeds) if table.trains else (),
    results.collect(table, planned.cells, running.values, tasks),
    running.failed,
    len(planned.jobs) - len(running.values) - len(running.failed),
    running.machines(),
  )
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", made.to_markdown())
  files.write_json(f"{path}.json", made.to_json())
  made.draw(f"{path}.png")
  print(made.to_markdown(), flush=True)
  return made


def main(argv) -> None:
  del argv
  if _LIST.value:
    print_choices()
    return
  names = choose(_TABLE, list(tables.TABLES), "all") or tables.TABLES
  chosen, scale = [tables.TABLES[name] for name in names], choose_scale()
  tasks: Sequence[str] = scale.tasks
  if _TASKS.value is not None:
    chosen_tasks = choose(_TASKS, list(tables.TASKS), "none")
    tasks = [task for task in tables.TASKS if task in chosen_tasks]
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
  reports = []
  for table, planned in zip(chosen, plans):
    reports.append(
      run_table(
        table, scale, planned, place.output_dir, tasks, seeds, lock_file
      )
    )
    score = report.score(reports)  # So far.
    parts = [score, *(made.to_markdown() for made in reports)]
    files.write_text(place.path("results.md"), "\n".join(filter(None, parts)))
  print(score)
  failed = {key: why for made in reports for key, why in made.failed.items()}
  if failed:
    key, reason = next(iter(failed.items()))
    raise ValueError(
      f"{len(failed)} jobs failed, the first of them {key}: {reason}; the same "
      "command runs them again."
    )


if __name__ == "__main__":
  command_line.run(main)
