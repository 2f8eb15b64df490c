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
import os
import signal
import sys
from typing import Any, BinaryIO, Optional, Sequence

from absl import flags

from official_albert import files
from tools.cli import command_line, path_flags
from tools.experiments import (
  declaration,
  inputs,
  plan,
  report,
  results,
  runner,
  scales,
  tables,
)

_LOCAL = "local"
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


def describe_all() -> str:
  """Returns what --list prints."""
  lines = ["tables:"]
  lines += [
    f"  {t.name:24} {t.title} ({t.source})" for t in tables.TABLES.values()
  ]
  lines.append("scales:")
  lines += [
    f"  {s.name:24} {s.steps:,} steps of {s.training['train_batch_size']} x "
    f"{s.max_seq_length} tokens; {s.hardware}"
    for s in scales.SCALES.values()
  ]
  return "\n".join(lines)


def describe_jobs(
  table: declaration.Table, planned: plan.Plan, scale: scales.Scale
) -> str:
  """Returns what --dry_run prints of a table."""
  jobs = planned.jobs.values()
  lines = [
    f"  {job.cost:8.1e} FLOP  {job.title}{job.note and f' ({job.note})'}"
    for job in jobs
  ]
  total = sum(job.cost for job in jobs)
  estimate = "on this machine, at any scale"
  if table.trains:
    hours = total / scale.speed / 3600
    estimate = (
      f"about {hours:.2g} hours on {scale.hardware} ({scale.speed_source})"
    )
  lines.append(f"{len(jobs)} jobs, {total:.1e} FLOP: {estimate}")
  return "\n".join(lines)


def choose_tables() -> list[declaration.Table]:
  """Returns the tables of --table.

  Raises:
    ValueError: it names none, or an unknown one.
  """
  names = list(tables.TABLES) if _TABLE.value == ["all"] else _TABLE.value
  unknown = [name for name in names if name not in tables.TABLES]
  if unknown or not names:
    problem = f"unknown table {unknown[0]}" if unknown else "--table is missing"
    choices = ", ".join(tables.TABLES)
    raise ValueError(f"{problem}: choose all, or some of {choices}.")
  return [tables.TABLES[name] for name in names]


def choose_tasks(scale: scales.Scale) -> tuple[str, ...]:
  """Returns the tasks of --tasks, in the paper's order.

  Raises:
    ValueError: one is unknown.
  """
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
  """Returns the scale of --scale with the changes of other flags.

  Raises:
    ValueError: flags contradict each other.
  """
  for flag in (_SEEDS, _TRAIN_STEPS, _NUM_DEVICES):
    if flag.value < 0:
      raise ValueError(f"--{flag.name} must not be negative, got {flag.value}.")
  runner.check_num_parallel(_NUM_PARALLEL.value)
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
  if on_tpu:
    placement = {**scale.placement, "tpu": _TPU.value}
    finetuning = {**scale.finetuning_placement, "tpu": _FINETUNING_TPU.value}
    scale = dataclasses.replace(
      scale, placement=placement, finetuning_placement=finetuning
    )
  return dataclasses.replace(
    scale,
    steps=_TRAIN_STEPS.value or scale.steps,
    num_devices=_NUM_DEVICES.value or scale.num_devices,
  )


def find_place(
  chosen: Sequence[declaration.Table], tasks: Sequence[str]
) -> plan.Place:
  """Returns the folders that the flags name.

  Raises:
    ValueError, OSError: something is missing.
  """
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
  additional = ""
  if _ADDITIONAL_DIR.value:
    additional = inputs.text_files(
      "additional_input_dir", os.path.abspath(_ADDITIONAL_DIR.value)
    )
  return plan.Place(
    output_dir,
    inputs.text_files("input_dir", os.path.abspath(_INPUT_DIR.value)),
    additional,
    inputs.find_task_data(
      _TASK_DATA_DIR.value and os.path.abspath(_TASK_DATA_DIR.value), needed
    ),
  )


def common_settings(scale: scales.Scale) -> dict[str, Any]:
  """Returns the settings that all results of a folder share."""
  return dict(
    scale=scale.name,
    data=dict(scale.data),
    finetuning=dict(scale.finetuning),
    task_flags={k: dict(v) for k, v in scale.task_flags.items()},
  )


def prepare(
  chosen: Sequence[declaration.Table], scale: scales.Scale, place: plan.Place
) -> BinaryIO:
  """Locks and claims the output folder; returns the lock file.

  Raises:
    ValueError, OSError: it belongs to another experiment, or is not writable.
  """
  lock_file = runner.lock(place.output_dir)
  settings = dict(input_files=place.input_files, **common_settings(scale))
  if place.additional_files:
    settings["additional_files"] = place.additional_files
  inputs.claim(place.output_dir, **settings)
  if any(table.layers for table in chosen):
    inputs.write_sentences(place.sentences_file, place.input_files)
  return lock_file


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

  Args:
    table: the declaration.
    scale: its sizes.
    planned: its jobs.
    output_dir: where everything is.
    tasks: columns to fine-tune on.
    seeds: of the runs.
    lock_file: of `prepare`; None runs nothing.

  Returns:
    By key of a failed job, the reason.
  """
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
  markdown = made.to_markdown()
  path = os.path.join(output_dir, f"table_{table.name}")
  files.write_text(f"{path}.md", markdown)
  files.write_text(f"{path}.json", made.to_json())
  if any(result.values for result in made.rows):
    from tools.experiments import pictures  # Matplotlib takes a second to load.

    pictures.draw(made, f"{path}.png")
  print(markdown, flush=True)
  return running.failed


def main(argv) -> None:
  del argv
  if _LIST.value:
    print(describe_all())
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
      print(f"table {table.name}: {table.title}")
      print(describe_jobs(table, planned, scale))
    return
  lock_file = None
  if _REPORT_ONLY.value:
    inputs.check(place.output_dir, **common_settings(scale))
  else:
    lock_file = prepare(chosen, scale, place)
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
