"""Tests of reading lines, TSV, CSV and JSON lines."""

from __future__ import annotations

import csv
import gzip
import json

import pytest

from tasks.common import rows


def write(folder, data, name="rows.tsv"):
  (folder / name).write_bytes(data)
  return str(folder / name)


def cells(path):
  return [row.cells for row in rows.read_tsv(path)]


@pytest.mark.parametrize(
  "data, expected",
  [
    pytest.param(b"a\tb\nc\td\n", [["a", "b"], ["c", "d"]], id="plain"),
    pytest.param(b"a\tb\nc\td", [["a", "b"], ["c", "d"]], id="no_last_end"),
    pytest.param(
      b'"a\tb\n"" c\t" d', [['"a', "b"], ['"" c', '" d']], id="quotes_are_text"
    ),
    pytest.param(b"\xef\xbb\xbfa\tb\n", [["a", "b"]], id="byte_order_mark"),
    pytest.param(b"a\tb\r\nc\td\r\n", [["a", "b"], ["c", "d"]], id="crlf"),
    pytest.param(
      "a\rb\tc\u2028d\x85e\x0cf\n".encode(),
      [["a\rb", "c\u2028d\x85e\x0cf"]],
      id="only_newlines_end_rows",
    ),
    pytest.param(b"a\t\t b \n", [["a", "", " b "]], id="cells_as_written"),
    pytest.param(b"a\n\n\r\n", [["a"]], id="empty_lines_at_the_end"),
    pytest.param(b"a\n\nb\n", [["a"], [""], ["b"]], id="empty_line_inside"),
    # It is a byte order mark only at the start of a file.
    pytest.param(
      b"a\n\xef\xbb\xbfb\n", [["a"], ["\ufeffb"]], id="mark_in_the_middle"
    ),
  ],
)
def test_cells(tmp_path, data, expected):
  assert cells(write(tmp_path, data)) == expected


def test_location_of_rows(tmp_path):
  path = write(tmp_path, b"a\n\nb\n")
  found = list(rows.read_tsv(path))
  assert [row.line for row in found] == [1, 2, 3]
  assert found[2].where == f"{path}, line 3"


def test_gzip(tmp_path):
  data = gzip.compress("\ufeffa\tß\n".encode())
  assert cells(write(tmp_path, data, "rows.tsv.gz")) == [["a", "ß"]]


@pytest.mark.parametrize(
  "name, data, problem",
  [
    pytest.param("a.tsv", b"", "a.tsv is empty: rows", id="empty"),
    pytest.param(
      "a.tsv.gz", gzip.compress(b""), "a.tsv.gz is empty", id="empty_gzip"
    ),
    pytest.param(
      "a.tsv", b"\n\r\n", "a.tsv holds empty lines only", id="empty_lines"
    ),
    pytest.param(
      "a.tsv", b"\xef\xbb\xbf", "a.tsv holds empty lines only", id="only_a_mark"
    ),
    pytest.param(
      "a.tsv",
      b"fine\ncaf\xe9\tb\n",
      "a.tsv, line 2 is not UTF-8 (byte 0xe9): convert the file to UTF-8.",
      id="latin1",
    ),
    pytest.param(
      "a.tsv",
      "text\n".encode("utf-16"),
      "line 1 is not UTF-8 (byte 0xff)",
      id="utf16",
    ),
    pytest.param(
      "a.tsv.gz",
      b"a\tb\n",
      "a.tsv.gz is not a complete gzip file (after line 0",
      id="no_gzip",
    ),
    pytest.param(
      "a.tsv.gz",
      gzip.compress(b"a\n" * 9)[:-9],
      "a.tsv.gz is not a complete gzip file (after line",
      id="cut_gzip",
    ),
  ],
)
def test_bad_lines(tmp_path, name, data, problem):
  path = write(tmp_path, data, name)
  with pytest.raises(ValueError) as error:
    cells(path)
  assert problem in str(error.value)


def test_missing_file(tmp_path):
  with pytest.raises(FileNotFoundError, match="none.tsv"):
    cells(str(tmp_path / "none.tsv"))


def write_text(folder, name, text):
  data = text if isinstance(text, bytes) else text.encode("utf-8")
  if name.endswith(".gz"):
    data = gzip.compress(data)
  (folder / name).write_bytes(data)
  return str(folder / name)


def read_cells(path, *columns):
  return list(rows.read_table(path, columns or ("text",)))


_ROWS = [
  {"text": 'He said "no", twice.', "label": "a"},
  {"text": "naïve 😀", "label": "b"},
]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
def test_formats_give_the_same_rows(tmp_path, kind, packed, mark):
  text = {
    "tsv": 'text\tlabel\nHe said "no", twice.\ta\nnaïve 😀\tb',
    "csv": 'text,label\r\n"He said ""no"", twice.",a\r\nnaïve 😀,b\r\n',
    "jsonl": "\n".join(map(json.dumps, _ROWS)),
  }
  text["json"] = text["jsonl"]
  path = write_text(tmp_path, f"rows.{kind}{packed}", mark + text[kind])
  assert [record.cells for record in read_cells(path, "label")] == _ROWS


def test_csv_round_trip(tmp_path):
  values = ['a "b" c', "x,y\nz", "\ttab", '"', "é\r\né", " blanks ", "''"]
  path = tmp_path / "rows.csv"
  with open(path, "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerows([["n", "text"], *enumerate(values)])
  records = read_cells(str(path))
  assert [record.cells["text"] for record in records] == values
  # A row is located by its first line.
  assert [int(r.where.rsplit(" ", 1)[1]) for r in records] == [
    *(2, 3, 5, 6, 7, 9, 10)
  ]


def test_long_cells(tmp_path):
  text = "word " * 50_000
  path = write_text(tmp_path, "rows.csv", f'text,label\n"{text}",a\n')
  assert read_cells(path)[0].cells["text"] == text


@pytest.mark.parametrize(
  "name, text, problem",
  [
    ("a.csv", "", "a.csv is empty: rows are missing."),
    ("a.csv", "\n\n", "a.csv holds empty lines only"),
    ("a.jsonl", "\n \n", "a.jsonl holds empty lines only"),
    ("a.csv", "text,label\n", "a.csv has a header, but no rows."),
    ("a.tsv", "text\tlabel\n\n", "a.tsv has a header, but no rows."),
    (
      "a.tsv",
      "sentence\ttxet\n1\t2\n",
      "a.tsv, line 1: there is no column 'text', the columns are 'sentence', "
      "'txet'; did you mean 'txet'?",
    ),
    ("a.csv", "id,body\n1,2\n", "the columns are 'id', 'body'."),
    # TSV in a file called CSV.
    ("a.csv", "text\tlabel\n", "the columns are 'text\\tlabel'"),
    (
      "a.csv",
      "text,text\n1,2\n",
      "line 1: column 'text' occurs 2 times: rename",
    ),
    ("a.tsv", "text\tb\n1\t2\t3\n", "line 2 has 3 columns, the header has 2."),
    (
      "a.tsv",
      "text\tb\n1\t2\n\n1\t2",
      "line 3 has 1 columns, the header has 2",
    ),
    ("a.csv", "text,b\n1,2\n1\n", "a.csv, line 3 has 1 columns"),
    (
      "a.csv",
      'text,b\n1,2\n"one,2\n3,4\n',
      "line 3: the row that begins here is not CSV (unexpected end of data)",
    ),
    (
      "a.csv",
      'text,b\n"o"ne,2\n',
      "line 2: the row that begins here is not CSV",
    ),
    ("a.csv", "text,b\r1,2\r", "line 1: the row that begins here is not CSV"),
    ("a.csv", b"text,b\nok,1\ncaf\xe9,2\n", "a.csv, line 3 is not UTF-8"),
    ("a.jsonl", '{"text": "a"}\n{"text"\n', "a.jsonl, line 2 is not JSON (Exp"),
    ("a.jsonl", '["text"]\n', "line 1 is not a JSON object: write one {...}"),
    (
      "a.jsonl",
      '{"text": "a"}\n{"Text": "b"}\n',
      "line 2: there is no column 'text', the columns are 'Text'; did you",
    ),
    (
      "a.jsonl",
      "{}",
      "line 1: there is no column 'text', the columns are none.",
    ),
    (
      "a.txt",
      "text\n",
      "a.txt: the name must end in .tsv, .csv, .jsonl, .js",
    ),
    ("a.gz", "text\n", "a.gz: the name must end in"),
  ],
)
def test_bad_tables(tmp_path, name, text, problem):
  path = write_text(tmp_path, name, text)
  with pytest.raises(ValueError) as error:
    read_cells(path)
  assert problem in str(error.value)
  assert path in str(error.value)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
