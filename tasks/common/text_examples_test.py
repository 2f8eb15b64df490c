"""Tests of lines and tab-separated rows: quotes, ends of lines, bad bytes."""

from __future__ import annotations

import gzip

import pytest

from tasks.common import text_examples


def write(folder, data, name="rows.tsv"):
  (folder / name).write_bytes(data)
  return str(folder / name)


def cells(path):
  return [row.cells for row in text_examples.read_tsv(path)]


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
    # A mark that is not at the start of the file is text.
    pytest.param(
      b"a\n\xef\xbb\xbfb\n", [["a"], ["\ufeffb"]], id="mark_in_the_middle"
    ),
  ],
)
def test_cells(tmp_path, data, expected):
  assert cells(write(tmp_path, data)) == expected


def test_rows_say_where_they_are(tmp_path):
  path = write(tmp_path, b"a\n\nb\n")
  rows = list(text_examples.read_tsv(path))
  assert [row.line for row in rows] == [1, 2, 3]
  assert rows[2].where == f"{path}, line 3"


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
      "a.tsv.gz is damaged or cut after line 0, or no gzip file",
      id="no_gzip",
    ),
    pytest.param(
      "a.tsv.gz",
      gzip.compress(b"a\n" * 9)[:-9],
      "a.tsv.gz is damaged or cut after line",
      id="cut_gzip",
    ),
  ],
)
def test_bad_files(tmp_path, name, data, problem):
  path = write(tmp_path, data, name)
  with pytest.raises(ValueError) as error:
    cells(path)
  assert problem in str(error.value)


def test_a_missing_file(tmp_path):
  with pytest.raises(FileNotFoundError, match="none.tsv"):
    cells(str(tmp_path / "none.tsv"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
