"""Reads the rows to predict, one at a time, from files or the command line.

    --input_file=a.tsv,b.csv.gz,c.jsonl   tables, see tasks/common/rows.py
    --input_file=lines.txt                one text per line

Files are read twice: the first pass counts the rows and finds malformed ones
before any prediction. Texts may be empty.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from official_albert import files, text_files
from official_albert.tasks import common
from official_albert.tasks.registry import NUM_OPTIONS, OPTIONS

# Predictions repeat the texts of rows without ids, but not these: they are long
# and the same for many questions.
_NOT_REPEATED = ("context", "passage")


class Source:
  """The files that contain the rows.

  Attributes:
    repeated: the roles of the texts that identify a row; () if it has an id.
  """

  def __init__(
    self,
    paths: Sequence[str],
    roles: Sequence[str],
    trained: Mapping[str, str],
    changes: Sequence[str] = (),
  ):
    """Checks the arguments; reads nothing.

    `roles` are the cells that a row needs, and `trained` the columns of the
    training data by role, or by "id". Otherwise, a role's column has the name
    of the role, and rows are numbered from 0, as are lines of text. `changes`
    are "role=column" each; "id=" numbers the rows.
    """
    self._paths = paths
    columns = {role: trained.get(role, role) for role in roles}
    lines = [path for path in paths if _is_text(path)]
    columns["id"] = "" if lines else trained.get("id", "")
    for change in changes:
      role, equals, column = change.partition("=")
      if role not in columns or not (column or role == "id" and equals):
        raise ValueError(
          f"--columns has {change!r}, but takes role=column, with a role of "
          f"{', '.join(columns)}."
        )
      columns[role] = column
    self._columns = {role: name for role, name in columns.items() if name}
    self.repeated = () if columns["id"] else repeated_roles(roles)
    if lines and len(self._columns) > 1:
      raise ValueError(
        f"{lines[0]} has one text a line, but "
        f"{', '.join(self._columns.values())} are needed: give a table."
      )

  def check(self) -> int:
    """Reads all files once and returns the number of rows.

    A malformed row is a ValueError that names its file and line.
    """
    return sum(1 for _ in self.rows())

  def rows(self) -> Iterator[common.Record]:
    """Yields rows with their cells by role, and `id`; raises as `check`.

    A cell is a text, or a list of texts for `options`.
    """
    records = (record for path in self._paths for record in self._records(path))
    for number, record in enumerate(records):
      yield _row(number, record, self._columns)

  def _records(self, path: str) -> Iterator[common.Record]:
    columns = list(self._columns.values())
    if not _is_text(path):
      yield from common.read_table(path, columns)
      return
    for line, text in common.read_lines(path):
      if line == 1 and text_files.is_json_lines(path, text.encode("utf-8")):
        raise ValueError(f"{path} has JSON lines: rename it to .jsonl.")
      cells = {columns[0]: text.rstrip("\r\n")}
      yield common.Record(f"{path}, line {line}", cells)


def _is_text(path: str) -> bool:
  return text_files.without_ending(path).endswith(".txt")


def repeated_roles(roles: Sequence[str]) -> tuple[str, ...]:
  """Returns the roles of the texts that predictions repeat."""
  return tuple(role for role in roles if role not in _NOT_REPEATED)


def given_rows(
  texts: Mapping[str, Sequence[str]], roles: Sequence[str], about: str
) -> list[common.Record]:
  """Returns the rows whose texts are given by flags.

  `texts` are the values of each flag by role, `options` four for each row.
  `about` describes the model, for messages.
  """
  if set(texts) != set(roles):
    needed, given = (
      " and ".join(f"--{role}" for role in names) for names in (roles, texts)
    )
    raise ValueError(
      f"the model takes {needed}, but the command line has {given} ({about})."
    )
  lists: dict[str, Sequence[Any]] = {**texts}
  if OPTIONS in lists:
    found = texts[OPTIONS]
    starts = range(0, len(found), NUM_OPTIONS)
    lists[OPTIONS] = [found[start : start + NUM_OPTIONS] for start in starts]
  if len({len(values) for values in lists.values()}) > 1:
    counts = ", ".join(f"{len(x)} --{role}" for role, x in texts.items())
    raise ValueError(
      f"the command line has {counts}: give as many of each, and four "
      f"--{OPTIONS} for each row."
    )
  columns = {role: role for role in roles}
  rows = []
  for number, values in enumerate(zip(*lists.values())):
    cells = dict(zip(lists, values))
    where = f"--{roles[0]} {files.quote(cells[roles[0]])}"
    rows.append(_row(number, common.Record(where, cells), columns))
  return rows


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
      f"{record.where}: {column!r} must be a list of {NUM_OPTIONS} texts; in "
      "TSV and CSV too, written as JSON."
    )
  return [
    _text(record._replace(cells={column: text}), column) for text in value
  ]
