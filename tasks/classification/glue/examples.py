"""The official files of GLUE: where they are, and which column is what.

Deviation: columns are found by their names in the header, where the original
counts (CoLA's train and dev files have no header: there the positions count).
On the official files both agree with the positions that google-research/albert
classifier_utils.py reads.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from typing import Iterator, Mapping, Optional

from tasks import common
from tasks.classification.glue import benchmark


@dataclasses.dataclass(frozen=True)
class Columns:
  """The names of the columns that are read; "" for what a file doesn't have."""

  text_a: str
  text_b: str = ""
  label: str = "label"
  # Without one, examples are numbered from 0, as the site numbers its tests.
  guid: str = "index"


@dataclasses.dataclass(frozen=True)
class Split:
  """What was read of one file.

  Attributes:
    path: of the file.
    examples: in its order.
    skipped_lines: numbers of the lines that are too short to be examples; only
      QQP has such, whose questions once had tabs and newlines in them.
  """

  path: str
  examples: list[common.TextExample]
  skipped_lines: tuple[int, ...] = ()


_PAIR = Columns("sentence1", "sentence2")
_QUESTION = Columns("question1", "question2", "is_duplicate", "id")
_COLUMNS: Mapping[str, Columns] = {
  "cola": Columns("sentence"),
  "sst2": Columns("sentence", guid=""),
  "mrpc": Columns("#1 String", "#2 String", "Quality", guid=""),
  "stsb": Columns("sentence1", "sentence2", "score"),
  "qqp": _QUESTION,
  "mnli": Columns("sentence1", "sentence2", "gold_label"),
  "qnli": Columns("question", "sentence"),
  "rte": _PAIR,
  "wnli": _PAIR,
}
# Of CoLA's files without a header: source, label, the linguist's mark, text.
_COLA_POSITIONS = {"sentence": 3, "label": 1}
_COLA_CELLS = 4

_AX_FOLDERS = ("AX", "diagnostic")
_AX_FILE = "diagnostic.tsv"


def find_file(
  data_dir: str, task: benchmark.GlueTask, split: str
) -> pathlib.Path:
  """The file of a split.

  Args:
    data_dir: the folder that holds CoLA/, MNLI/ and so on (also as cola/ or
      STSB/: neither case nor hyphens count), or the task's own.
    task: which task.
    split: one of `task.splits`. The diagnostics ("ax") are AX/diagnostic.tsv
      or diagnostic/diagnostic.tsv, beside the folder MNLI.

  Raises:
    FileNotFoundError: it isn't there.
    ValueError: `task` has no such split.
  """
  benchmark.check_split(task, split)
  root = pathlib.Path(data_dir)
  if not root.is_dir():
    raise FileNotFoundError(f"there is no folder {data_dir}.")
  if split == "ax":
    names, file_name = _AX_FOLDERS, _AX_FILE
    # `root` may be MNLI's own folder.
    roots = (root, root.absolute().parent)
  else:
    names, file_name = (task.folder,), f"{split}.tsv"
    roots = (root,)
  candidates = [
    folder / file_name for top in roots for folder in _folders(top, names)
  ]
  candidates.append(root / file_name)
  for candidate in candidates:
    if candidate.is_file():
      return candidate
  expected = " or ".join(os.path.join(name, file_name) for name in names)
  raise FileNotFoundError(
    f"{task.name} needs {expected} in {data_dir}, or {file_name} if that is "
    f"the task's own folder; neither is there."
  )


def _folders(root: pathlib.Path, names: tuple[str, ...]) -> list[pathlib.Path]:
  """The folders in `root` with one of `names`, exact ones first."""

  def plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

  wanted = [plain(name) for name in names]
  found = [path for path in root.iterdir() if plain(path.name) in wanted]
  return sorted(found, key=lambda path: (path.name not in names, path.name))


def read_split(data_dir: str, task: benchmark.GlueTask, split: str) -> Split:
  """Reads one split; labels are None in test splits.

  Too many cells in a row are no error, as in the original; an empty text is an
  example too, for each row of a test has to be answered.

  Raises:
    FileNotFoundError: see `find_file`.
    ValueError: the file is empty or not UTF-8, its header lacks a column, a
      row is too short, a label unknown, or a score not a number from 0 to 5.
      The message says which file and line.
  """
  path = str(find_file(data_dir, task, split))
  has_labels = split == "train" or split in task.dev_splits
  columns = _COLUMNS[task.name]
  if not has_labels:
    # Every test file begins with its own number, which the site asks for.
    guid = columns.guid or "index"
    columns = dataclasses.replace(columns, label="", guid=guid)
  elif task.name == "cola":
    columns = dataclasses.replace(columns, guid="")
  examples = []
  skipped = []
  for row, cells in _named_cells(path, task, columns, has_labels):
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
    raise ValueError(f"{path} holds no example, only a header.")
  return Split(path, examples, tuple(skipped))


def _named_cells(
  path: str, task: benchmark.GlueTask, columns: Columns, has_labels: bool
) -> Iterator[tuple[common.Row, Optional[dict[str, str]]]]:
  """Yields each row and its cells by field of `Columns`; None if skipped."""
  names = {
    field: name for field, name in dataclasses.asdict(columns).items() if name
  }
  rows = common.read_tsv(path)
  if task.name == "cola" and has_labels:
    positions = {field: _COLA_POSITIONS[name] for field, name in names.items()}
    width = _COLA_CELLS
  else:
    header = next(rows)
    missing = [name for name in names.values() if name not in header.cells]
    if missing:
      raise ValueError(
        f"{header.where}: the header of {task.name} has no column "
        f"{', '.join(map(repr, missing))}, it has "
        f"{', '.join(map(repr, header.cells))}; take the official file."
      )
    positions = {
      field: header.cells.index(name) for field, name in names.items()
    }
    width = len(header.cells)
  for row in rows:
    if len(row.cells) >= width:
      yield row, {f: row.cells[place] for f, place in positions.items()}
    elif task.name == "qqp" and has_labels:
      # Deviation: the original passes over such a row of the test file too,
      # which leaves the site without an answer.
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
