"""Runs a table or figure of the paper as an experiment, at any scale.

    python -m tools.run_experiments --table=4 --scale=tiny --input_dir=TEXT \\
        --task_data_dir=DATA --output_dir=OUT
    python -m tools.run_experiments --list

Tables: 1 to 8 and 11 to 13 of arXiv 1909.11942, its figures figure_1 and
figure_2, depth_schedule and depth_inference; several at once as --table=3,4, or
all. TEXT holds the documents to pretrain on (what tools.create_pretraining_data
reads), DATA the folders of GLUE's tasks, of SQuAD and RACE.

Each row is pretrained with several seeds and fine-tuned on --tasks. Models that
two tables share are trained once for one --output_dir. Killed and started
again, the same command goes on where it was. OUT/table_NAME.md, .json and .png
are written at the end, and at each start from what is finished: the paper's
numbers beside ours, and whether the direction is the same.
"""

from __future__ import annotations

import dataclasses
import glob
import itertools
import json
import os
import signal
import sys
from typing import Sequence

from absl import flags

from tasks.pretraining import documents
from tools import command_line
from tools.experiments import (
  configurations,
  declaration,
  depth_inference,
  jobs,
  own_tables,
  paper_tables,
  plan,
  report,
  results,
  runner,
  scales,
)

TABLES = {
  table.name: table
  for table in (
    configurations.TABLE,
    *paper_tables.TABLES,
    *own_tables.TABLES,
    depth_inference.TABLE,
  )
}

_TABLE = flags.DEFINE_list(
  "table", [], f"all, or some of {', '.join(TABLES)}, comma-separated."
)
_SCALE = flags.DEFINE_enum(
  "scale", "tiny", list(scales.SCALES), "How large; see --list."
)
_INPUT_DIR = flags.DEFINE_string(
  "input_dir", "", "Folder of the text to pretrain on."
)
_ADDITIONAL_DIR = flags.DEFINE_string(
  "additional_input_dir", "", "Folder of more text, for table 7."
)
_TASK_DATA_DIR = flags.DEFINE_string(
  "task_data_dir",
  "",
  "Folder of the tasks: GLUE's in it or in its glue/, SQuAD's and RACE's in it "
  "or in squad/ and race/.",
)
_OUTPUT_DIR = flags.DEFINE_string(
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
_LIST = flags.DEFINE_bool("list", False, "List tables and scales, run nothing.")
_DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "List the jobs of the table and their cost, run nothing."
)
_REPORT_ONLY = flags.DEFINE_bool(
  "report_only", False, "Write the results of what is finished, run nothing."
)

_TEXT_ENDINGS = ("txt", "jsonl", "txt.gz", "jsonl.gz", "txt.zst", "jsonl.zst")
_SENTENCES = 200


def text_files(flag: str, folder: str) -> str:
  """The texts of a folder as --input_files takes them.

  Raises:
    FileNotFoundError: there is no text.
    ValueError: a name has a comma.
  """
  found = sorted(
    path
    for ending in _TEXT_ENDINGS
    for path in glob.glob(os.path.join(glob.escape(folder), f"*.{ending}"))
  )
  if not found:
    raise FileNotFoundError(
      f"--{flag} {folder} holds no text: its files end in "
      f"{', '.join('.' + ending for ending in _TEXT_ENDINGS)}."
    )
  for path in found:
    if "," in path:
      raise ValueError(f"{path} has a comma in its name: give it another one.")
  return ",".join(found)


def find_task_data(folder: str, columns: Sequence[str]) -> dict[str, str]:
  """Of each task the folder for --data_dir.

  Raises:
    FileNotFoundError: there is no data for one.
  """
  inside = {"MNLI": "glue", "SST-2": "glue", "RACE": "race"}
  names = {"MNLI": "MNLI", "SST-2": "SST-2", "RACE": "RACE*"}
  found = {}
  for column in columns:
    for place in (
      os.path.join(folder, inside.get(column, "squad")),
      folder,
    ):
      name = names.get(column, f"train-v{column[-3:]}.json*")
      if glob.glob(os.path.join(glob.escape(place), name)):
        found[column] = place
        break
    else:
      raise FileNotFoundError(
        f"--task_data_dir {folder or '(not given)'} has no data of {column}: "
        f"name another folder, or leave the task out of --tasks."
      )
  return found


def chosen_tables() -> list[declaration.Table]:
  """Those of --table.

  Raises:
    ValueError: none is named, or one that is not there.
  """
  names = list(TABLES) if _TABLE.value == ["all"] else _TABLE.value
  unknown = [name for name in names if name not in TABLES]
  if unknown or not names:
    raise ValueError(
      f"{'unknown table ' + unknown[0] if unknown else '--table is missing'}: "
      f"choose all, or some of {', '.join(TABLES)}."
    )
  return [TABLES[name] for name in names]


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


def claim(output_dir: str, **settings) -> None:
  """Refuses a folder whose models were made with other text or sizes.

  Raises:
    ValueError: they were.
    OSError: the folder cannot be made or written.
  """
  os.makedirs(output_dir, exist_ok=True)
  path = os.path.join(output_dir, "experiments.json")
  if os.path.exists(path):
    with open(path, encoding="utf-8") as file:
      before = json.load(file)
    for name, value in settings.items():
      if before.setdefault(name, value) != value:
        raise ValueError(
          f"{output_dir} was made with {name} {before[name]!r}, not {value!r}: "
          "give another --output_dir."
        )
    settings = before
  with open(f"{path}.tmp", "w", encoding="utf-8") as file:
    json.dump(settings, file, indent=1)
  os.replace(f"{path}.tmp", path)


def sentences_file(output_dir: str, input_files: str) -> str:
  """Sentences to compare layers on: one of each document, written once.

  Args:
    output_dir: below which they are written.
    input_files: the text.

  Raises:
    OSError, ValueError: it cannot be read.
  """
  path = os.path.join(output_dir, "data", "sentences.txt")
  if not os.path.exists(path):
    reader = documents.DocumentReader(documents.find_files(input_files))
    lines = [
      document[len(document) // 2]
      for document in itertools.islice(reader, _SENTENCES)
    ]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
      file.write("\n".join(lines) + "\n")
    os.replace(f"{path}.tmp", path)
  return path


def write_results(output_dir: str, told: report.Report) -> None:
  """Markdown, JSON and PNG of a table, each in one step."""
  stem = os.path.join(output_dir, f"table_{told.table.name}")
  for ending, text in (("md", told.to_markdown()), ("json", told.to_json())):
    with open(f"{stem}.{ending}.tmp", "w", encoding="utf-8") as file:
      file.write(text)
    os.replace(f"{stem}.{ending}.tmp", f"{stem}.{ending}")
  if any(result.values for result in told.rows):
    from tools.experiments import pictures  # Matplotlib takes a second to load.

    pictures.draw(told, f"{stem}.png")


def describe_jobs(planned: plan.Plan, scale: scales.Scale) -> str:
  """What --dry_run prints."""
  jobs_ = planned.jobs.values()
  lines = [f"  {job.cost:8.1e} FLOP  {job.title}" for job in jobs_]
  total = sum(job.cost for job in jobs_)
  hours = total / scale.speed / 3600
  lines.append(
    f"{len(planned.jobs)} jobs, {total:.1e} FLOP: about {hours:.2g} hours on "
    f"{scale.hardware} ({scale.speed_source})"
  )
  return "\n".join(lines)


def list_all() -> str:
  """What --list prints."""
  lines = ["tables:"]
  lines += [f"  {t.name:15} {t.title} ({t.source})" for t in TABLES.values()]
  lines.append("scales:")
  lines += [
    f"  {s.name:15} {s.steps:,} steps of {s.training['train_batch_size']} x "
    f"{s.max_seq_length} tokens; {s.hardware}"
    for s in scales.SCALES.values()
  ]
  return "\n".join(lines)


def run_table(
  table: declaration.Table,
  scale: scales.Scale,
  place: jobs.Place,
  tasks: Sequence[str],
  seeds: Sequence[int],
) -> dict[str, str]:
  """Runs what is missing of a table and writes its results.

  Returns:
    Of each job that failed, why.
  """
  sentences = ""
  if table.layers and not _DRY_RUN.value:
    sentences = sentences_file(place.output_dir, place.input_files)
  if table is configurations.TABLE:
    planned, seeds = configurations.make_plan(place), ()
  elif table is depth_inference.TABLE:
    planned = depth_inference.make_plan(scale, place, tasks, seeds)
  else:
    planned = plan.make_plan(table, scale, place, tasks, seeds, sentences)
  print(f"table {table.name}: {table.title}", flush=True)
  if _DRY_RUN.value:
    print(describe_jobs(planned, scale))
    return {}
  running = runner.Runner(planned.jobs, place.output_dir, _NUM_PARALLEL.value)

  def write(found) -> None:
    told = report.Report(
      table,
      scale,
      tuple(tasks),
      tuple(seeds),
      results.collect(table, planned.cells, found, tasks),
      running.failed,
      len(planned.jobs) - len(found) - len(running.failed),
    )
    write_results(place.output_dir, told)
    if not told.missing or _REPORT_ONLY.value:
      print(told.to_markdown(), flush=True)

  found = running.finished()
  write(found)
  if not _REPORT_ONLY.value and len(found) < len(planned.jobs):
    write(running.run())
  return running.failed


def main(argv) -> None:
  del argv
  if _LIST.value:
    print(list_all())
    return
  # Else a terminated run would leave its jobs running.
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  tables, scale = chosen_tables(), scales.SCALES[_SCALE.value]
  if _TRAIN_STEPS.value:
    scale = dataclasses.replace(scale, steps=_TRAIN_STEPS.value)
  tasks = chosen_tasks(scale)
  for flag in (_SEEDS, _TRAIN_STEPS):
    if flag.value < 0:
      raise ValueError(f"--{flag.name} must not be negative, got {flag.value}.")
  for name in ("input_dir", "output_dir"):
    if not flags.FLAGS[name].value:
      raise ValueError(f"--{name} is missing: name a folder.")
  additional = ""
  if _ADDITIONAL_DIR.value:
    additional = text_files("additional_input_dir", _ADDITIONAL_DIR.value)
  needed = tasks if any(table.tasks for table in tables) else ()
  output_dir = os.path.abspath(_OUTPUT_DIR.value)
  place = jobs.Place(
    output_dir,
    text_files("input_dir", os.path.abspath(_INPUT_DIR.value)),
    additional,
    find_task_data(os.path.abspath(_TASK_DATA_DIR.value), needed),
  )
  seeds = [_FIRST_SEED.value + i for i in range(_SEEDS.value or scale.seeds)]
  if not _DRY_RUN.value:
    claim(
      output_dir,
      scale=scale.name,
      input_files=place.input_files,
      data=dict(scale.data),
      finetuning=dict(scale.finetuning),
      task_flags={k: dict(v) for k, v in scale.task_flags.items()},
      **({"additional_files": additional} if additional else {}),
    )
  working = not (_DRY_RUN.value or _REPORT_ONLY.value)
  lock = runner.lock(output_dir) if working else None
  failed: dict[str, str] = {}
  for table in tables:
    failed.update(run_table(table, scale, place, tasks, seeds))
  if lock:
    lock.close()
  if failed:
    key, why = next(iter(failed.items()))
    raise ValueError(
      f"{len(failed)} jobs failed, the first of them {key}: {why}; the same "
      "command tries them again."
    )


if __name__ == "__main__":
  command_line.run(main)
