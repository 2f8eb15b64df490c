"""Averages the predictions of several models of one task.

    python -m tools.ensemble --members='runs/mnli/seed_*' --output_dir=all
    python -m tools.ensemble --members='a,b,a/predictions/step_*' \\
        --output_dir=best --task=mnli --data_dir=glue

Each member is a run of tools.run_finetuning, or a folder of predictions, such
as those of several checkpoints of a run (--predict_checkpoints). The program
averages their tables of probabilities (such as dev.probabilities.tsv) for each
split. For SQuAD, it averages the probabilities of the spans and the null odds.
All members have equal weight and must have the same splits, examples and
labels. The output folder gets files with the same names.

With --task and the flags for its data, the program also evaluates the members
and the average on splits with labels (eval_results.json), chooses a
null_score_diff_threshold on the dev split, and writes GLUE's submission.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence

from absl import flags

from official_albert import files, runs
from official_albert.tasks import trained_run
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
_SUBMISSION_DIR = path_flags.define(
  "submission_dir",
  "",
  "Folder of GLUE's submission, which the ensembles of all tasks may share; by "
  "default the folder submission in --output_dir.",
)

if __name__ == "__main__":
  flags.mark_flags_as_required(["members", "output_dir"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tasks.common import finetuning_task
from official_albert.tools.finetuning import predictions as predictions_lib
from official_albert.tools.finetuning import run as finetuning_run
from official_albert.tools.finetuning import summary


def find_members(patterns: str) -> list[str]:
  """Returns the folders of a comma-separated list of names and globs."""
  members: list[str] = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = [pattern] if files.is_dir(pattern) else files.glob(pattern)
    folders = list(filter(files.is_dir, matches))
    if not folders:
      raise FileNotFoundError(f"--members: there is no folder {pattern!r}.")
    members += folders
  places = {_place(predictions_of(member)) for member in members}
  if len(places) < max(len(members), 2):
    raise ValueError(
      f"--members are {', '.join(members) or 'none'}: give two or more runs or "
      "folders of predictions, each of them once."
    )
  return members


def _place(path: str) -> str:
  """Returns the same text for all names of a folder."""
  path = files.absolute(path)
  return path if files.is_remote(path) else os.path.realpath(path)


def predictions_of(member: str) -> str:
  """Returns the folder of the predictions of a run, else the folder itself."""
  folder = os.path.join(member, finetuning_run.PREDICTIONS_FOLDER)
  return folder if files.is_dir(folder) else member


def read(
  folders: Mapping[str, str],
) -> dict[str, dict[str, predictions_lib.Predictions]]:
  """Returns the predictions of all members by split and member."""
  found = {
    folder: predictions_lib.predicted_splits(folder)
    for folder in folders.values()
  }
  first, splits = next(iter(found.items()))
  for folder, others in found.items():
    if others != splits or not splits:
      raise ValueError(
        f"{folder} has predictions of {', '.join(others) or 'no split'}, and "
        f"{first} of {', '.join(splits) or 'no split'}: predict the same "
        "splits with all members."
      )
  return {
    split: {
      member: predictions_lib.read_predictions(folder, split)
      for member, folder in folders.items()
    }
    for split in splits
  }


def make_task(
  members: Sequence[str],
) -> Optional[finetuning_task.FinetuningTask]:
  """Returns the task of the flags, with the columns and labels of a member."""
  task_flags.load_module()
  if not _TASK.value:
    return None
  # The folder of predictions, or of those of a checkpoint, may be in its run.
  folder = files.absolute(members[0])
  for _ in range(3):
    if files.exists(os.path.join(folder, runs.RECORD_FILE)):
      run = trained_run.read(folder)
      return task_flags.make_task(_TASK.value, None, run)
    folder = os.path.dirname(folder)
  return task_flags.make_task(_TASK.value, None)


def measure(
  task: finetuning_task.FinetuningTask,
  predictions: Mapping[str, Mapping[str, predictions_lib.Predictions]],
  averages: Mapping[str, predictions_lib.Predictions],
) -> dict[str, dict[str, float]]:
  """Prints the metrics of the members and the average; returns the latter."""
  results: dict[str, dict[str, float]] = {}
  for split in (*task.eval_splits, *task.test_splits):
    if split not in averages or not task.has_split(split):
      continue
    if not task.is_labeled(split):
      continue
    named = {**predictions[split], "ensemble": averages[split]}
    for name, values in named.items():
      results[split] = task.score_answers(split, values)
      shown = ", ".join(f"{n} {v:.4g}" for n, v in results[split].items())
      print(f"{split}, {name}: {shown}")
  return results


def main(argv: Sequence[str]) -> None:
  del argv
  members, output_dir = find_members(_MEMBERS.value), _OUTPUT_DIR.value
  folders = {member: predictions_of(member) for member in members}
  used = map(_place, [*folders, *folders.values()])
  if _place(output_dir) in used:
    raise ValueError(
      f"--output_dir {output_dir} is a member, whose predictions would be "
      "lost: name another folder."
    )
  for folder in filter(None, (output_dir, _SUBMISSION_DIR.value)):
    files.check_folder(folder)
  # Everything is read, averaged and evaluated before anything is written.
  task = make_task(members)
  predictions = read(folders)
  print(f"averaging {len(members)} members: {', '.join(members)}")
  averages = {
    split: predictions_lib.average_predictions(found, split)
    for split, found in predictions.items()
  }
  results = measure(task, predictions, averages) if task else {}
  files.make_folder(output_dir)
  for split, average in averages.items():
    rows: Any = getattr(average, "ids", average)
    if task:  # It knows SQuAD's threshold.
      paths = task.write_answers(split, average, output_dir)
    else:
      paths = predictions_lib.write_predictions(
        output_dir, split, average, task_flags.NULL_THRESHOLD.value
      )
    for path in paths:
      print(f"wrote {path} ({len(rows):,} examples)")
  if results:
    trained_run.write_results(output_dir, results)
  if task and task.name in glue.GLUE_TASKS:
    submission = os.path.join(output_dir, summary.SUBMISSION_FOLDER)
    summary.write_submission(
      _SUBMISSION_DIR.value or submission, {task.name: output_dir}
    )


if __name__ == "__main__":
  command_line.run(main)
