"""What an experiment is given: text, tasks, and a folder that is its own."""

from __future__ import annotations

import glob
import itertools
import os
from typing import Any, Sequence

from official_albert import files
from tasks.pretraining import data
from tools.cli import settings_file

_SETTINGS_FILE = "experiments.json"
_TEXT_ENDINGS = ("txt", "jsonl", "txt.gz", "jsonl.gz", "txt.zst", "jsonl.zst")
# That layers are compared on.
_SENTENCES = 200


def text_files(flag: str, folder: str) -> str:
  """The texts of a folder as globs for --input_files.

  Raises:
    FileNotFoundError: there is no such folder, or no text in it.
    ValueError: the folder's name has a comma.
  """
  if not os.path.isdir(folder):
    raise FileNotFoundError(
      f"--{flag} {folder} is not there: name a folder with text."
    )
  # No list of all files: a large corpus has more than a command line can hold.
  found = [
    pattern
    for ending in _TEXT_ENDINGS
    if glob.glob(pattern := os.path.join(glob.escape(folder), f"*.{ending}"))
  ]
  if not found:
    raise FileNotFoundError(
      f"--{flag} {folder} holds no text: its files end in "
      f"{', '.join('.' + ending for ending in _TEXT_ENDINGS)}."
    )
  if "," in folder:
    raise ValueError(f"{folder} has a comma in its name: give it another one.")
  return ",".join(found)


def find_task_data(folder: str, columns: Sequence[str]) -> dict[str, str]:
  """Of each task the folder for --data_dir.

  Raises:
    FileNotFoundError: there is no data for one.
    ValueError: there is no folder, and a task.
  """
  if columns and not folder:
    raise ValueError(
      f"--task_data_dir is missing: name the folder with {', '.join(columns)}, "
      "or give --tasks=none."
    )
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
        f"--task_data_dir {folder} has no data of {column}: "
        f"name another folder, or leave the task out of --tasks."
      )
  return found


def claim(output_dir: str, **settings: Any) -> None:
  """Refuses a folder whose models were made with other text or sizes.

  Raises:
    ValueError: they were, or it is not known.
    OSError: the folder cannot be made or written.
  """
  files.make_folder(output_dir)
  settings |= check(output_dir, **settings)
  files.write_json(os.path.join(output_dir, _SETTINGS_FILE), settings)


def check(output_dir: str, **settings: Any) -> dict[str, Any]:
  """Returns what a folder was claimed with: {} if it was not.

  Raises:
    ValueError: some of `settings` are others there, or it is not known.
  """
  before = settings_file.read(os.path.join(output_dir, _SETTINGS_FILE))
  for name, value in settings.items():
    if before.get(name, value) != value:
      raise ValueError(
        f"{output_dir} was made with {name} {before[name]!r}, not {value!r}: "
        "give another --output_dir."
      )
  return before


def write_sentences(path: str, input_files: str) -> None:
  """Sentences to compare layers on: one of each document, written once.

  Args:
    path: where to.
    input_files: the text.

  Raises:
    OSError, ValueError: it cannot be read.
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
