"""Strategies of hypothesis that damage valid files.

Each takes a valid content and draws one to four edits, so that the result is
still near enough to be read for a while. Equal draws give equal bytes.
"""

from __future__ import annotations

import copy
import functools
import json
from typing import Any, Callable, Iterator

from hypothesis import strategies as st

# Found inside of files: control characters, quotes, bytes that are not UTF-8 (a
# lone byte, a lone surrogate), a byte order mark, and long values.
_INSERTED = (
  *(b"\0", b"\n", b"\r\n", b"\n\n", b"\t", b",", b";", b'"', b"'", b"\\"),
  *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x1b[31m"),
  *(b"{}", b"[", b"%s", b"-1", b"1e999", b"9" * 5000, b"x" * (1 << 20)),
)
_ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "latin-1", "utf-7")
_REPEATS = 5000
_DEPTH = 100_000
# In place of a value of JSON.
_ODD_JSON = (
  *("null", "true", "0", "-1", "1.5", "1000000000", "1" * 5000, "1e999"),
  *("NaN", "-Infinity", '""', '"0"', '"../../x"', r'"\ud800"', r'"\u0000"'),
  *(f'"{"long " * 60_000}"', "[]", "[[]]", "[null]", "{}", '{"": {}}'),
  *("[" * _DEPTH + "]" * _DEPTH, '{"a":' * _DEPTH + "0" + "}" * _DEPTH),
)
_ODD_CELLS = (
  *("", " ", '"', '"a', 'a"b', "a,b", "a\tb", "a\r\nb", "=1+1", "nan", "-1"),
  *("1e999", "\0", "\ufeff", "\u2028", "\u0661", "word " * 60_000),
)
_DELIMITERS = ("\t", ",", ";", "|", " ", "\t\t")


# Four numbers: the kind of the edit, the place, a length and a replacement.
_NUMBERS = st.tuples(
  *(st.integers(0, most) for most in (999, 1 << 20, 40, 999))
)


def _edited(apply: Callable, least: int, most: int) -> st.SearchStrategy:
  """Draws functions that apply several edits."""
  return st.lists(_NUMBERS, min_size=least, max_size=most).map(
    lambda edits: lambda value: functools.reduce(apply, edits, value)
  )


def _seldom_edited() -> st.SearchStrategy:
  """Draws functions of which one in four edits bytes."""
  unchanged = st.just(lambda value: value)
  return st.one_of(*[unchanged] * 3, _edited(_edit_bytes, 1, 2))


def damaged_bytes(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws files that differ from a valid one in a few places."""
  return _edited(_edit_bytes, 1, 4).map(lambda edit: edit(valid))


def damaged_json(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws JSON with values of other kinds, and keys missing, new or doubled."""
  return st.tuples(_edited(_edit_json, 0, 3), _seldom_edited()).map(
    lambda edits: edits[1](_write_json(edits[0](json.loads(valid))))
  )


def damaged_json_lines(valid: bytes) -> st.SearchStrategy[bytes]:
  """Draws lines of JSON, some of which are damaged as in `damaged_json`."""
  lines = valid.splitlines()
  return st.tuples(
    st.integers(0, len(lines) - 1), st.one_of(*map(damaged_json, lines[:3]))
  ).map(lambda drawn: b"\n".join([*lines[: drawn[0]], drawn[1], *lines]))


def damaged_table(valid: bytes, delimiter: str) -> st.SearchStrategy[bytes]:
  """Draws tables with other delimiters, headers, cells and quotes."""
  rows = [line.split(delimiter) for line in valid.decode().splitlines()]
  # Other delimiters are less frequent, as nothing else is seen behind them.
  delimiters = [delimiter] * 12 + list(_DELIMITERS)
  return st.tuples(
    _edited(_edit_rows, 0, 3), st.sampled_from(delimiters), _seldom_edited()
  ).map(
    lambda drawn: drawn[2](
      "\n".join(map(drawn[1].join, drawn[0](rows))).encode() + b"\n"
    )
  )


def _edit_bytes(data: bytes, numbers: tuple[int, ...]) -> bytes:
  kind, at, size, what = numbers
  at %= len(data) + 1
  before, part, after = data[:at], data[at : at + size], data[at + size :]
  inserted = _INSERTED[what % len(_INSERTED)]
  edits = (
    lambda: (
      before + bytes(x ^ 1 << what % 8 for x in part[:1]) + data[at + 1 :]
    ),
    lambda: before + inserted + data[at:],
    lambda: before + inserted + after,
    lambda: before + after,
    lambda: before,
    lambda: after,
    lambda: before + part + data[at:],
    lambda: before + part * (_REPEATS if what % 8 == 0 else 3) + after,
    lambda: before + bytes([what % 256]) * size + after,
    lambda: data + data,
    lambda: data.decode("utf-8", "replace").encode(
      _ENCODINGS[what % len(_ENCODINGS)], "replace"
    ),
  )
  return edits[kind % len(edits)]()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
  """Yields the container and the key of every value inside of JSON."""
  items = value.items() if isinstance(value, dict) else enumerate(value)
  for key, inner in list(items):
    yield value, key
    if isinstance(inner, (dict, list)):
      yield from _places(inner)


def _edit_json(value: Any, numbers: tuple[int, ...]) -> Any:
  kind, at, _, what = numbers
  root = copy.deepcopy([value])
  places = list(_places(root))
  holder, key = places[at % len(places)]
  odd = f"<odd {what % len(_ODD_JSON)}>"
  if kind % 4 and isinstance(holder, dict):
    if kind % 4 == 1:
      del holder[key]
    elif kind % 4 == 2:
      holder[f"{key}<again>"] = odd
    else:
      holder[f"{key}x"] = holder.pop(key)
  elif kind % 3 == 0 and holder is not root:
    other, at_other = places[what % len(places)]
    holder[key] = copy.deepcopy(other[at_other])
  else:
    holder[key] = odd
  return root[0]


def _write_json(value: Any) -> bytes:
  text = json.dumps(value, ensure_ascii=False).replace("<again>", "")
  for number, odd in enumerate(_ODD_JSON):
    text = text.replace(f'"<odd {number}>"', odd)
  return text.encode("utf-8", "surrogatepass")


def _edit_rows(rows: list, numbers: tuple[int, ...]) -> list:
  kind, at, size, what = numbers
  rows = [list(row) for row in rows] or [[""]]
  # The header every second time.
  row = rows[at % len(rows) if kind % 2 else 0]
  column = size % (len(row) or 1)
  odd = _ODD_CELLS[what % len(_ODD_CELLS)]
  if kind % 5 == 0:
    del row[column : column + 1]
  elif kind % 5 == 1:
    row.insert(column, odd)
  elif kind % 5 == 2:
    row[column : column + 1] = row[-1:]
  elif kind % 5 == 3:
    row[column : column + 1] = [odd]
  else:
    rows.remove(row)
  return rows
