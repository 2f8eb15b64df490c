"""Strategies of hypothesis that damage valid files in a few places.

The result is still near enough to a valid file to be read for a while.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Sequence

from hypothesis import strategies as st

# Found inside of files: control characters, quotes, bytes that are not UTF-8 (a
# lone byte, a lone surrogate), a byte order mark, and long values.
_INSERTED = (
  *(b"", b"\0", b"\n", b"\r\n", b"\n\n", b"\t", b",", b";", b'"', b"'", b"\\"),
  *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x1b[31m"),
  *(b"{}", b"[", b"%s", b"-1", b"1e999", b"9" * 5000, b"x" * (1 << 20)),
)
_ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "latin-1", "utf-7")
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


def one_of(values: Sequence[Any]) -> st.SearchStrategy[Any]:
  """Draws a value, which may be long: hypothesis shows only its index."""
  return st.integers(0, len(values) - 1).map(values.__getitem__)


@st.composite
def damaged_bytes(draw, valid: bytes) -> bytes:
  """Draws files that differ from a valid one in a few places."""
  data = valid
  for _ in range(draw(st.integers(1, 4))):
    at = draw(st.integers(0, len(data)))
    end = at + draw(st.integers(0, 40))
    part = data[at:end]
    kind = draw(st.sampled_from("bit insert insert repeat cut encode".split()))
    if kind == "bit":
      bit = 1 << draw(st.integers(0, 7))
      data = data[:at] + bytes(x ^ bit for x in part[:1]) + data[at + 1 :]
    elif kind == "insert":  # Also in place of a part, and nothing.
      data = data[:at] + draw(one_of(_INSERTED)) + data[end:]
    elif kind == "repeat":
      times = draw(st.sampled_from([2, 3, 3, 3, 5000]))
      data = data[:at] + part * times + data[end:]
    elif kind == "cut":
      data = draw(one_of([data[:at], data[at:], data + data]))
    else:
      text = data.decode("utf-8", "replace")
      data = text.encode(draw(st.sampled_from(_ENCODINGS)), "replace")
  return data


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
  """Yields the container and the key of every value inside of JSON."""
  items = value.items() if isinstance(value, dict) else enumerate(value)
  for key, inner in list(items):
    yield value, key
    if isinstance(inner, (dict, list)):
      yield from _places(inner)


@st.composite
def damaged_json(draw, valid: bytes) -> bytes:
  """Draws JSON with values of other kinds, and keys missing, new or doubled."""
  root = [json.loads(valid)]
  for _ in range(draw(st.integers(0, 3))):
    holder, key = draw(one_of(list(_places(root))))
    # What json cannot write takes its place below.
    odd = f"<odd {draw(st.integers(0, len(_ODD_JSON) - 1))}>"
    kinds = ["odd", "odd"]
    if isinstance(holder, dict):
      kinds += ["missing", "doubled", "renamed"]
    kind = draw(st.sampled_from(kinds))
    if kind == "odd":
      holder[key] = odd
    elif kind == "doubled":
      holder[f"{key}<again>"] = odd
    elif kind == "renamed":
      holder[f"{key}x"] = holder.pop(key)
    else:
      del holder[key]
  text = json.dumps(root[0], ensure_ascii=False).replace("<again>", "")
  for number, odd in enumerate(_ODD_JSON):
    text = text.replace(f'"<odd {number}>"', odd)
  return draw(_seldom_damaged(text.encode("utf-8", "surrogatepass")))


def _seldom_damaged(content: bytes) -> st.SearchStrategy[bytes]:
  return st.one_of(*[st.just(content)] * 3, damaged_bytes(content))


@st.composite
def damaged_json_lines(draw, valid: bytes) -> bytes:
  """Draws lines of JSON with a damaged one before a valid one."""
  lines = valid.splitlines()
  at = draw(st.integers(0, len(lines) - 1))
  return b"\n".join([*lines[:at], draw(damaged_json(lines[at])), *lines[at:]])


@st.composite
def damaged_table(draw, valid: bytes, delimiter: str = "\t") -> bytes:
  """Draws tables with other delimiters, headers, cells and quotes."""
  rows = [line.split(delimiter) for line in valid.decode().splitlines()]
  for _ in range(draw(st.integers(0, 3))):
    row = rows[draw(st.sampled_from([0, *range(len(rows))]))]
    at = draw(st.integers(0, len(row)))
    new = draw(st.lists(one_of(_ODD_CELLS), max_size=2))
    row[at : at + draw(st.integers(0, 2))] = new
  # Other delimiters are less frequent, as nothing else is seen behind them.
  other = draw(st.sampled_from([delimiter] * 12 + list(_DELIMITERS)))
  text = "".join(f"{other.join(row)}\n" for row in rows)
  return draw(_seldom_damaged(text.encode()))
