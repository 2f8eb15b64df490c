"""Reads rows of text: lines, TSV, CSV and JSON lines, each also compressed.

Tables of Parquet and Arrow, and folders of Hugging Face `datasets`, have the
types of JSON.

Files are UTF-8, with or without a byte order mark. `read_tsv` follows GLUE and
google-research/albert run_classifier.py: a tab ends a cell, a newline ends a
row, and quotation marks are text. CSV follows RFC 4180: a quoted cell may
contain commas, newlines and doubled quotation marks. Cells are separated by
commas, semicolons or tabs.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import os
from typing import (
  Any,
  Callable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
  Union,
)

from typing_extensions import NotRequired, TypedDict

from official_albert import files, text_files

# A cell may be a whole document; csv's own limit is 131,072.
_MAX_CELL_CHARACTERS = 1 << 30
_TABLES = (".parquet", ".arrow", ".feather")
# Letters of scripts that write no spaces between words: Chinese characters,
# kana, bopomofo, Thai, Lao, Burmese, Khmer.
NO_SPACES = (
  "\u3005-\u3007\u3041-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf"
  "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af\u0e00-\u0eff"
  "\u1000-\u109f\u1780-\u17ff"
)
# Records store numbers as float32.
_LARGEST = 3e38
_WHOLE = 1 << 53  # Smaller integers are exact as float64.
_NULL = "\\N"  # As SQL's programs write it.


@dataclasses.dataclass(frozen=True)
class TextExample:
  """A text or a pair of texts.

  The label is the text in the file, also for a regression; for several labels
  a tuple of texts; None if unknown.
  `guid` is the id from the file, or the number of the row from 0, and `where`
  the file and the line, for messages.
  """

  guid: str
  text_a: str
  text_b: Optional[str] = None
  label: Union[str, tuple[str, ...], None] = None
  # Not in records, whose folder's name has a hash of the rest.
  where: str = dataclasses.field(default="", repr=False, compare=False)

  @property
  def texts(self) -> list[Optional[str]]:
    """Both texts."""
    return [self.text_a, self.text_b]


class Record(NamedTuple):
  """A row: its file and line, for messages, and its values by column."""

  where: str
  cells: Mapping[str, Any]


class InvalidRow(ValueError):
  """What is wrong with a row, of which the others can be read.

  Attributes:
    kind: without the place and the values, to count such rows.
  """

  def __init__(self, where: str, kind: str, details: str):
    super().__init__(f"{where}{kind}{details}")
    self.kind = kind.strip(" :,")


class InvalidRows:
  """Refuses invalid rows; or with `may_skip` counts them, to leave them out.

  In a `with` block, it handles the `InvalidRow` that ends the block.

  Attributes:
    may_skip: whether it counts them.
    found: the number of each kind, and the message of the first.
  """

  def __init__(self, may_skip: bool = False):
    self.may_skip = may_skip
    self.found: dict[str, tuple[int, str]] = {}

  def __enter__(self) -> None:
    pass

  def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
    if not (self.may_skip and isinstance(error, InvalidRow)):
      return False
    count, first = self.found.get(error.kind, (0, str(error)))
    self.found[error.kind] = count + 1, first
    return True

  @property
  def count(self) -> int:
    return sum(count for count, _ in self.found.values())

  @property
  def first(self) -> str:
    """The message of the first row."""
    return next(first for _, first in self.found.values())

  def finish(
    self, path: str, valid: Sequence[Any], note: Callable[[str], None]
  ) -> None:
    """Notes how many rows of a file were left out; refuses it if all were."""
    if not valid:
      first = f"; the first: {self.first}" if self.count else "."
      raise ValueError(f"{path} has no valid row{first}")
    for kind, (count, first) in self.found.items():
      note(
        f"warning: left out {count:,} rows, because {kind}; the first: {first}"
      )


class _DataFile(TypedDict):
  filename: str


class _State(TypedDict):
  _data_files: list[_DataFile]
  # Of early versions: the rows that are chosen, and their order.
  _indices_data_files: NotRequired[Optional[list[Any]]]


def read_lines(path: str, strict: bool = True) -> Iterator[tuple[int, str]]:
  """Yields each line with its number from 1, including its line ending.

  Only a newline ends a line: a lone carriage return or a Unicode line separator
  is text. The file may be compressed by gzip, bzip2, xz or zstd. If not
  `strict`, bytes that are not UTF-8 are lone surrogates; see `check_utf8`.

  Raises:
    ValueError: the file is empty, not UTF-8, or damaged.
  """
  number = 0
  with files.open(path, "rb") as stored:
    for number, line in enumerate(text_files.lines(path, stored), 1):
      encoding = "utf-8-sig" if number == 1 else "utf-8"
      text = line.decode(encoding, "surrogateescape")
      if strict:
        check_utf8(f"{path}, line {number}", [text])
      yield number, text
  if number == 0:
    raise ValueError(f"{path} is empty: rows are missing.")


def read_tsv(path: str, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
  """Yields the line number and the cells of each row of a TSV file.

  Rows end with a newline, with or without a carriage return before it. Empty
  lines at the end are skipped; elsewhere they are rows with one empty cell.
  """
  empty = []
  for number, line in read_lines(path, strict):
    text = line[:-2] if line.endswith("\r\n") else line.rstrip("\n")
    if not text:
      empty.append((number, [""]))
      continue
    yield from empty
    empty.clear()
    yield number, text.split("\t")


def _read_csv(
  path: str, columns: Sequence[str], invalid: InvalidRows
) -> Iterator[tuple[int, list[str]]]:
  """Yields the first line and the cells of each row; skips empty lines.

  A row that is not CSV, but is one line with quotation marks in pairs, is left
  to `invalid`. Any other is refused, as nobody knows where it ends; after an
  invalid row, also one without pairs.

  Of comma, semicolon and tab, the separator is the first one by which the first
  line has the columns. (Where the comma is the decimal sign, Excel writes
  semicolons.)
  """
  csv.field_size_limit(_MAX_CELL_CHARACTERS)
  texts = (text for _, text in read_lines(path, strict=False))
  first, marks, before = next(texts), ",;\t", []
  if first.startswith("sep="):  # As Excel reads it.
    marks = first[4:5].strip("\r\n") or marks
    first, before = next(texts, ""), ["\n"]
  parts = first.split("\r")  # It may end every line; refused below.
  headers = {x: next(csv.reader(parts, delimiter=x), ()) for x in marks}
  fitting = [x for x, header in headers.items() if {*columns} <= {*header}]
  row: list[str] = []  # The lines of the row that is read.

  def lines() -> Iterator[str]:
    for text in itertools.chain([*before, first], texts):
      row.append(text)
      yield text

  reader = csv.reader(lines(), strict=True, delimiter=(*fitting, *marks)[0])
  cells: Optional[list[str]] = []
  width, is_sure = 0, True  # Whether the row before ended where it should.
  while cells is not None:
    line, cells, problem = reader.line_num + 1, [], ""
    where = f"{path}, line {line}"
    row.clear()
    try:
      cells = next(reader, None)
    except csv.Error as error:
      problem = str(error).split(" - ")[0]
    spaced = [x for x in cells or () if x[:1] == " "]
    if any(_has_space_before_quotes(x, row) for x in spaced):
      problem, cells = "a space before a quoted cell", []
    has_pairs = "".join(row).count('"') % 2 == 0
    if not (is_sure or has_pairs):
      problem = problem or "quotation marks without pairs after an invalid row"
    if problem:
      with invalid if len(row) == 1 < line and has_pairs else InvalidRows():
        raise InvalidRow(
          where,
          ": the row that begins here is not CSV",
          f' ({problem}); put a cell with commas, newlines or " in quotation '
          'marks, and double each " in it.',
        )
    if len(row) > 1:
      check_utf8(where, row)
    if cells:
      yield line, cells
      width = width or len(cells)
    if cells or problem:
      is_sure = len(cells or ()) == width


def _read_own_tsv(path: str) -> Iterator[tuple[int, list[str]]]:
  """Yields the rows of `read_tsv`; refuses those that are quoted like CSV.

  In GLUE's files, a quotation mark is a character. pandas and Excel quote cells
  with tabs, line breaks and quotation marks, and double these. A quoted cell of
  several lines is cut, which shows in the number of cells, unless the table has
  only one column.
  """
  width = 0
  for number, cells in read_tsv(path, strict=False):
    whole = [x for x in cells if len(x) > 1 and x[0] == x[-1] == '"']
    if not width:
      is_quoted = whole == cells
    elif len(cells) != width:
      is_quoted = any('"' in (x[:1], x[-1:]) for x in cells if x not in whole)
    else:
      is_quoted = width == 1 and cells[0][:1] == '"' and not whole
    if is_quoted or any(map(has_doubled_marks, cells)):
      raise ValueError(
        f"{path}, line {number} is quoted as in CSV, but in .tsv a quotation "
        "mark is a character: rename the file to .csv, where tabs may separate "
        "the cells."
      )
    width = width or len(cells)
    yield number, cells


def _has_space_before_quotes(cell: str, row: Sequence[str]) -> bool:
  """Returns whether the marks of a quoted cell were taken for text."""
  text, written = cell.strip(" "), "".join(row)
  quoted = '"' + cell.replace('"', '""') + '"'
  is_whole = len(text) > 1 and text[0] == text[-1] == '"'
  return is_whole and cell in written and quoted not in written


def has_doubled_marks(cell: str) -> bool:
  """Returns whether a cell is quoted, and has quotation marks, as in CSV."""
  return cell[:1] == cell[-1:] == '"' and '""' in cell[1:-1]


def find_tables(names: str) -> list[str]:
  """Returns the files of a comma-separated list of names and globs.

  A folder that `datasets` saved by `save_to_disk` has Arrow files.
  """
  found: list[str] = []
  for name in [names] if files.exists(names) else names.split(","):
    matches = [name] if files.exists(name) else files.glob(name) or [name]
    for path in matches:
      found += _files_of(path) if files.is_dir(path) else [path]
  return found


def _files_of(folder: str) -> list[str]:
  """Returns the files of a folder of `datasets`, in order."""
  if files.exists(os.path.join(folder, "dataset_dict.json")):
    raise ValueError(
      f"{folder} has several splits: name the folder of one of them, such as "
      f"{os.path.join(folder, 'train')}."
    )
  path = os.path.join(folder, "state.json")
  if not files.exists(path):
    raise FileNotFoundError(
      f"{folder} is a folder without state.json, which `save_to_disk` of "
      f"Hugging Face datasets writes: name files, or {folder}/*.parquet."
    )
  state = files.read_json(path, _State, "save the data set again")
  if state.get("_indices_data_files"):
    raise ValueError(
      f"{path} names _indices_data_files, as early versions of datasets write: "
      "save the data set again after its `flatten_indices`."
    )
  return [os.path.join(folder, x["filename"]) for x in state["_data_files"]]


def plain_name(path: str) -> str:
  """Returns a path whose end tells the format: uncompressed, in lower case."""
  return text_files.without_ending(path).lower()


def is_table(path: str) -> bool:
  """Returns whether rows of a file have lists: JSON lines, Parquet, Arrow."""
  return plain_name(path).endswith((*text_files.JSON_ENDINGS, *_TABLES))


def read_table(
  names: str,
  columns: Sequence[str],
  invalid: Optional[InvalidRows] = None,
  absent: Sequence[str] = (),
) -> Iterator[Record]:
  """Yields the rows of tables, which must have the named columns.

  `names` are those of `find_tables`. The name of a file selects the format:
  `.tsv` or `.csv` with a header, `.jsonl`, `.ndjson` or `.json` with one object
  per line, each also followed by `.gz`, `.bz2`, `.xz` or `.zst`; `.parquet`,
  `.arrow` or `.feather`, of which only the named columns have values. Invalid
  rows are refused, or left to `invalid`. No row may have columns of `absent`,
  those that the first one lacks.
  """
  for column in columns:
    if columns.count(column) > 1:
      raise ValueError(
        f"column {column!r} is given twice: texts, label and id must be "
        "different columns."
      )
  invalid, is_empty = invalid or InvalidRows(), True
  for path in find_tables(names):
    for record in _read_file(path, columns, invalid):
      is_empty = False
      if late := [column for column in absent if column in record.cells]:
        raise ValueError(
          f"{record.where}: there is {files.quote(*late)}, which the first row "
          "lacks: give it to all rows (null if unknown), or to none."
        )
      yield record
  if is_empty and not invalid.count:
    raise ValueError(f"{names} has no rows, or only a header.")


def first_record(names: str, columns: Sequence[str] = ()) -> Record:
  """Returns the first valid row of tables; without cells if there is none."""
  records = read_table(names, columns, InvalidRows(may_skip=True))
  return next(records, Record(names, {}))


def _read_file(
  path: str, columns: Sequence[str], invalid: InvalidRows
) -> Iterator[Record]:
  """Yields the rows of a file."""
  plain = plain_name(path)
  if path.lower().endswith(_TABLES):
    with files.open(path, "rb") as file:
      rows = text_files.table_rows(path, file, columns)
      for number, cells in enumerate(rows, 1):
        yield Record(f"{path}, row {number}", cells)
  elif plain.endswith(text_files.JSON_ENDINGS):
    for number, line in read_lines(path, strict=False):
      with invalid:
        if line.strip():
          yield _json_record(f"{path}, line {number}", line, columns)
  elif plain.endswith(".csv"):
    table = _read_csv(path, columns, invalid)
    yield from _with_header(path, table, columns, invalid)
  elif plain.endswith(".tsv"):
    yield from _with_header(path, _read_own_tsv(path), columns, invalid)
  else:
    raise ValueError(
      f"{path}: the name must end in .tsv, .csv or .jsonl, also compressed, or "
      "in .parquet or .arrow, to tell the format. Write other tables, such as "
      "those of Excel, as CSV UTF-8."
    )


def check_utf8(where: str, texts: Sequence[str]) -> None:
  """Raises InvalidRow if texts have surrogates for bytes that are not UTF-8."""
  try:
    "".join(texts).encode("utf-8")
  except UnicodeEncodeError as error:
    byte = ord(error.object[error.start]) - 0xDC00
    raise InvalidRow(
      where,
      " is not UTF-8",
      f" (byte 0x{byte:02x}): convert the file to UTF-8.",
    ) from error


def _json_record(where: str, line: str, columns: Sequence[str]) -> Record:
  check_utf8(where, [line])
  try:
    value, problem = json.loads(line, object_pairs_hook=files.unique_keys), ""
  except (ValueError, RecursionError) as error:
    value, problem = None, f" ({error})"
  if not isinstance(value, dict):
    raise InvalidRow(
      where,
      " is not a JSON object",
      f"{problem}: write one {{...}} on each line, for example with jq -c "
      "'.[]'.",
    )
  _check_columns(where, list(value), columns)
  return Record(where, value)


def _with_header(
  path: str,
  rows: Iterator[tuple[int, list[str]]],
  columns: Sequence[str],
  invalid: InvalidRows,
) -> Iterator[Record]:
  number, names = next(rows, (1, []))
  where = f"{path}, line {number}"
  check_utf8(where, names)
  _check_columns(where, names, columns)
  for number, cells in rows:
    where = f"{path}, line {number}"
    with invalid:
      check_utf8(where, cells)
      if len(cells) != len(names):
        raise InvalidRow(
          where,
          " has another number of columns than the header",
          f": {len(cells)} instead of {len(names)}.",
        )
      yield Record(where, dict(zip(names, cells)))


def _check_columns(
  where: str, names: Sequence[str], columns: Sequence[str]
) -> None:
  for column in columns:
    if (count := names.count(column)) != 1:
      how_many = "are several columns" if count else "is no column"
      raise InvalidRow(
        where,
        f": there {how_many} {column!r}",
        f", the columns are {files.quote(*names)}.",
      )


def text_cell(record: Record, column: str, may_be_empty: bool = False) -> str:
  """Returns the text of a column; refuses others. Null is empty."""
  value = record.cells[column]
  if value in (None, _NULL):
    value = ""
  if not isinstance(value, str):
    raise InvalidRow(
      record.where, f": {column!r} must be text", f", got {files.quote(value)}."
    )
  if not (value.strip() or may_be_empty):
    raise InvalidRow(
      record.where,
      f": {column!r} is empty",
      ": fill it in or remove the row, or give --skip_invalid.",
    )
  refuse_surrogates(value, record.where, f": {column!r}")
  return value


def refuse_surrogates(text: str, where: str, name: str = "") -> None:
  """Raises InvalidRow if a text holds half of a surrogate pair, as JSON can."""
  try:
    text.encode("utf-8")
  except UnicodeEncodeError as error:
    raise InvalidRow(
      where, f"{name} contains the lone surrogate", f" {text[error.start]!a}."
    ) from error


def refuse_rejected(record: Record, columns: Sequence[str]) -> None:
  """Raises InvalidRow for what Prodigy's users said is wrong.

  `columns` are those that the task reads: there, the words may be texts.
  """
  answer = record.cells.get("answer")
  if answer in ("reject", "ignore") and "answer" not in columns:
    raise InvalidRow(
      record.where,
      f" has the answer {answer!r}, as of Prodigy",
      ": leave the row out, or give --skip_invalid.",
    )


def plain_cell(record: Record, column: str) -> str:
  """Returns a label or an id as text; accepts JSON numbers and booleans."""
  value: Any = record.cells[column]
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, (int, float)) and math.isfinite(value):
    # A column of integers with a null is often one of floats.
    is_whole = abs(value) < _WHOLE and value == int(value)
    return str(int(value) if is_whole else value)
  return text_cell(record, column)


def check_label(
  where: str,
  label: str,
  labels: Optional[Sequence[str]],
  least: float = -_LARGEST,
  most: float = _LARGEST,
) -> None:
  """Refuses a label not in `labels`; without these, a number out of range."""
  wanted = f"a finite number from {least:g} to {most:g}"
  if labels is not None:
    fits, wanted = label in labels, f"one of {files.quote(*labels)}"
  else:
    try:
      fits = least <= float(label) <= most
    except ValueError:
      fits = False
  if not fits:
    raise InvalidRow(
      where,
      ": unknown label",
      f" {files.quote(label)}, which must be {wanted}.",
    )
