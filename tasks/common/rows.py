"""Reads rows of text: lines, TSV, CSV and JSON lines, each also gzipped.

Files are UTF-8, with or without a byte order mark. `read_tsv` follows GLUE and
google-research/albert run_classifier.py: a tab ends a cell, a newline ends a
row, and quotation marks are text. CSV follows RFC 4180: a quoted cell may
contain commas, newlines and doubled quotation marks. The TSV of a user may
follow either; `read_table` finds out which.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from official_albert import files, text_files

# A cell may be a whole document; csv's own limit is 131,072.
_MAX_CELL_CHARACTERS = 1 << 30
# Records store numbers as float32.
_LARGEST = 3e38


@dataclasses.dataclass(frozen=True)
class TextExample:
  """A text or a pair of texts.

  The label is the text in the file, also for a regression; None if unknown.
  `guid` is the id from the file, or the number of the row from 0.
  """

  guid: str
  text_a: str
  text_b: Optional[str] = None
  label: Optional[str] = None


class Record(NamedTuple):
  """A row: its file and line, for messages, and its values by column."""

  where: str
  cells: Mapping[str, Any]


def read_lines(path: str) -> Iterator[tuple[int, str]]:
  """Yields each line with its number from 1, including its line ending.

  Only a newline ends a line: a lone carriage return or a Unicode line separator
  is text. The file may be compressed by gzip, bzip2, xz or zstd.

  Raises:
    ValueError: the file is empty, not UTF-8, or damaged.
  """
  number = 0
  with files.open(path, "rb") as stored:
    file = text_files.open_unpacked(path, stored)
    try:
      for number, line in enumerate(file, 1):
        try:
          text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
          raise ValueError(
            f"{path}, line {number} is not UTF-8 (byte 0x"
            f"{error.object[error.start]:02x}): convert the file to UTF-8."
          ) from error
        yield number, text
    except text_files.DamagedError as error:
      raise ValueError(
        f"{path} is not a complete {text_files.kind_of_name(path)} file (after "
        f"line {number}: {error}): copy it again."
      ) from error
  if number == 0:
    raise ValueError(f"{path} is empty: rows are missing.")


def read_tsv(path: str) -> Iterator[tuple[int, list[str]]]:
  """Yields the line number and the cells of each row of a TSV file.

  Rows end with a newline, with or without a carriage return before it. Empty
  lines at the end are skipped; elsewhere they are rows with one empty cell.
  """
  empty = []
  for number, line in read_lines(path):
    text = line[:-2] if line.endswith("\r\n") else line.rstrip("\n")
    if not text:
      empty.append((number, [""]))
      continue
    yield from empty
    empty.clear()
    yield number, text.split("\t")


def _read_csv(
  path: str, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
  """Yields the first line and the cells of each row; skips empty lines."""
  csv.field_size_limit(_MAX_CELL_CHARACTERS)
  reader = csv.reader(
    (text for _, text in read_lines(path)), strict=True, delimiter=delimiter
  )
  line = 1
  try:
    for cells in reader:
      if cells:
        yield line, cells
      line = reader.line_num + 1
  except csv.Error as error:
    raise ValueError(
      f"{path}, line {line}: the row that begins here is not CSV ({error}); "
      'put a cell with commas, newlines or " in quotation marks, and double '
      'each " in it.'
    ) from error


def _csv_delimiter(path: str, columns: Sequence[str]) -> str:
  """Returns the comma, or what separates the names of the columns instead.

  Where the comma is the decimal sign, Excel writes semicolons.
  """
  for delimiter in ",;\t":
    with contextlib.suppress(ValueError):  # Reading the table reports it.
      _, names = next(_read_csv(path, delimiter), (1, []))
      if set(columns) <= set(names):
        return delimiter
  return ","


def _is_quoted(cell: str) -> bool:
  return len(cell) > 1 and cell[0] == cell[-1] == '"'


def _tsv_is_quoted(path: str) -> bool:
  """Returns whether the cells of a TSV are quoted as those of a CSV.

  In GLUE's files, a quotation mark is a character. pandas and Excel quote cells
  with tabs, line breaks and quotation marks, and double these. So a file is
  quoted if its whole header is; if only quoted cells give rows of one length;
  or if they give the same rows, and one has a doubled mark.

  Raises:
    ValueError: the header is quoted, but the cells are not; or both readings of
      a file with one column are possible.
  """
  width, lines, is_even = 0, 0, True
  begins = has_quoted_header = is_doubled = False
  for _, cells in read_tsv(path):
    if not width:
      width, has_quoted_header = len(cells), all(map(_is_quoted, cells))
    lines += cells != [""]
    is_even &= len(cells) == width
    is_doubled |= any('""' in x[1:-1] for x in cells if _is_quoted(x))
    begins |= any(cell.startswith('"') for cell in cells)
  if not begins or has_quoted_header:
    return begins  # Reading the table reports wrong cells.
  rows, joins = 0, False
  try:
    for _, cells in _read_csv(path, "\t"):
      rows += 1
      if len(cells) != width:
        return False
      joins |= any("\n" in cell and '"' in cell for cell in cells)
  except ValueError:
    return False
  if not is_even or rows == lines:
    return is_doubled or not is_even
  if width > 1 or joins:
    return joins and width == 1
  raise ValueError(
    f"{path}: a cell begins with a quotation mark, and may end in the same or "
    "in a later line: write the table as .csv or .jsonl."
  )


def read_table(
  path: str, columns: Sequence[str], ending: str = ""
) -> Iterator[Record]:
  """Yields the rows of a table, which must have the named columns.

  The name of the file, or `ending`, selects the format: `.tsv` or `.csv` with a
  header, `.jsonl`, `.ndjson` or `.json` with one object per line; each may be
  followed by `.gz`, `.bz2`, `.xz` or `.zst`. CSV may have semicolons or tabs
  instead of commas, and TSV may be quoted like CSV; but not in a pipe, which
  can be read only once.
  """
  for column in columns:
    if columns.count(column) > 1:
      raise ValueError(
        f"column {column!r} is given twice: texts, label and id must be "
        "different columns."
      )
  plain = ending or text_files.without_ending(path)
  is_pipe = files.exists(path) and not files.is_file(path)
  if plain.endswith(text_files.JSON_ENDINGS):
    records = _json_records(path, columns)
  elif plain.endswith(".csv"):
    delimiter = "," if is_pipe else _csv_delimiter(path, columns)
    records = _with_header(path, _read_csv(path, delimiter), columns)
  elif plain.endswith(".tsv"):
    is_quoted = not is_pipe and _tsv_is_quoted(path)
    rows = _read_csv(path, "\t") if is_quoted else read_tsv(path)
    records = _with_header(path, rows, columns)
    if is_pipe:
      records = _unquoted(records)
  else:
    raise ValueError(
      f"{path}: the name must end in .tsv, .csv, .jsonl, .json, or in one of "
      "them and .gz, .bz2, .xz or .zst, to tell the format. Write other "
      "tables, such as those of Excel, as CSV UTF-8."
    )
  record = None
  for record in records:
    yield record
  if record is None:
    raise ValueError(f"{path} has no rows, or only a header.")


def _unquoted(records: Iterator[Record]) -> Iterator[Record]:
  """Refuses cells that are quoted as in CSV."""
  for record in records:
    for cell in record.cells.values():
      if _is_quoted(cell) and '""' in cell[1:-1]:
        raise ValueError(
          f"{record.where}: the cell {files.quote(cell)} is quoted as in CSV: "
          "give the file instead of a pipe, or write CSV or JSON lines."
        )
    yield record


# Makes rows of SQuAD's format.
_SQUAD_ROWS = (
  "jq -c '.data[].paragraphs[] | {context} + (.qas[] | {id, question})'"
)


def _json_records(path: str, columns: Sequence[str]) -> Iterator[Record]:
  for number, line in read_lines(path):
    if not line.strip():
      continue
    where = f"{path}, line {number}"
    try:
      value = json.loads(line)
    except (ValueError, RecursionError) as error:
      if line.strip() in ("{", "["):
        raise ValueError(
          f"{where} begins a JSON value of several lines, but each row is an "
          "object on one line: write it with jq -c '.[]' if it is a list, or "
          f"{_SQUAD_ROWS} if it is SQuAD's format."
        ) from error
      raise ValueError(f"{where} is not JSON ({error}).") from error
    if isinstance(value, dict) and "data" not in columns:
      articles = value.get("data")
      if isinstance(articles, list) and "paragraphs" in str(articles[:1]):
        raise ValueError(
          f"{where} is a file in SQuAD's format, but each row is an object on "
          f"one line: write them with {_SQUAD_ROWS}."
        )
    if not isinstance(value, dict):
      raise ValueError(
        f"{where} is not a JSON object: write one {{...}} on each line, for "
        "example with jq -c '.[]'."
      )
    _check_columns(where, list(value), columns)
    yield Record(where, value)


def _with_header(
  path: str, rows: Iterator[tuple[int, list[str]]], columns: Sequence[str]
) -> Iterator[Record]:
  number, names = next(rows, (1, []))
  _check_columns(f"{path}, line {number}", names, columns)
  for number, cells in rows:
    where = f"{path}, line {number}"
    if len(cells) != len(names):
      quoted = any(cell.startswith('"') for cell in cells)
      advice = " Quote either all cells that need it as in CSV, or none."
      raise ValueError(
        f"{where} has {len(cells)} columns, the header has {len(names)}."
        f"{advice if quoted else ''}"
      )
    yield Record(where, dict(zip(names, cells)))


def _check_columns(
  where: str, names: Sequence[str], columns: Sequence[str]
) -> None:
  for column in columns:
    if column not in names:
      raise ValueError(
        f"{where}: there is no column {column!r}, the columns are "
        f"{files.quote(*names)}."
      )
    if names.count(column) > 1:
      raise ValueError(
        f"{where}: column {column!r} occurs {names.count(column)} times: "
        "rename all but one."
      )


def text_cell(record: Record, column: str, may_be_empty: bool = False) -> str:
  """Returns the text of a column; refuses other values.

  With `may_be_empty`, the text may be empty, and null in JSON counts as that.
  """
  value = record.cells[column]
  if may_be_empty and value is None:
    return ""
  if not isinstance(value, str):
    raise ValueError(
      f"{record.where}: {column!r} must be text, got {files.quote(value)}."
    )
  if not (value.strip() or may_be_empty):
    raise _is_empty(record, column)
  refuse_surrogates(value, f"{record.where}: {column!r}")
  return value


def refuse_surrogates(text: str, where: str) -> None:
  """Raises ValueError if a text holds half of a surrogate pair, as JSON can."""
  try:
    text.encode("utf-8")
  except UnicodeEncodeError as error:
    raise ValueError(
      f"{where} contains the lone surrogate {text[error.start]!a}."
    ) from error


def _is_empty(record: Record, column: str) -> ValueError:
  return ValueError(
    f"{record.where}: {column!r} is empty: fill it in or remove the row."
  )


def plain_cell(record: Record, column: str) -> str:
  """Returns a label or an id as text; accepts JSON numbers and booleans."""
  value: Any = record.cells[column]
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, (int, float)):
    return str(value)
  if value is None or value == "":
    raise _is_empty(record, column)
  return text_cell(record, column)


def check_label(
  where: str,
  label: str,
  labels: Optional[Sequence[str]],
  least: float = -_LARGEST,
  most: float = _LARGEST,
) -> None:
  """Refuses a label not in `labels`; without these, a number out of range."""
  if labels is not None:
    if label not in labels:
      raise ValueError(
        f"{where}: unknown label {files.quote(label)}; the known ones are "
        f"{files.quote(*labels)}."
      )
    return
  try:
    value = float(label)
  except ValueError:
    value = math.nan
  if not (math.isfinite(value) and least <= value <= most):
    raise ValueError(
      f"{where}: the label must be a finite number from {least:g} to {most:g}, "
      f"got {files.quote(label)}."
    )
