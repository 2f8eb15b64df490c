"""Finds and reads the official files of GLUE.

Deviation: columns are found by their names in the header, while the original
uses positions. (CoLA's train and dev files have no header; they are read by
position.) On the official files both agree with google-research/albert
classifier_utils.py.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from typing import Iterator, Mapping, NamedTuple, Optional

from tasks import common
from tasks.classification.glue import benchmark


@dataclasses.dataclass(frozen=True)
class Split:
  """The examples of one file.

  Attributes:
    path: the file.
    examples: in the file's order.
    skipped_lines: numbers of lines with too few cells. Only QQP has such lines,
      since its questions once contained tabs and newlines.
  """

  path: str
  examples: list[common.TextExample]
  skipped_lines: tuple[int, ...] = ()


class _Columns(NamedTuple):
  """Names of columns; "" for what the file does not have."""

  text_a: str
  text_b: str = ""
  label: str = "label"
  # Without ids, examples are numbered from 0.
  guid: str = "index"


_PAIR = _Columns("sentence1", "sentence2")
_COLUMNS: Mapping[str, _Columns] = {
  "cola": _Columns("sentence"),
  "sst2": _Columns("sentence", guid=""),
  "mrpc": _Columns("#1 String", "#2 String", "Quality", guid=""),
  "stsb": _Columns("sentence1", "sentence2", "score"),
  "qqp": _Columns("question1", "question2", "is_duplicate", "id"),
  "mnli": _Columns("sentence1", "sentence2", "gold_label"),
  "qnli": _Columns("question", "sentence"),
  "rte": _PAIR,
  "wnli": _PAIR,
}
# CoLA's files without a header have source, label, the linguist's mark, text.
_COLA_POSITIONS = {"text_a": 3, "label": 1}
_COLA_WIDTH = 4


def find_file(
  data_dir: str, task: benchmark.GlueTask, split: str
) -> pathlib.Path:
  """Returns the file of a split.

  Args:
    data_dir: the folder with CoLA/, MNLI/ and so on, or the task's own. Names
      are compared without case and hyphens: cola/ and STSB/ are found too.
    task: the task.
    split: one of `task.splits`. The diagnostics ("ax") are AX/diagnostic.tsv
      or diagnostic/diagnostic.tsv, beside the folder MNLI.

  Raises:
    FileNotFoundError: the file is not there.
    ValueError: `task` has no such split.
  """
  if split not in task.splits:
    raise ValueError(
      f"{task.name} has no split {split!r}; choose one of "
      f"{', '.join(task.splits)}."
    )
  root = pathlib.Path(data_dir)
  if not root.is_dir():
    raise FileNotFoundError(f"the folder {data_dir} does not exist.")
  names, file_name, roots = (task.folder,), f"{split}.tsv", (root,)
  if split == "ax":
    names, file_name = ("AX", "diagnostic"), "diagnostic.tsv"
    roots = (root, root.absolute().parent)  # `root` may be MNLI's own folder.
  candidates = [
    folder / file_name for top in roots for folder in _folders(top, names)
  ]
  for candidate in (*candidates, root / file_name):
    if candidate.is_file():
      return candidate
  expected = " or ".join(os.path.join(name, file_name) for name in names)
  raise FileNotFoundError(
    f"{task.name} needs {expected} in {data_dir}, or {file_name} if that is "
    "the task's own folder; neither exists."
  )


def _folders(root: pathlib.Path, names: tuple[str, ...]) -> list[pathlib.Path]:
  """Returns the folders in `root` with one of `names`, exact ones first."""

  def plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

  wanted = [plain(name) for name in names]
  found = [path for path in root.iterdir() if plain(path.name) in wanted]
  return sorted(found, key=lambda path: (path.name not in names, path.name))


def read_split(data_dir: str, task: benchmark.GlueTask, split: str) -> Split:
  """Reads one split; labels are None in test splits.

  As in the original, extra cells are ignored and a text may be empty: the site
  expects a prediction for every row of a test file.

  Raises:
    FileNotFoundError: see `find_file`.
    ValueError: the file is empty or not UTF-8, a column or cell is missing, a
      label is unknown, or a score is not from 0 to 5. The message has file and
      line.
  """
  path = str(find_file(data_dir, task, split))
  has_labels = split not in task.test_splits
  examples = []
  skipped = []
  for row, cells in _named_cells(path, task, has_labels):
    if cells is None:
      skipped.append(row.line)
      continue
    label = cells.get("label")
    if label is not None:
      _check_label(task, label, row)
    examples.append(
      common.TextExample(
        guid=cells.get("guid", str(len(examples))),
        text_a=cells["text_a"],
        text_b=cells.get("text_b"),
        label=label,
      )
    )
  if not examples:
    raise ValueError(f"{path} has a header, but no examples.")
  return Split(path, examples, tuple(skipped))


def _named_cells(
  path: str, task: benchmark.GlueTask, has_labels: bool
) -> Iterator[tuple[common.Row, Optional[dict[str, str]]]]:
  """Yields rows and their cells by field of `_Columns`; None to skip a row."""
  rows = common.read_tsv(path)
  if task.name == "cola" and has_labels:
    positions, width = _COLA_POSITIONS, _COLA_WIDTH
  else:
    columns = _COLUMNS[task.name]
    if not has_labels:
      # All test files have ids, in most of them called "index".
      columns = columns._replace(label="", guid=columns.guid or "index")
    names = {k: name for k, name in columns._asdict().items() if name}
    header = next(rows)
    missing = [name for name in names.values() if name not in header.cells]
    if missing:
      raise ValueError(
        f"{header.where}: the header of {task.name} has no column "
        f"{', '.join(map(repr, missing))}, it has "
        f"{', '.join(map(repr, header.cells))}; take the official file."
      )
    positions = {k: header.cells.index(name) for k, name in names.items()}
    width = len(header.cells)
  for row in rows:
    if len(row.cells) >= width:
      yield row, {k: row.cells[position] for k, position in positions.items()}
    elif task.name == "qqp" and has_labels:
      # Deviation: the original also skips such a row of the test file, and
      # leaves it without a prediction.
      yield row, None
    else:
      raise ValueError(
        f"{row.where} has {len(row.cells)} columns, {task.name} needs {width}, "
        "separated by tabs."
      )


def _check_label(task: benchmark.GlueTask, label: str, row: common.Row) -> None:
  if task.labels is not None:
    if label not in task.labels:
      raise ValueError(
        f"{row.where}: unknown label {label!r}; those of {task.name} are "
        f"{', '.join(task.labels)}."
      )
    return
  try:
    value = float(label)
  except ValueError:
    value = math.nan
  if not 0.0 <= value <= 5.0:
    raise ValueError(
      f"{row.where}: the score of {task.name} must be a number from 0 to 5, "
      f"got {label!r}."
    )
