"""Runs a table or figure of the paper as an experiment, at any scale.

    python -m tools.run_experiments --table=4 --scale=tiny --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT
    python -m tools.run_experiments --list

Tables: 1 to 8 and 11 to 13 of arXiv 1909.11942, its figures figure_1 and
figure_2, and depth_schedule, depth_schedule_low_rate and depth_inference;
several at once as --table=3,4, or all. TEXT holds the documents to pretrain on
(what tools.create_pretraining_data reads), DATA the folders of GLUE's tasks, of
SQuAD and RACE.

Each row is pretrained with several seeds and fine-tuned on --tasks. Models that
two tables share are trained once for one --output_dir. Killed and started
again, the same command goes on where it was. OUT/table_NAME.md, .json and .png
are written at the end, and at any time from what is finished by --report_only:
the paper's numbers beside ours, and whether the direction is the same.
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
  configurations,
  declaration,
  inputs,
  jobs,
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
  "scale", "tiny", list(scales.SCALES), "How large; see --list."
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
  "output_dir", "", "Everything is written below this folder."
)
_TASKS = flags.DEFINE_list(
  "tasks",
  None,
  f"Tasks to fine-tune on, of {', '.join(declaration.TASKS)}; none for none; "
  "default: the scale's.",
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates of each model; 0: as many as the scale says."
)
_SEEDS = flags.DEFINE_integer(
  "seeds", 0, "Runs of each row; 0: as many as the scale says."
)
_FIRST_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "The first seed; the others follow it."
)
_NUM_PARALLEL = flags.DEFINE_integer(
  "num_parallel",
  1,
  "Jobs at once, each on its share of the cores. Small models use one core "
  "better than many; what is measured in time wants 1.",
)
_TPU = flags.DEFINE_string(
  "tpu", _LOCAL, "With --scale=base: where to pretrain, as in run_pretraining."
)
_FINETUNING_TPU = flags.DEFINE_string(
  "finetuning_tpu",
  _LOCAL,
  "And fine-tuning, whose batches want 8 or 16 cores, not a pod's.",
)
_NUM_DEVICES = flags.DEFINE_integer(
  "num_devices",
  0,
  "Devices of --tpu, by which a batch is cut to fit; 0: as the scale says.",
)
_LIST = flags.DEFINE_bool("list", False, "List tables and scales, run nothing.")
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "List the jobs of the table and their cost, run nothing."
)
_REPORT_ONLY = flags.DEFINE_bool(
  "report_only", False, "Write the results of what is finished, run nothing."
)


def chosen_tables() -> list[declaration.Table]:
  """Those of --table.

  Raises:
    ValueError: none is named, or one that is not there.
  """
  names = list(tables.TABLES) if _TABLE.value == ["all"] else _TABLE.value
  unknown = [name for name in names if name not in tables.TABLES]
  if unknown or not names:
    raise ValueError(
      f"{'unknown table ' + unknown[0] if unknown else '--table is missing'}: "
      f"choose all, or some of {', '.join(tables.TABLES)}."
    )
  return [tables.TABLES[name] for name in names]


def chosen_tasks(scale: scales.Scale) -> tuple[str, ...]:
  """Those of --tasks.

  Raises:
    ValueError: one is not there.
  """
  if _TASKS.value is None:
    return scale.tasks
  if _TASKS.value == ["none"]:
    return ()
  for column in _TASKS.value:
    if column not in declaration.TASKS:
      raise ValueError(
        f"unknown task {column}: choose some of "
        f"{', '.join(declaration.TASKS)}, or none."
      )
  return tuple(column for column in declaration.TASKS if column in _TASKS.value)


def write_results(output_dir: str, told: report.Report) -> None:
  """Markdown, JSON and PNG of a table, each in one step."""
  stem = os.path.join(output_dir, f"table_{told.table.name}")
  for ending, text in (("md", told.to_markdown()), ("json", told.to_json())):
    files.write_text(f"{stem}.{ending}", text)
  if any(result.values for result in told.rows):
    from tools.experiments import pictures  # Matplotlib takes a second to load.

    pictures.draw(told, f"{stem}.png")


def describe_jobs(
  table: declaration.Table, planned: plan.Plan, scale: scales.Scale
) -> str:
  """What --dry_run prints."""
  jobs_ = planned.jobs.values()
  lines = [
    f"  {job.cost:8.1e} FLOP  {job.title}{job.note and f' ({job.note})'}"
    for job in jobs_
  ]
  total = sum(job.cost for job in jobs_)
  place = "on this machine, at any scale"
  if table is not configurations.TABLE:
    hours = total / scale.speed / 3600
    place = (
      f"about {hours:.2g} hours on {scale.hardware} ({scale.speed_source})"
    )
  lines.append(f"{len(planned.jobs)} jobs, {total:.1e} FLOP: {place}")
  return "\n".join(lines)


def list_all() -> str:
  """What --list prints."""
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


def run_table(
  table: declaration.Table,
  scale: scales.Scale,
  planned: plan.Plan,
  output_dir: str,
  tasks: Sequence[str],
  seeds: Sequence[int],
  held: Optional[BinaryIO],
) -> dict[str, str]:
  """Runs what is missing of a table and writes its results.

  Args:
    table: of `tables.TABLES`.
    scale: how large.
    planned: its jobs.
    output_dir: where everything is.
    tasks: columns to fine-tune on.
    seeds: of the runs.
    held: of `runner.lock`; None: writes the results of what is finished.

  Returns:
    Of each job that failed, why.
  """
  print(f"table {table.name}: {table.title}", flush=True)
  running = runner.Runner(
    planned.jobs, output_dir, _NUM_PARALLEL.value, held=held
  )

  def write(found) -> None:
    told = report.Report(
      table,
      scale,
      tuple(tasks),
      () if table is configurations.TABLE else tuple(seeds),
      results.collect(table, planned.cells, found, tasks),
      running.failed,
      len(planned.jobs) - len(found) - len(running.failed),
      running.machines(),
    )
    write_results(output_dir, told)
    if not (told.missing and held):
      print(told.to_markdown(), flush=True)

  found = running.finished()
  if held and len(found) < len(planned.jobs):
    found = running.run()
  write(found)
  return running.failed


def chosen_scale() -> scales.Scale:
  """That of --scale, where it is to run.

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
      f"--scale={scale.name} runs on a TPU, which one process holds: leave "
      "--num_parallel out."
    )
  for flag in (_TPU, _FINETUNING_TPU):
    if flag.value != _LOCAL and not on_tpu:
      raise ValueError(
        f"--{flag.name} is for --scale=base; --scale={scale.name} runs on "
        f"{scale.hardware}."
      )
  if _NUM_DEVICES.value and not scale.device_bytes:
    raise ValueError(
      f"--num_devices cuts batches to fit; --scale={scale.name} has nothing to "
      "cut: leave it out."
    )
  if on_tpu:
    scale = dataclasses.replace(
      scale,
      placement={**scale.placement, "tpu": _TPU.value},
      finetuning_placement={
        **scale.finetuning_placement,
        "tpu": _FINETUNING_TPU.value,
      },
    )
  return dataclasses.replace(
    scale,
    steps=_TRAIN_STEPS.value or scale.steps,
    num_devices=_NUM_DEVICES.value or scale.num_devices,
  )


def find_place(
  chosen: Sequence[declaration.Table], tasks: Sequence[str]
) -> jobs.Place:
  """Text, tasks and results, by the flags.

  Raises:
    ValueError, OSError: something is not there.
  """
  if not _OUTPUT_DIR.value:
    raise ValueError("--output_dir is missing: name a folder.")
  output_dir = os.path.abspath(_OUTPUT_DIR.value)
  needed = tasks if any(table.tasks for table in chosen) else ()
  if _REPORT_ONLY.value:  # Reads what lies there, and nothing else.
    if not os.path.isdir(output_dir):
      raise FileNotFoundError(
        f"--output_dir {output_dir} is not there: name the folder that the "
        "results are in, or leave --report_only out."
      )
    return jobs.Place(output_dir, "-", "-", dict.fromkeys(needed, "-"))
  if not _INPUT_DIR.value:
    raise ValueError("--input_dir is missing: name a folder.")
  additional = ""
  if _ADDITIONAL_DIR.value:
    additional = inputs.text_files(
      "additional_input_dir", os.path.abspath(_ADDITIONAL_DIR.value)
    )
  return jobs.Place(
    output_dir,
    inputs.text_files("input_dir", os.path.abspath(_INPUT_DIR.value)),
    additional,
    inputs.find_task_data(
      _TASK_DATA_DIR.value and os.path.abspath(_TASK_DATA_DIR.value), needed
    ),
  )


def settings_of(scale: scales.Scale) -> dict[str, Any]:
  """What all results of a folder have in common, whatever their text."""
  return dict(
    scale=scale.name,
    data=dict(scale.data),
    finetuning=dict(scale.finetuning),
    task_flags={k: dict(v) for k, v in scale.task_flags.items()},
  )


def prepare(
  chosen: Sequence[declaration.Table], scale: scales.Scale, place: jobs.Place
) -> BinaryIO:
  """Makes the output folder ours; returns what holds it.

  Raises:
    ValueError, OSError: it is another experiment's, or cannot be written.
  """
  held = runner.lock(place.output_dir)
  more = place.additional_files
  inputs.claim(
    place.output_dir,
    input_files=place.input_files,
    **({"additional_files": more} if more else {}),
    **settings_of(scale),
  )
  if any(table.layers for table in chosen):
    inputs.write_sentences(place.sentences_file, place.input_files)
  return held


def main(argv) -> None:
  del argv
  if _LIST.value:
    print(list_all())
    return
  # Else a terminated run would leave its jobs running.
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  chosen, scale = chosen_tables(), chosen_scale()
  tasks = chosen_tasks(scale)
  place = find_place(chosen, tasks)
  seeds = [_FIRST_SEED.value + i for i in range(_SEEDS.value or scale.seeds)]
  # All of them first: a table that cannot be planned is no news for next week.
  plans = [
    tables.make_plan(table, scale, place, tasks, seeds) for table in chosen
  ]
  if _DRY_RUN.value:
    for table, planned in zip(chosen, plans):
      print(f"table {table.name}: {table.title}")
      print(describe_jobs(table, planned, scale))
    return
  if _REPORT_ONLY.value:
    held = None
    inputs.check(place.output_dir, **settings_of(scale))
  else:
    held = prepare(chosen, scale, place)
  failed: dict[str, str] = {}
  for table, planned in zip(chosen, plans):
    failed.update(
      run_table(table, scale, planned, place.output_dir, tasks, seeds, held)
    )
  if held:
    held.close()
  if failed:
    key, why = next(iter(failed.items()))
    raise ValueError(
      f"{len(failed)} jobs failed, the first of them {key}: {why}; the same "
      "command tries them again."
    )


if __name__ == "__main__":
  command_line.run(main)
