"""Gives damaged files to the functions that read them.

An input must be accepted, or refused with an error that
`tools.cli.command_line` shows as one line of at most 300 characters that
names the user's file. Anything else is a failure: another exception, the
end of the process, more than 20 s, more than 2 GiB, or files left by a
refused input.

The targets are in `tools/testing/fuzz_AREA_test.py`. hypothesis draws the
inputs and shrinks one that fails:

    pytest -m "" --hypothesis-profile=fuzz tools/testing/fuzz*_test.py

gives 200 other inputs to each target, every time.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import hypothesis
from hypothesis import strategies as st

from official_albert import files
from official_albert.tools.cli import command_line

_MESSAGE_CHARACTERS = 300
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
    kinds = "odd odd missing doubled renamed".split()
    kind = draw(st.sampled_from(kinds if isinstance(holder, dict) else ["odd"]))
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


def zipped(damaged: Callable[[bytes], st.SearchStrategy[bytes]]) -> Callable:
  """Returns what damages a file, or its content below gzip's checksum."""

  def damage_gzip(valid: bytes) -> st.SearchStrategy[bytes]:
    content = damaged(gzip.decompress(valid))
    content = content.map(lambda x: gzip.compress(x, 1, mtime=0))
    return st.one_of(content, content, damaged_bytes(valid))

  return damage_gzip


class Target(NamedTuple):
  """A function that reads a user's file."""

  file: str  # Its name in a folder.
  # Writes a valid file, and what belongs to it, to a new folder.
  prepare: Callable[[str], None]
  # Returns a strategy of contents close to a valid one.
  damage: Callable[[bytes], st.SearchStrategy[bytes]]
  read: Callable[[str], Any]  # Called with the folder.
  named: str = ""  # What each refusal has; by default, the path of the file.


def check(target: Target, folder: str) -> None:
  """Gives inputs to a target; raises the failure of the smallest that fails."""
  target.prepare(folder)
  path = os.path.join(folder, target.file)
  valid = files.read_bytes(path)
  refusal = _answer(target, folder)
  assert not refusal, f"a valid input is refused: {refusal}"

  @hypothesis.given(target.damage(valid))
  def answer(content: bytes) -> None:
    files.write_bytes(path, content)
    _answer(target, folder)

  answer()


def _answer(target: Target, folder: str) -> str:
  """Returns the refusal of a file, or "". Raises an error for a failure."""
  before = {*files.list_dir(folder)}
  refusal = ""
  try:
    with limited_memory():
      target.read(folder)
  except Exception as error:
    if not command_line.is_user_error(error):
      raise
    refusal = command_line.describe(error)
  new = {*files.list_dir(folder)} - before
  for name in new:
    path = os.path.join(folder, name)
    shutil.rmtree(path) if files.is_dir(path) else os.remove(path)
  if refusal:
    named = target.named or os.path.join(folder, target.file)
    assert named in refusal, f"a message without the file: {refusal}"
    assert len(refusal.splitlines()) == 1, f"several lines: {refusal}"
    # Messages that name several faults separate them by semicolons.
    longest = max(map(len, refusal.replace(folder, "").split("; ")))
    assert longest <= _MESSAGE_CHARACTERS, f"a long message: {refusal}"
    # Names of unfinished work begin with a dot.
    left = [name for name in new if not name.startswith(".")]
    assert not left, f"left behind: {left[0]}"
  return refusal


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
  """Lets the data of this process grow by 2 GiB at most."""
  status = pathlib.Path("/proc/self/status").read_text("ascii")
  data = 1024 * int(re.search(r"VmData:\s*(\d+) kB", status)[1])
  _, most = resource.getrlimit(resource.RLIMIT_DATA)
  resource.setrlimit(resource.RLIMIT_DATA, (data + (2 << 30), most))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
