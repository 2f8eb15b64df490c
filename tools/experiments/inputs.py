"""The inputs of an experiment: text, task data, and its output folder."""

from __future__ import annotations

import glob
import itertools
import os
from typing import Any, Sequence

from official_albert import files
from tasks.pretraining import data
from tools.cli import settings_file

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
# Number of sentences on which layers are compared.
_SENTENCES = 200


def text_files(flag: str, folder: str) -> str:
  """Returns globs for --input_files that match the texts of a folder.

  Raises:
    FileNotFoundError: there is no such folder, or no text in it.
    ValueError: the folder's name has a comma.
  """
  if not os.path.isdir(folder):
    raise FileNotFoundError(
      f"--{flag} {folder} does not exist: set it to a folder of text."
    )
  # Globs, as the names of a large corpus don't fit on a command line.
  found = [
    pattern
    for suffix in _TEXT_SUFFIXES
    if glob.glob(pattern := os.path.join(glob.escape(folder), f"*.{suffix}"))
  ]
  if not found:
    raise FileNotFoundError(
      f"--{flag} {folder} has no text: its files must end in "
      f"{', '.join('.' + suffix for suffix in _TEXT_SUFFIXES)}."
    )
  if "," in folder:
    raise ValueError(f"{folder} has a comma in its name: rename the folder.")
  return ",".join(found)


def find_task_data(folder: str, tasks: Sequence[str]) -> dict[str, str]:
  """Returns the value of --data_dir for each task.

  Raises:
    FileNotFoundError: the data of a task is missing.
    ValueError: there are tasks and no folder.
  """
  if tasks and not folder:
    raise ValueError(
      "--task_data_dir is missing: set it to the folder of "
      f"{', '.join(tasks)}, or set --tasks=none."
    )
  found = {}
  for task in tasks:
    subfolder, name = _TASK_FILES[task]
    candidates = [os.path.join(folder, subfolder), folder]
    matching = [
      candidate
      for candidate in candidates
      if glob.glob(os.path.join(glob.escape(candidate), name))
    ]
    if not matching:
      raise FileNotFoundError(
        f"--task_data_dir {folder} has no data of {task}: set another folder, "
        "or remove the task from --tasks."
      )
    found[task] = matching[0]
  return found


def check(output_dir: str, **settings: Any) -> dict[str, Any]:
  """Returns the settings that a folder was made with, {} if it is new.

  Raises:
    ValueError: they contradict `settings`, or their file is damaged.
  """
  before = settings_file.read(os.path.join(output_dir, _SETTINGS_FILE))
  for name, value in settings.items():
    if before.get(name, value) != value:
      raise ValueError(
        f"{output_dir} was made with {name} {before[name]!r}, not {value!r}: "
        "set another --output_dir."
      )
  return before


def claim(output_dir: str, **settings: Any) -> None:
  """Checks the settings of a folder and writes them into it.

  Raises:
    ValueError: see `check`.
    OSError: the folder cannot be written.
  """
  files.make_folder(output_dir)
  settings |= check(output_dir, **settings)
  files.write_json(os.path.join(output_dir, _SETTINGS_FILE), settings)


def write_sentences(path: str, input_files: str) -> None:
  """Writes one sentence of each of the first documents, unless it exists.

  Args:
    path: of the file.
    input_files: the text.

  Raises:
    OSError, ValueError: the text cannot be read.
  """
  if os.path.exists(path):
    return
  reader = data.DocumentReader(data.find_files(input_files))
  lines = [
    document[len(document) // 2]
    for document in itertools.islice(reader, _SENTENCES)
  ]
  os.makedirs(os.path.dirname(path), exist_ok=True)
  files.write_text(path, "\n".join(lines) + "\n")
