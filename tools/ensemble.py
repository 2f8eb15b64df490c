"""Averages the predictions of several models of one task.

    python -m tools.ensemble --members='runs/mnli/seed_*' --output_dir=all
    python -m tools.ensemble --members=a,b --output_dir=both --task=mnli \\
        --data_dir=glue

Each member is a run of tools.run_finetuning, or a folder of predictions. The
program averages their tables of probabilities (such as dev.probabilities.tsv)
for each split. For SQuAD, it averages the probabilities of the spans and the
null odds. All members have equal weight and must have the same splits, examples
and labels. The output folder gets files with the same names.

With --task and the flags for its data, the program also evaluates the members
and the average on splits with labels (eval_results.json), chooses a
null_score_diff_threshold there, and writes GLUE's submission.

To serve such an average, tools.export_saved_model exports several runs as one.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Sequence

from absl import flags

from official_albert import files, training
from tasks.classification import glue
from tools import finetuning
from tools.cli import command_line, job_flags, path_flags

_MEMBERS = path_flags.define(
  "members",
  None,
  "Folders of the models, or globs of them, comma-separated.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir",
  None,
  "Folder for the averages; created if missing.",
)
_TASK = flags.DEFINE_enum(
  "task",
  None,
  [name for name in job_flags.TASKS if name != "glue"],
  "What the members were fine-tuned on, to evaluate them.",
)
_SUBMISSION_DIR = path_flags.define(
  "submission_dir",
  "",
  "Folder of GLUE's submission, which the ensembles of all tasks may share; by "
  "default the folder submission in --output_dir.",
)


def find_members(patterns: str) -> list[str]:
  """Returns the folders of a comma-separated list of names and globs."""
  members: list[str] = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = [pattern] if files.is_dir(pattern) else files.glob(pattern)
    folders = list(filter(files.is_dir, matches))
    if not folders:
      raise FileNotFoundError(f"--members: there is no folder {pattern!r}.")
    members += folders
  if len(set(map(_place, members))) < max(len(members), 2):
    raise ValueError(
      f"--members are {', '.join(members) or 'none'}: give two or more "
      "folders, each of them once."
    )
  return members


def _place(path: str) -> str:
  """Returns the same text for all names of a folder."""
  path = files.absolute(path)
  return path if files.is_remote(path) else os.path.realpath(path)


def predictions_of(member: str) -> str:
  """Returns the folder of the predictions of a run, else the folder itself."""
  folder = os.path.join(member, finetuning.run.PREDICTIONS_FOLDER)
  return folder if files.is_dir(folder) else member


def average(
  folders: Sequence[str],
) -> dict[str, finetuning.jobs.Predictions]:
  """Returns the mean of the predictions in the folders for each split."""
  found = {
    folder: finetuning.jobs.predicted_splits(folder) for folder in folders
  }
  splits = found[folders[0]]
  for folder, others in found.items():
    if others != splits or not splits:
      raise ValueError(
        f"{folder} has predictions of {', '.join(others) or 'no split'}, and "
        f"{folders[0]} of {', '.join(splits) or 'no split'}: predict the same "
        "splits with all members."
      )
  return {
    split: finetuning.jobs.average_predictions(folders, split)
    for split in splits
  }


def make_job(members: Sequence[str]) -> Optional[finetuning.jobs.Job]:
  """Returns the task of the flags, with the columns and labels of a member."""
  if not _TASK.value:
    return None
  # A folder of predictions may be in its run.
  for folder in (members[0], os.path.dirname(files.absolute(members[0]))):
    if files.exists(os.path.join(folder, training.RECORD_FILE)):
      run = finetuning.trained_run.read(folder)
      return job_flags.make_job(_TASK.value, None, run)
  return job_flags.make_job(_TASK.value, None)


def measure(
  job: finetuning.jobs.Job,
  folders: Mapping[str, str],
  averages: Mapping[str, finetuning.jobs.Predictions],
) -> dict[str, dict[str, float]]:
  """Prints the metrics of the members and the average; returns the latter."""
  results = {}
  for split in job.eval_splits:
    if split not in averages or not job.has_split(split):
      continue
    predictions = [
      (member, finetuning.jobs.read_predictions(folder, split))
      for member, folder in folders.items()
    ]
    for name, values in (*predictions, ("ensemble", averages[split])):
      results[split] = job.score(split, values)
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
  print(f"averaging {len(members)} members: {', '.join(members)}")
  averages = average(list(folders.values()))
  job = make_job(members)
  results = measure(job, folders, averages) if job else {}
  threshold = job_flags.NULL_THRESHOLD.value
  for values in results.values():
    threshold = values.get("null_score_diff_threshold", threshold)
  files.make_folder(output_dir)
  for split, predictions in averages.items():
    count = len(getattr(predictions, "ids", predictions))
    for path in finetuning.jobs.write_predictions(
      output_dir, split, predictions, threshold
    ):
      print(f"wrote {path} ({count:,} examples)")
  if results:
    finetuning.trained_run.write_results(output_dir, results)
  if job and job.name in glue.GLUE_TASKS:
    submission = os.path.join(output_dir, finetuning.summary.SUBMISSION_FOLDER)
    finetuning.summary.write_submission(
      _SUBMISSION_DIR.value or submission, {job.name: output_dir}
    )


if __name__ == "__main__":
  flags.mark_flags_as_required(["members", "output_dir"])
  command_line.run(main)
