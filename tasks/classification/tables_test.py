"""Tests of TSV, CSV and JSON lines as tables."""

from __future__ import annotations

import csv
import gzip
import json

import pytest

from tasks.classification import tables


def write(folder, name, text):
  data = text if isinstance(text, bytes) else text.encode("utf-8")
  if name.endswith(".gz"):
    data = gzip.compress(data)
  (folder / name).write_bytes(data)
  return str(folder / name)


def read(path, *columns):
  return list(tables.read_table(path, columns or ("text",)))


_ROWS = [
  {"text": 'He said "no", twice.', "label": "a"},
  {"text": "naïve 😀", "label": "b"},
]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
def test_the_same_rows_in_each_form(tmp_path, kind, packed, mark):
  text = {
    "tsv": 'text\tlabel\nHe said "no", twice.\ta\nnaïve 😀\tb',
    "csv": 'text,label\r\n"He said ""no"", twice.",a\r\nnaïve 😀,b\r\n',
    "jsonl": "\n".join(map(json.dumps, _ROWS)),
  }
  text["json"] = text["jsonl"]
  path = write(tmp_path, f"rows.{kind}{packed}", mark + text[kind])
  assert [record.cells for record in read(path, "label")] == _ROWS


def test_what_python_writes_as_csv_is_read_again(tmp_path):
  values = ['a "b" c', "x,y\nz", "\ttab", '"', "é\r\né", " blanks ", "''"]
  path = tmp_path / "rows.csv"
  with open(path, "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerows([["n", "text"], *enumerate(values)])
  records = read(str(path))
  assert [record.cells["text"] for record in records] == values
  # A row begins where its first line is.
  assert [int(r.where.rsplit(" ", 1)[1]) for r in records] == [
    *(2, 3, 5, 6, 7, 9, 10)
  ]


def test_long_cells(tmp_path):
  text = "word " * 50_000
  path = write(tmp_path, "rows.csv", f'text,label\n"{text}",a\n')
  assert read(path)[0].cells["text"] == text


@pytest.mark.parametrize(
  "name, text, problem",
  [
    ("a.csv", "", "a.csv is empty: rows are missing."),
    ("a.csv", "\n\n", "a.csv holds empty lines only"),
    ("a.jsonl", "\n \n", "a.jsonl holds empty lines only"),
    ("a.csv", "text,label\n", "a.csv holds no row, only a header."),
    ("a.tsv", "text\tlabel\n\n", "a.tsv holds no row, only a header."),
    (
      "a.tsv",
      "sentence\ttxet\n1\t2\n",
      "a.tsv, line 1: there is no column 'text', the columns are 'sentence', "
      "'txet'; did you mean 'txet'?",
    ),
    ("a.csv", "id,body\n1,2\n", "the columns are 'id', 'body'."),
    # As if it had no header, and as if TSV were CSV.
    ("a.csv", "text\tlabel\n", "the columns are 'text\\tlabel'"),
    ("a.csv", "text,text\n1,2\n", "line 1: column 'text' is there 2 times; wh"),
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
      "line 3: the row that begins here is no CSV (unexpected end of data)",
    ),
    (
      "a.csv",
      'text,b\n"o"ne,2\n',
      "line 2: the row that begins here is no CSV",
    ),
    ("a.csv", "text,b\r1,2\r", "line 1: the row that begins here is no CSV"),
    ("a.csv", b"text,b\nok,1\ncaf\xe9,2\n", "a.csv, line 3 is not UTF-8"),
    ("a.jsonl", '{"text": "a"}\n{"text"\n', "a.jsonl, line 2 is no JSON (Exp"),
    ("a.jsonl", '["text"]\n', "line 1 is no JSON object: it should be {...},"),
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
      "a.txt: the name should end in .tsv, .csv, .jsonl, .js",
    ),
    ("a.gz", "text\n", "a.gz: the name should end in"),
  ],
)
def test_bad_files(tmp_path, name, text, problem):
  path = write(tmp_path, name, text)
  with pytest.raises(ValueError) as error:
    read(path)
  assert problem in str(error.value)
  assert path in str(error.value)


def test_a_missing_file(tmp_path):
  with pytest.raises(FileNotFoundError):
    read(str(tmp_path / "none.csv"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
