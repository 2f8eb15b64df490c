"""Tables with named columns: TSV, CSV and JSON lines, gzipped or not.

The name decides: `.tsv`, `.csv`, `.jsonl` or `.json` (one object a line), each
also with `.gz`. TSV and CSV have a header. TSV is what
`tasks.common.text_examples` means by it, without quotes; CSV is RFC 4180, where
a cell in quotation marks may hold commas, newlines and doubled quotation marks.
"""

from __future__ import annotations

import csv
import difflib
import json
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from tasks import common

_ENDINGS = (".tsv", ".csv", ".jsonl", ".json")
# A cell is a whole document sometimes; the module's own limit is 131,072.
_MAX_CELL_CHARACTERS = 1 << 30


class MissingColumnError(ValueError):
  """A table has not all the columns that are wanted."""


class Record(NamedTuple):
  """One row.

  Attributes:
    where: file and line, for messages.
    cells: from column to value: text, or what JSON has.
  """

  where: str
  cells: Mapping[str, Any]


def read_table(
  path: str, columns: Sequence[str], ending: str = ""
) -> Iterator[Record]:
  """The rows of a file, each with all of `columns` and perhaps more.

  Args:
    path: the file; "-" is the standard input.
    columns: names that have to be there.
    ending: read it as if its name ended so, for example ".tsv"; "": see above.

  Raises:
    OSError: the file can't be opened.
    MissingColumnError: a column is missing.
    ValueError: the ending is none of the above, the file is empty, damaged or
      not UTF-8, a column is there twice, a row has not as many cells as the
      header, or a line is no JSON object.
  """
  plain = path[: -len(".gz")] if path.endswith(".gz") else path
  plain = ending or plain
  if plain.endswith((".jsonl", ".json")):
    yield from _read_json_lines(path, columns)
  elif plain.endswith(".csv"):
    yield from _read_rows(_csv_rows(path), columns)
  elif plain.endswith(".tsv"):
    yield from _read_rows(common.read_tsv(path), columns)
  else:
    raise ValueError(
      f"{path}: the name should end in {', '.join(_ENDINGS)}, or one of them "
      "and .gz, for it says how to read the file."
    )


def _read_rows(
  rows: Iterator[common.Row], columns: Sequence[str]
) -> Iterator[Record]:
  """The rows below a header."""
  header = next(rows)
  names = header.cells
  _check_columns(header.where, names, columns)
  twice = [name for name in columns if names.count(name) > 1]
  if twice:
    raise ValueError(
      f"{header.where}: column {twice[0]!r} is there {names.count(twice[0])} "
      "times; which of them is meant? Rename the others."
    )
  found = False
  for row in rows:
    if len(row.cells) != len(names):
      raise ValueError(
        f"{row.where} has {len(row.cells)} columns, the header has "
        f"{len(names)}."
      )
    found = True
    yield Record(row.where, dict(zip(names, row.cells)))
  if not found:
    raise ValueError(f"{header.path} holds no row, only a header.")


def _csv_rows(path: str) -> Iterator[common.Row]:
  """The rows of a CSV file; empty lines are passed over."""
  csv.field_size_limit(_MAX_CELL_CHARACTERS)
  reader = csv.reader(
    (line for _, line in common.read_lines(path)), strict=True
  )
  found = False
  while True:
    line = reader.line_num + 1
    try:
      cells = next(reader)
    except StopIteration:
      break
    except csv.Error as error:
      raise ValueError(
        f"{path}, line {line}: the row that begins here is no CSV ({error}); "
        'a cell with commas, newlines or " belongs in quotation marks, with '
        'each " doubled.'
      ) from error
    if cells:
      found = True
      yield common.Row(path, line, cells)
  if not found:
    raise ValueError(f"{path} holds empty lines only: rows are missing.")


def _read_json_lines(path: str, columns: Sequence[str]) -> Iterator[Record]:
  found = False
  for number, line in common.read_lines(path):
    if not line.strip():
      continue
    where = f"{path}, line {number}"
    try:
      value = json.loads(line)
    except (ValueError, RecursionError) as error:
      raise ValueError(f"{where} is no JSON ({error}).") from error
    if not isinstance(value, dict):
      raise ValueError(
        f"{where} is no JSON object: it should be {{...}}, one on each line."
      )
    _check_columns(where, list(value), columns)
    found = True
    yield Record(where, value)
  if not found:
    raise ValueError(f"{path} holds empty lines only: rows are missing.")


def _check_columns(
  where: str, names: Sequence[str], columns: Sequence[str]
) -> None:
  for column in columns:
    if column not in names:
      near = difflib.get_close_matches(column, names, n=1, cutoff=0.5)
      hint = f"; did you mean {near[0]!r}?" if near else ""
      raise MissingColumnError(
        f"{where}: there is no column {column!r}, the columns are "
        f"{', '.join(map(repr, names)) or 'none'}{hint or '.'}"
      )
