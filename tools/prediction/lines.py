"""Reads the rows to predict, and writes a line with the answer to each.

Rows come one at a time from tables (tasks/common/rows.py), from files with one
text per line, or from the command line. Predictions are a table or JSON lines,
with the fields of `tasks.answer_fields`; docs/finetuning.md, "Prediction",
describes them.

A cell of a table cannot contain tabs and line breaks, so spaces replace them;
JSON lines keep the text. Numbers have nine digits, which represent a float32
exactly.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

from official_albert import files, text_files
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR
from official_albert.tasks.registry import NUM_OPTIONS, OPTIONS

STANDARD_OUTPUT = "-"
_OTHER_FORMATS = (
  *text_files.ENDINGS,
  *(".csv", ".json", ".ndjson", ".parquet", ".xlsx"),
)
_CELL = str.maketrans("\t\n\r", "   ")


def choose_columns(
  paths: Sequence[str],
  roles: Sequence[str],
  trained: Mapping[str, str],
  changes: Sequence[str] = (),
) -> dict[str, str]:
  """Returns the columns to read by role, and of "id" if the rows have one.

  `roles` are the cells that a row needs, and `trained` the columns of the
  training data by role, or by "id". Otherwise, a role's column has the name of
  the role, and rows are numbered from 0, as are lines of text. `changes` are
  "role=column" each; "id=" numbers the rows.
  """
  names = {"text_a": trained.get("text"), **trained}
  columns = {role: names.get(role) or role for role in roles}
  texts = [path for path in paths if _is_text(path)]
  columns["id"] = "" if texts else trained.get("id", "")
  for change in changes:
    role, equals, column = change.partition("=")
    if role not in columns or not (column or role == "id" and equals):
      raise ValueError(
        f"--columns has {change!r}, but takes role=column, with a role of "
        f"{', '.join(columns)}."
      )
    columns[role] = column
  columns = {role: name for role, name in columns.items() if name}
  if texts and len(columns) > 1:
    raise ValueError(
      f"{texts[0]} has one text a line, but {', '.join(columns.values())} are "
      "needed: give a table."
    )
  return columns


def read_rows(
  paths: Sequence[str], columns: Mapping[str, str]
) -> Iterator[common.Record]:
  """Yields rows with their cells by role, and `id`.

  A cell is a text, or a list of texts for `options`. A malformed row is a
  ValueError that names its file and line.
  """
  names = list(columns.values())
  tables = (
    _lines(path, names[0]) if _is_text(path) else common.read_table(path, names)
    for path in paths
  )
  for number, record in enumerate(itertools.chain.from_iterable(tables)):
    yield _row(number, record, columns)


def _is_text(path: str) -> bool:
  return text_files.without_ending(path).endswith(".txt")


def _lines(path: str, column: str) -> Iterator[common.Record]:
  for line, text in common.read_lines(path):
    if line == 1 and text_files.is_json_lines(path, text.encode("utf-8")):
      raise ValueError(f"{path} has JSON lines: rename it to .jsonl.")
    yield common.Record(f"{path}, line {line}", {column: text.rstrip("\r\n")})


def given_row(
  texts: Mapping[str, Any], roles: Sequence[str], about: str
) -> common.Record:
  """Returns the row whose texts are given by flags, by role.

  `about` describes the model, for messages.
  """
  if set(texts) != set(roles):
    needed, given = (
      " and ".join(f"--{role}" for role in names) for names in (roles, texts)
    )
    raise ValueError(
      f"the model takes {needed}, but the command line has {given} ({about})."
    )
  where = f"--{roles[0]} {files.quote(texts[roles[0]])}"
  return _row(0, common.Record(where, texts), {role: role for role in roles})


def _row(
  number: int, record: common.Record, columns: Mapping[str, str]
) -> common.Record:
  """Returns a row with its cells by role; the default id is the number."""
  cells: dict[str, Any] = {"id": str(number)}
  readers = {"id": common.plain_cell, OPTIONS: _options}
  for role, column in columns.items():
    cells[role] = readers.get(role, _text)(record, column)
  return common.Record(record.where, cells)


def _text(record: common.Record, column: str) -> str:
  return common.text_cell(record, column, may_be_empty=True)


def _options(record: common.Record, column: str) -> list[str]:
  """Returns the options: a list in JSON lines, a JSON list in a cell."""
  value = record.cells[column]
  if isinstance(value, str):
    try:
      value = json.loads(value)
    except (ValueError, RecursionError):
      value = None
  if not isinstance(value, list) or len(value) != NUM_OPTIONS:
    raise ValueError(
      f"{record.where}: {column!r} must be a list of {NUM_OPTIONS} texts: four "
      "flags, or in TSV and CSV, written as JSON."
    )
  return [
    _text(record._replace(cells={column: text}), column) for text in value
  ]


def _cells(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns the columns and cells of a table after the id."""
  cells: list[tuple[str, Any]] = []
  for name, value in fields.items():
    if name == "probabilities":
      cells += value.items()
    elif name in ("spans", "layers"):  # A cell has them as JSON.
      cells.append((name, json.dumps(value, ensure_ascii=False)))
    elif "probabilities" in fields and isinstance(value, list):
      cells.append((name, ",".join(value)))  # Several labels.
    elif name == "masks":  # The best pieces are the prediction.
      cells.append(("probability", [x["probabilities"][0] for x in value]))
    elif name != "n_best":
      cells.append((name, value))
  return [(name, _cell(value)) for name, value in cells]


def _cell(value: Any) -> str:
  if isinstance(value, list):
    return " ".join(map(_cell, value))
  if isinstance(value, str):
    return value.translate(_CELL)
  return str(value) if isinstance(value, int) else f"{value:.9g}"


@contextlib.contextmanager
def writer(path: str) -> Iterator[Callable[..., None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv") as write:
        write("0", {"prediction": "good", "probability": 0.75})

  A table has the columns of its first answer. Standard output ("-") and names
  that end in .jsonl get JSON lines.
  """
  with contextlib.ExitStack() as stack:
    file: TextIO = sys.stdout
    is_table = path != STANDARD_OUTPUT and not path.lower().endswith(".jsonl")
    if path != STANDARD_OUTPUT:
      if path.lower().endswith(_OTHER_FORMATS):
        raise ValueError(
          f"{path} would be another format: end the name in .tsv for a table, "
          "or in .jsonl for JSON lines."
        )
      files.check_file(path)
      path = stack.enter_context(files.replacing(path))
      # Lines end in the same way on every system.
      file = stack.enter_context(
        open(path, "w", encoding="utf-8", newline="\n")
      )
    columns: list[str] = []  # Of an answer.
    waiting: list[Any] = []  # Rows before the first answer.

    def write(guid: str, fields: Mapping[str, Any]) -> None:
      if not is_table:
        line = {"id": guid, **fields}
        print(json.dumps(line, ensure_ascii=False), file=file)
        return
      answer = [] if ERROR in fields else _cells(fields)
      waiting.append((guid, [cell for _, cell in answer]))
      if answer and not columns:
        columns.extend(name for name, _ in answer)
        print("id", *columns, sep="\t", file=file)
      if columns:
        for row, cells in waiting:
          cells = cells or [""] * len(columns)
          print(_cell(row), *cells, sep="\t", file=file)
        waiting.clear()

    yield write
    file.flush()
