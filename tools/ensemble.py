"""Averages the predictions of several models of one task.

    python -m tools.ensemble --members='runs/mnli/seed_*' --output_dir=all
    python -m tools.ensemble --members='a,b' --output_dir=best \\
        --task=mnli --data_dir=glue

Each member is a run of tools.run_finetuning, or a folder of predictions. The
program averages their tables of probabilities (such as dev.probabilities.tsv)
for each split. All members have equal weight and must have the same splits,
examples and labels. The output folder gets files with the same names. The
answers of SQuAD are no such tables.

With --task and the flags for its data, the program also evaluates the members
and the average on splits with labels (eval_results.json), and writes GLUE's
submission.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence

from absl import flags

from official_albert import files, runs
from official_albert.tasks import common, trained_run
from official_albert.tasks.classification import glue
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.finetuning import task_flags

_MEMBERS = path_flags.define(
  "members", None, "Folders of the models, or globs of them, comma-separated."
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder for the averages; created if missing."
)
_TASK = task_flags.define_task()

if __name__ == "__main__":
  flags.mark_flags_as_required(["members", "output_dir"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tasks.common import finetuning_task
from official_albert.tools.finetuning import run as finetuning_run
from official_albert.tools.finetuning import summary

# By split.
Tables = dict[str, common.ProbabilityTable]


def find_members(patterns: str) -> dict[str, str]:
  """Returns the folder of predictions of each member.

  `patterns` are names of folders, and globs of them, separated by commas.
  """
  members: list[str] = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = [pattern] if files.is_dir(pattern) else files.glob(pattern)
    folders = list(filter(files.is_dir, matches))
    if not folders:
      raise FileNotFoundError(f"--members: there is no folder {pattern!r}.")
    members += folders
  found = {}
  for member in members:
    folder = os.path.join(member, finetuning_run.PREDICTIONS_FOLDER)
    found[member] = folder if files.is_dir(folder) else member
  if len({*map(_place, found.values())}) < max(len(members), 2):
    raise ValueError(
      f"--members are {', '.join(members) or 'none'}: give two or more runs or "
      "folders of predictions, each of them once."
    )
  return found


def _place(path: str) -> str:
  """Returns the same text for all names of a folder."""
  path = files.absolute(path)
  return path if files.is_remote(path) else os.path.realpath(path)


def read(folder: str) -> Tables:
  """Returns the tables of probabilities in a folder by split."""
  suffix = common.PROBABILITIES_SUFFIX
  return {
    name.removesuffix(suffix): common.read_probabilities(
      os.path.join(folder, name)
    )
    for name in sorted(files.list_dir(folder))
    if name.endswith(suffix)
  }


def average(members: Mapping[str, Tables]) -> Tables:
  """Returns the mean predictions of each split; the keys are for messages."""
  first, splits = next(iter(members.items()))
  for name, found in members.items():
    if found.keys() != splits.keys() or not splits:
      raise ValueError(
        f"{name} has probabilities of {', '.join(found) or 'no split'}, and "
        f"{first} of {', '.join(splits) or 'no split'}: predict the same "
        "splits with all members; answers of SQuAD are not averaged."
      )
  return {
    split: common.average_probabilities(
      {f"{split} of {name}": found[split] for name, found in members.items()}
    )
    for split in splits
  }


def make_task(members: Sequence[str]) -> Optional[finetuning_task.LabelTask]:
  """Returns the task of the flags, with the columns and labels of a member."""
  task_flags.load_module()
  if not _TASK.value:
    return None
  # A member may also be the folder of predictions in a run.
  member = files.absolute(members[0])
  folder = runs.recorded_folder([member, os.path.dirname(member)])
  run = trained_run.read(folder) if folder else None
  task = task_flags.make_task(_TASK.value, None, run)
  if not isinstance(task, finetuning_task.LabelTask):
    raise ValueError(
      f"--task={_TASK.value} has no probabilities of labels to average."
    )
  return task


def measure(
  task: finetuning_task.LabelTask, predictions: Mapping[str, Tables]
) -> trained_run.Results:
  """Prints the metrics of each member; returns those of the last."""
  results: trained_run.Results = {}
  splits = (*task.eval_splits, *task.test_splits)
  for split in filter(task.has_split, splits):
    for name, found in predictions.items():
      if split in found and task.is_labeled(split):
        results[split] = task.score_answers(split, found[split])
        shown = ", ".join(f"{n} {v:.4g}" for n, v in results[split].items())
        print(f"{split}, {name}: {shown}")
  return results


def main(argv: Sequence[str]) -> None:
  del argv
  members, output_dir = find_members(_MEMBERS.value), _OUTPUT_DIR.value
  if _place(output_dir) in map(_place, [*members, *members.values()]):
    raise ValueError(
      f"--output_dir {output_dir} is a member, whose predictions would be "
      "lost: name another folder."
    )
  files.check_folder(output_dir)
  # Everything is read, averaged and evaluated before anything is written.
  task = make_task(list(members))
  print(f"averaging {len(members)} members: {', '.join(members)}")
  predictions = {name: read(folder) for name, folder in members.items()}
  averages = average(predictions)
  results = {}
  if task:
    results = measure(task, {**predictions, "ensemble": averages})
  files.make_folder(output_dir)
  for split, found in averages.items():
    path = os.path.join(output_dir, split + common.PROBABILITIES_SUFFIX)
    common.write_probabilities(path, found)
    print(f"wrote {path} ({len(found.ids):,} examples)")
  if results:
    trained_run.write_results(output_dir, results)
  if task and task.name in glue.GLUE_TASKS:
    submission = os.path.join(output_dir, summary.SUBMISSION_FOLDER)
    summary.write_submission(submission, {task.name: output_dir})


if __name__ == "__main__":
  command_line.run(main)
