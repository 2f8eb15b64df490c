"""Averages the predictions of several models of one task.

    python -m tools.ensemble --members='runs/mnli/seed_*' --output_dir=all
    python -m tools.ensemble --members='a,b' --output_dir=best \\
        --task=mnli --data_dir=glue

Each member is a run of tools.run_finetuning. Its tables of probabilities, such
as dev.probabilities.tsv, are averaged with equal weights; SQuAD has none. With
--task and the flags for its data, the members and the average are evaluated on
splits with labels (eval_results.json), and GLUE's official files are written.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Mapping

import numpy as np
from absl import flags

from official_albert import files, runs
from official_albert.tasks import common, registry, trained_run
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.finetuning import task_flags

_MEMBERS = path_flags.define(
  "members", None, "Folders of the runs, or globs of them, comma-separated."
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder for the averages; created if missing."
)
_TASK = task_flags.define_task()

if __name__ == "__main__":
  flags.mark_flags_as_required(["members", "output_dir"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tasks.common import finetuning_task
from official_albert.tools.finetuning import results

Tables = dict[str, common.ProbabilityTable]  # By split.


def find_members(patterns: str, output_dir: str) -> list[str]:
  """Returns the folders of the members, of which `output_dir` must be none.

  `patterns` are names of folders, and globs of them, separated by commas.
  """
  members: list[str] = []
  for pattern in patterns.split(","):
    matches = [pattern] if files.is_dir(pattern) else files.glob(pattern)
    if not matches:
      raise FileNotFoundError(f"--members: there is no folder {pattern!r}.")
    members += filter(files.is_dir, matches)
  # One text for all names of a folder, links included.
  output, *places = map(os.path.realpath, [output_dir, *members])
  if len({*places}) < max(len(places), 2) or output in places:
    raise ValueError(
      f"--members are {', '.join(members)}: give two or more runs, each once, "
      "and another folder as --output_dir."
    )
  return members


def read(member: str) -> Tables:
  """Returns the tables of probabilities of a run by split."""
  suffix = common.PROBABILITIES_SUFFIX
  pattern = os.path.join(member, results.PREDICTIONS_FOLDER, f"*{suffix}")
  if not (paths := sorted(files.glob(pattern))):
    is_run = runs.recorded_folder([member])
    of = f", a run of {trained_run.read(member).task}," if is_run else ""
    raise ValueError(
      f"{member}{of} has no {results.PREDICTIONS_FOLDER}/*{suffix} to average: "
      "tasks of classes and numbers write them, not SQuAD, tags or embeddings."
    )
  return {
    os.path.basename(path).removesuffix(suffix): common.read_probabilities(path)
    for path in paths
  }


def average(members: Mapping[str, Tables]) -> Tables:
  """Returns the mean of the tables of each split, as arXiv 1909.11942 does."""
  (first, tables), *others = members.items()
  for name, found in others:
    rows, wanted = (
      {split: (table.ids, table.labels) for split, table in x.items()}
      for x in (found, tables)
    )
    if rows != wanted:
      raise ValueError(
        f"{name} and {first} cannot be averaged: all members need tables of "
        "probabilities of the same splits, with the same ids and labels."
      )
  return {
    split: dataclasses.replace(
      table, values=np.mean([x[split].values for x in members.values()], axis=0)
    )
    for split, table in tables.items()
  }


def main(_) -> None:
  output_dir = _OUTPUT_DIR.value
  members = find_members(_MEMBERS.value, output_dir)
  files.check_folder(output_dir)
  registry.load_module(task_flags.TASK_MODULE.value)
  # Everything is read, averaged and evaluated before anything is written.
  print(f"averaging {len(members)} members: {', '.join(members)}")
  predictions = {name: read(name) for name in members}
  averages = average(predictions)
  predictions["ensemble"] = averages
  task, splits, found = None, list[str](), runs.Results()
  if _TASK.value:
    # The columns and labels of the data are those of a member, if it is a run.
    is_run = runs.recorded_folder(members[:1])
    run = trained_run.read(members[0]) if is_run else None
    task = task_flags.make_task(_TASK.value, None, run)
    if not isinstance(task, finetuning_task.LabelTask):
      raise ValueError(f"--task={task.name} has no probabilities to average.")
    splits = [x for x in averages if task.has_split(x) and task.is_labeled(x)]
    # The dev data of a member chooses its thresholds; the averages come last.
    for name, tables in predictions.items():
      for split in splits:
        found[split] = task.score_answers(split, tables[split])
        print(f"{split}, {name}: {results.shown(found[split])}")
  is_chosen = task and task.eval_split in splits
  for table in () if is_chosen else averages.values():
    if table.labels and np.ptp(table.values.sum(axis=1)) > 0.01:
      raise ValueError(
        "the probabilities of a row do not sum to 1, so a text has several "
        "labels: give --task, and the dev data that chooses their thresholds."
      )
  files.make_folder(output_dir)
  for split, table in averages.items():
    paths = [os.path.join(output_dir, split + common.PROBABILITIES_SUFFIX)]
    if task:
      paths = task.write_answers(split, table, output_dir)
    else:
      common.write_probabilities(paths[0], table)
    for path in paths:
      print(f"wrote {path} ({len(table.ids):,} examples)")
  if found:
    runs.write_results(output_dir, found)


if __name__ == "__main__":
  command_line.run(main)
