"""Rows to predict, one at a time: from files, or from standard input.

    --input_file=a.tsv,b.csv.gz,c.jsonl   tables, see tasks/classification
    --input_file=lines.txt                one text per line
    --input_file=- --input_format=tsv     standard input

Memory holds one row at a time, so a file may have any length. Files are read
twice: the first pass counts the rows and finds malformed ones before any
prediction. Pipes and standard input can be read only once, so they have no
first pass.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from tasks import classification, common

FORMATS = ("tsv", "csv", "jsonl", "text")
_KNOWN_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".txt", ".gz")
# The cells that a row may have; SavedModels use the same names.
OPTIONS = "options"
ROLES = (
  "text",
  "text_a",
  "text_b",
  "question",
  "context",
  "passage",
  OPTIONS,
)


class InputRow(NamedTuple):
  """One row.

  Attributes:
    where: file and line, for messages.
    guid: the id of the row in the predictions.
    cells: texts by role; a list of texts for `options`.
  """

  where: str
  guid: str
  cells: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Source:
  """The files that rows come from.

  Attributes:
    paths: files that are read one after the other; or "-" alone.
    columns: the column of each role.
    id_column: the column of the ids; "" numbers the rows from 0.
    input_format: one of `FORMATS`; "" takes it from the names of the files.
    num_options: the number of options of a question.

  Raises (when made):
    ValueError: the arguments contradict each other.
  """

  paths: tuple[str, ...]
  columns: Mapping[str, str]
  id_column: str = ""
  input_format: str = ""
  num_options: int = 4

  def __post_init__(self):
    if not self.paths:
      raise ValueError("there is no input: give --input_file.")
    if self.is_standard_input and len(self.paths) > 1:
      raise ValueError("--input_file names - and files: give one or the other.")
    if self.is_standard_input and not self.input_format:
      raise ValueError(
        "the format of standard input is unknown: give --input_format, one of "
        f"{', '.join(FORMATS)}."
      )
    for path in filter(_is_pipe, self.paths):
      if not self.input_format and not path.endswith(_KNOWN_ENDINGS):
        raise ValueError(
          f"{path} is a pipe of unknown format: give --input_format, one of "
          f"{', '.join(FORMATS)}."
        )
    names = [*self.columns.values(), *filter(None, [self.id_column])]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
      raise ValueError(f"column {twice[0]!r} is named for two things.")
    for path in self.paths:
      if self._is_text(path) and (len(self.columns) > 1 or self.id_column):
        raise ValueError(
          f"{_shown(path)} has one text a line, but "
          f"{', '.join(names)} are needed: give a table."
        )

  @property
  def is_standard_input(self) -> bool:
    return common.STANDARD_INPUT in self.paths

  def check(self) -> Optional[int]:
    """Reads all files once and returns the number of rows.

    Returns None, without reading, if one of them can be read only once.

    Raises:
      OSError: a file cannot be read.
      ValueError: a row is malformed; the message names its file and line.
    """
    if self.is_standard_input or any(map(_is_pipe, self.paths)):
      return None
    return sum(1 for _ in self.rows())

  def rows(self) -> Iterator[InputRow]:
    """Yields the rows in order.

    Raises:
      OSError, ValueError: as `check`.
    """
    number = 0
    for path in self.paths:
      for record in self._records(path):
        yield InputRow(
          record.where,
          classification.plain_cell(record, self.id_column)
          if self.id_column
          else str(number),
          {
            role: self._options(record, column)
            if role == OPTIONS
            else classification.text_cell(record, column)
            for role, column in self.columns.items()
          },
        )
        number += 1

  def _is_text(self, path: str) -> bool:
    plain = path[: -len(".gz")] if path.endswith(".gz") else path
    return self.input_format == "text" or (
      not self.input_format and plain.endswith(".txt")
    )

  def _records(self, path: str) -> Iterator[classification.Record]:
    names = [*self.columns.values(), *filter(None, [self.id_column])]
    if self._is_text(path):
      records = (
        classification.Record(
          f"{path}, line {line}", {names[0]: text.rstrip("\r\n")}
        )
        for line, text in common.read_lines(path)
      )
    else:
      ending = self.input_format and f".{self.input_format}"
      records = classification.read_table(path, names, ending)
    if not self.is_standard_input:
      yield from records
      return
    prefix = f"{path}, "
    try:
      for record in records:
        where = record.where[len(prefix) :]
        yield record._replace(where=f"{_shown(path)}, {where}")
    except ValueError as error:
      text = str(error)
      if not text.startswith(path):
        raise
      raise type(error)(_shown(path) + text[len(path) :]) from error

  def _options(self, record: classification.Record, column: str) -> list[str]:
    """Returns the options: a list in JSON lines, a JSON list in a cell."""
    value = record.cells[column]
    if isinstance(value, str):
      try:
        value = json.loads(value)
      except ValueError:
        value = None
    if not isinstance(value, list) or len(value) != self.num_options:
      raise ValueError(
        f"{record.where}: {column!r} must be a list of {self.num_options} "
        "texts; in TSV and CSV too, written as JSON."
      )
    for text in value:
      classification.text_cell(
        classification.Record(record.where, {column: text}), column
      )
    return value


def make_source(
  paths: Sequence[str],
  roles: Sequence[str],
  trained: Mapping[str, str],
  changes: Sequence[str],
  input_format: str = "",
) -> Source:
  """Returns a source from flags.

  Args:
    paths: files, or "-".
    roles: the cells that a row needs.
    trained: columns of the training data by role, or by "id"; the column of
      any other role has the name of the role.
    changes: "role=column" each.
    input_format: see `Source`.

  Raises:
    ValueError: a change does not fit, or see `Source`.
  """
  columns = {role: role for role in roles} | {"id": ""}
  columns |= {role: trained[role] for role in columns if role in trained}
  for change in changes:
    role, _, column = change.partition("=")
    if role not in columns or not column:
      raise ValueError(
        f"--columns has {change!r}, but takes role=column, with a role of "
        f"{', '.join(columns)}."
      )
    columns[role] = column
  id_column = columns.pop("id")
  return Source(tuple(paths), columns, id_column, input_format)


def _shown(path: str) -> str:
  if path == common.STANDARD_INPUT:
    return "standard input"
  return path


def _is_pipe(path: str) -> bool:
  """Returns whether a path can be read only once, such as /dev/stdin."""
  return (
    path != common.STANDARD_INPUT
    and os.path.exists(path)
    and not os.path.isfile(path)
    and not os.path.isdir(path)
  )
