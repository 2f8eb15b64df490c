"""Finds and reads the official files of GLUE.

Deviation: columns are found by their names in the header, while the original
uses positions. (CoLA's train and dev files have no header and are read by
position.) Both agree on the official files. Reference: google-research/albert
classifier_utils.py.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib

from tasks import common
from tasks.classification.glue.benchmark import GlueTask


@dataclasses.dataclass(frozen=True)
class Split:
  """The examples of one file.

  Attributes:
    path: the file.
    examples: in the file's order.
    skipped_lines: the numbers of lines with too few cells. Only QQP has such
      lines, because its original questions contained tabs and newlines.
  """

  path: str
  examples: list[common.TextExample]
  skipped_lines: tuple[int, ...] = ()


# CoLA's files without a header have source, label, original judgment, text.
_COLA_COLUMNS = ["", "label", "", "sentence"]


def find_file(data_dir: str, task: GlueTask, split: str) -> pathlib.Path:
  """Returns the file of a split.

  `data_dir` is the folder with CoLA/, MNLI/ and so on, or the task's folder.
  Names are compared without case and hyphens, so cola/ and STSB/ are found too.
  The diagnostics ("ax") are AX/diagnostic.tsv or diagnostic/diagnostic.tsv,
  beside the folder MNLI.

  Raises:
    FileNotFoundError: the file does not exist.
  """
  root = pathlib.Path(data_dir)
  if not root.is_dir():
    raise FileNotFoundError(f"the folder {data_dir} does not exist.")
  names, file_name, roots = (task.folder,), f"{split}.tsv", (root,)
  if split == "ax":
    names, file_name = ("AX", "diagnostic"), "diagnostic.tsv"
    roots = (
      root,
      root.absolute().parent,
    )  # `root` may be the folder of MNLI itself.
  plain_names = [_plain(name) for name in names]
  for top in roots:
    folders = [f for f in top.iterdir() if _plain(f.name) in plain_names]
    # Prefer exact names.
    for folder in sorted(folders, key=lambda f: (f.name not in names, f.name)):
      if (folder / file_name).is_file():
        return folder / file_name
  if (root / file_name).is_file():
    return root / file_name
  expected = " or ".join(f"{name}/{file_name}" for name in names)
  raise FileNotFoundError(
    f"{task.name} needs {expected} in {data_dir}, or {file_name} if that is "
    "the task's own folder; neither exists."
  )


def _plain(name: str) -> str:
  return name.lower().replace("-", "").replace("_", "")


def read_split(data_dir: str, task: GlueTask, split: str) -> Split:
  """Reads one split; labels are None in test splits.

  As in the original, extra cells are ignored and a text may be empty, because
  gluebenchmark.com expects a prediction for every row of a test file.

  Raises:
    FileNotFoundError: see `find_file`.
    ValueError: the file is empty or not UTF-8, a column or cell is missing, a
      label is unknown, or a score is not from 0 to 5. The message names file
      and line.
  """
  path = str(find_file(data_dir, task, split))
  has_labels = split not in task.test_splits
  rows = common.read_tsv(path)
  columns = {f"text_{letter}": name for letter, name in zip("ab", task.texts)}
  if has_labels:
    columns["label"] = task.label
  if task.name == "cola" and has_labels:
    header = _COLA_COLUMNS
  else:
    _, header = next(rows, (1, []))
    if task.guid or not has_labels:
      columns["guid"] = task.guid or "index"
  missing = [name for name in columns.values() if name not in header]
  if missing:
    raise ValueError(
      f"{path}, line 1: the header of {task.name} has no column "
      f"{', '.join(map(repr, missing))}, it has "
      f"{', '.join(map(repr, header))}; take the official file."
    )
  positions = {key: header.index(name) for key, name in columns.items()}
  examples, skipped = [], []
  for line, cells in rows:
    where = f"{path}, line {line}"
    if len(cells) < len(header):
      # Deviation: the original also skips such a row of the test file, and
      # leaves it without a prediction.
      if task.name == "qqp" and has_labels:
        skipped.append(line)
        continue
      raise ValueError(
        f"{where} has {len(cells)} columns, {task.name} needs {len(header)}, "
        "separated by tabs."
      )
    values = {key: cells[position] for key, position in positions.items()}
    if has_labels:
      _check_label(task, values["label"], where)
    examples.append(
      common.TextExample(**{"guid": str(len(examples)), **values})
    )
  if not examples:
    raise ValueError(f"{path} has a header, but no examples.")
  return Split(path, examples, tuple(skipped))


def _check_label(task: GlueTask, label: str, where: str) -> None:
  if task.labels is not None:
    if label not in task.labels:
      raise ValueError(
        f"{where}: unknown label {label!r}; those of {task.name} are "
        f"{', '.join(task.labels)}."
      )
    return
  try:
    value = float(label)
  except ValueError:
    value = math.nan
  if not 0.0 <= value <= 5.0:
    raise ValueError(
      f"{where}: the score of {task.name} must be a number from 0 to 5, got "
      f"{label!r}."
    )
