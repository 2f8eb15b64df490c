"""Tests of reading lines, TSV, CSV and JSON lines."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from official_albert.tasks.common import rows


def write(folder, name, text):
  data = text if isinstance(text, bytes) else text.encode("utf-8")
  if name.endswith(".gz") and not isinstance(text, bytes):
    data = gzip.compress(data)
  (folder / name).write_bytes(data)
  return str(folder / name)


@pytest.mark.parametrize(
  "text, expected",
  [
    ("a\tb\nc\td", [["a", "b"], ["c", "d"]]),
    ("a\tb\r\nc\td\r\n", [["a", "b"], ["c", "d"]]),
    # Only newlines end rows.
    ("a\rb\tc\u2028d\x85e\x0cf\n", [["a\rb", "c\u2028d\x85e\x0cf"]]),
    ("a\t\t b \n", [["a", "", " b "]]),
    ("a\n\n\r\n", [["a"]]),
    ("a\n\nb\n", [["a"], [""], ["b"]]),
    # It is a byte order mark only at the start of a file.
    ("\ufeffa\n\ufeffß\n", [["a"], ["\ufeffß"]]),
  ],
)
def test_tsv(tmp_path, text, expected):
  for name in ("rows.tsv", "rows.tsv.gz"):
    found = list(rows.read_tsv(write(tmp_path, name, text)))
    assert found == list(enumerate(expected, 1))


_CUT = gzip.compress(b"text\n" * 9, mtime=0)[:-9]
_ROWS = [
  {"text": 'He said "no", twice.', "label": "a"},
  {"text": "naïve 😀", "label": "b"},
]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json", "ndjson"])
def test_formats_give_the_same_rows(tmp_path, kind, packed, mark):
  lines = "\n".join(map(json.dumps, _ROWS))
  text = {
    "tsv": 'text\tlabel\nHe said "no", twice.\ta\nnaïve 😀\tb',
    "csv": 'text,label\r\n"He said ""no"", twice.",a\r\nnaïve 😀,b\r\n',
    "jsonl": lines,
    "json": lines,
    "ndjson": lines,
  }[kind]
  path = write(tmp_path, f"rows.{kind}{packed}", mark + text)
  assert [r.cells for r in rows.read_table(path, ["label"])] == _ROWS


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_cells_with_tabs(tmp_path, always, end):
  """As pandas and Excel write them: they are CSV, and refused as TSV."""
  texts = ['She said "no".', "plain", "Line one\nline two", 'tab\t"', '"x"']
  quoting = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
  for some in (texts, *([x] for x in texts)):
    for columns in (["text", "label"], ["text"]):
      file = io.StringIO()
      writer = csv.writer(
        file, "excel-tab", quoting=quoting, lineterminator=end
      )
      rest = ["a"] * (len(columns) - 1)
      writer.writerows([columns, *([text, *rest] for text in some)])
      path = write(tmp_path, "a.csv", file.getvalue())
      found = [r.cells["text"] for r in rows.read_table(path, columns)]
      assert found == some
      path = write(tmp_path, "a.tsv", file.getvalue())
      if '"' in file.getvalue():
        with pytest.raises(ValueError, match="rename the file to .csv"):
          list(rows.read_table(path, columns))


@pytest.mark.parametrize(
  "cells",
  [
    ['"no" he said', 'x "y"'],
    ['"Great."', "fine"],
    ['"begins', 'ends"'],  # A cell of two lines would leave rows of one length.
    ['""', "x"],
    ['mid "dle" ""', '"'],
  ],
)
def test_quotation_marks_are_text(tmp_path, cells):
  text = "".join(f"{cell}\tpos\n" for cell in cells)
  path = write(tmp_path, "a.tsv", f"text\tlabel\n{text}")
  found = [r.cells["text"] for r in rows.read_table(path, ["text"])]
  assert found == cells


def test_csv(tmp_path):
  for mark in ";\t|":  # Excel's first line names the separator.
    text = f'\ufeffsep={mark}\r\nt{mark}n\r\n"a{mark}\nb"{mark}1\r\n'
    (found,) = rows.read_table(write(tmp_path, "a.csv", text), ["n", "t"])
    assert found.cells == {"t": f"a{mark}\nb", "n": "1"}
    assert found.where.endswith("a.csv, line 3")
  for text in ("sep=\nt;n\na;1\n", "sep=\r\nt,n\r\na,1\r\n"):
    (found,) = rows.read_table(write(tmp_path, "a.csv", text), ["n", "t"])
    assert found.cells == {"t": "a", "n": "1"}
  for text in ('"t";n\n"a;b, c";1,5\n', "t\tn\na;b, c\t1,5\n"):
    (found,) = rows.read_table(write(tmp_path, "a.csv", text), ["n", "t"])
    assert found.cells == {"t": "a;b, c", "n": "1,5"}
  # The last one is longer than the limit of the module csv.
  values = [
    'a "b" c',
    "x,y\nz",
    "\ttab",
    '"',
    ' "x" ',
    ' ""',
    "é\r\né",
    " ",
    "word " * 50_000,
  ]
  path = tmp_path / "rows.csv"
  with open(path, "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([["n", "text"], *enumerate(values)])
  records = list(rows.read_table(str(path), ["text"]))
  assert [record.cells["text"] for record in records] == values
  # A row is located by its first line.
  lines = [int(record.where.rsplit(" ", 1)[1]) for record in records]
  assert lines == [2, 3, 5, 6, 7, 8, 9, 11, 12]


@pytest.mark.parametrize(
  "name, text, problem",
  [
    ("a.tsv", b"", "a.tsv is empty: rows"),
    ("a.tsv", b"text\nf\xe9\n", "a.tsv, line 2 is not UTF-8 (byte 0xe9): con"),
    ("a.tsv.gz", _CUT, "not a complete compressed file"),
    ("a.csv", b"PK\3\4", "a.csv is no UTF-8 text"),
    ("a.csv", "text,b\n".encode("utf-16"), "a.csv is no UTF-8 text"),
    ("a.csv", "text,label\n", "a.csv has no rows, or only a header."),
    ("a.tsv", "n\tx\n1\t2\n", "line 1: there is no column 'text', the columns"),
    ("a.tsv", "\t".join("ab" * 999), f"are {chr(39)}a', {'b'!r}, 'a', "),
    ("a.csv", "text,text\n1,2\n", "line 1: there are several columns 'text'"),
    ("a.tsv", "text\tb\n1\t2\t3\n", "than the header: 3 instead of 2."),
    ("a.csv", 'text,b\n1,2\n"o,2\n3,4\n', "line 3: the row that begins here"),
    ("a.csv", 'text,b\n1, ""\n', "here is not CSV (a space before a quoted"),
    ("a.csv", 'text,b\n1, "2"\n', "here is not CSV (a space before a quoted"),
    ("a.csv", "sep=;\ntext,b\n", "no column 'text', the columns are 'text,b'"),
    ("a.csv", "sep=", "there is no column 'text', the columns are none"),
    ("a.csv", "sep=;\n", "there is no column 'text', the columns are none"),
    ("a.csv", "text,b\rone,1\rtwo,2\r", "a.csv ends lines by carriage"),
    ("a.csv", b"text,b\nok,1\ncaf\xe9,2\n", "a.csv, line 3 is not UTF-8"),
    ("a.jsonl", '{"text": "a"}\n{"text"\n', "line 2 is not a JSON object (Exp"),
    ("a.json", '[\n{"text": "a"}\n]', "line 1 is not a JSON object (Exp"),
    ("a.jsonl", '["text"]\n', "line 1 is not a JSON object: write one {...}"),
    (
      "a.jsonl",
      '{"text": "a", "b": {"c": 1, "c": 2}}\n',
      "line 1 is not a JSON object (it has the key 'c' twice, in",
    ),
    (
      "a.jsonl",
      '{"text": "a"}\n{"Text": "b"}\n',
      "line 2: there is no column 'text', the columns are 'Text'.",
    ),
    ("a.txt", "text\n", "a.txt: the name must end in .tsv, .csv or .jsonl"),
  ],
)
def test_bad_tables(tmp_path, name, text, problem):
  path = write(tmp_path, name, text)
  with pytest.raises(ValueError) as error:
    list(rows.read_table(path, ["text"]))
  assert problem in str(error.value)
  assert path in str(error.value)


_NOT_UTF8 = "is not UTF-8"
_WIDTH = "has another number of columns than the header"
_NOT_CSV = "the row that begins here is not CSV"


@pytest.mark.parametrize(
  "name, text, kept, found",
  [
    (
      "a.tsv",
      b'text\tb\n1\t2\nf\xe9\t3\n4\t\xff\n5\t6\t7\n"no"\n8\t9\n',
      ["1", "8"],
      {_NOT_UTF8: 2, _WIDTH: 2},
    ),
    (
      "a.jsonl",
      b'{"text": "f\xe9"}\n{"text": "a"}\n{"text"\n\xff\n{"text": "b"}\n',
      ["a", "b"],
      {_NOT_UTF8: 2, "is not a JSON object": 1},
    ),
    (
      "a.csv",
      b'text,b\n1,2\ncaf\xe9,2\n"x\xe9,",4\n"5"6,7\n"8 "a" b",9\nx\ry,0\n'
      b'"two\nlines",\n3\n"a\n",b,c\n"end"",\n",\xc3\xa9',
      ["1", "two\nlines", 'end",\n'],
      {_NOT_UTF8: 2, _NOT_CSV: 3, _WIDTH: 2},
    ),
  ],
)
def test_invalid_rows_are_skipped(tmp_path, name, text, kept, found):
  path = write(tmp_path, name, text)
  with pytest.raises(ValueError, match=f"{name}, line "):
    list(rows.read_table(path, ["text"]))
  invalid = rows.InvalidRows(may_skip=True)
  records = list(rows.read_table(path, ["text"], invalid))
  assert [x.cells["text"] for x in records] == kept
  assert {kind: count for kind, (count, _) in invalid.found.items()} == found


@pytest.mark.parametrize(
  "name, text, problem",
  [
    # Nobody knows where these rows end.
    ("a.csv", b'text,b\n1,2\n"3,4\n5,6\n', "line 3: the row that begins"),
    ("a.csv", b'text,b\n"3,4\n5,"6\n', "line 2: the row that begins"),
    ("a.csv", b'text,b\n"a "b"\nc",1\n', "line 2: the row that begins"),
    ("a.csv", b'text,b\n"a"\n\nb",1\n', "line 4: the row that begins"),
    ("a.csv", b'text,b\n"a" ,b\nc",1\n', "line 3: the row that begins"),
    ("a.csv", b'text,b\n"x\ny\xe9",1\n', "line 2 is not UTF-8 (byte 0xe9)"),
    ("a.tsv", b'text\tb\n"x\ny"\t1\n', "line 2 is quoted as in CSV"),
    # Headers.
    ("a.csv", b"text,b\xe9\n1,2\n", "line 1 is not UTF-8 (byte 0xe9)"),
    ("a.tsv", b"text\tb\xe9\n1\t2\n", "line 1 is not UTF-8 (byte 0xe9)"),
    ("a.csv", b'text,"b"c\n1,2\n', "line 1: the row that begins"),
    ("a.csv", "text,b\n1,2\n".encode("utf-16"), "is no UTF-8 text"),
  ],
)
def test_what_is_not_skipped(tmp_path, name, text, problem):
  path = write(tmp_path, name, text)
  with pytest.raises(ValueError) as error:
    list(rows.read_table(path, ["text"], rows.InvalidRows(may_skip=True)))
  assert problem in str(error.value)
  assert path in str(error.value)


def test_cells():
  cells = {"text": "é", "number": 2.5, "yes": True, "empty": ""}
  cells |= {"lone": "\ud83d", "list": [], "none": None}
  cells |= {"whole": -3.0, "large": 1e300, "integer": (1 << 53) + 1}
  cells |= {"endless": float("inf"), "sql": "\\N"}
  record = rows.Record("a.jsonl, line 7", cells)
  assert rows.text_cell(record, "text") == "é"
  empty = [
    rows.text_cell(record, name, may_be_empty=True)
    for name in ("text", "empty", "none")
  ]
  assert empty == ["é", record.cells["empty"], ""]
  plain = [rows.plain_cell(record, n) for n in ("text", "number", "yes")]
  assert plain == ["é", "2.5", "true"]
  numbers = ("whole", "large", "integer")
  plain = [rows.plain_cell(record, n) for n in numbers]
  assert plain == ["-3", "1e+300", "9007199254740993"]
  for read, column, problem in (
    (rows.text_cell, "number", "must be text, got 2.5"),
    (rows.text_cell, "empty", "is empty"),
    (rows.text_cell, "sql", "is empty"),
    (rows.text_cell, "lone", "contains the lone surrogate"),
    (rows.plain_cell, "none", "is empty"),
    (rows.plain_cell, "list", "must be text"),
    (rows.plain_cell, "endless", "must be text, got inf"),
  ):
    with pytest.raises(ValueError, match=f"line 7: '{column}' {problem}"):
      read(record, column)
