"""Rows of tables, lines and standard input, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from tools.prediction import input as prediction_input

_ROOT = pathlib.Path(__file__).parents[2]
_SCRIPT = """
import sys
from tools.prediction import input as prediction_input
source = prediction_input.make_source(
  ["-"], ["text"], {"text": "review"}, ["id=key"], sys.argv[1])
try:
  print(source.check(), [tuple(row) for row in source.rows()])
except ValueError as error:
  print(error)
"""


def source(paths, roles=("text",), trained=None, changes=(), **kwargs):
  paths = [str(path) for path in paths]
  return prediction_input.make_source(
    paths, roles, trained or {}, changes, **kwargs
  )


def test_several_files_of_all_kinds(tmp_path):
  (tmp_path / "a.tsv").write_text("n\treview\n1\tgood day\n2\tbad\n")
  with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
    file.write('review\n"a ""b"", c"\n')
  (tmp_path / "c.jsonl").write_text('{"review": "x\\ty"}\n')
  paths = [tmp_path / name for name in ("a.tsv", "b.csv.gz", "c.jsonl")]
  both = source(paths, trained={"text": "review"})
  found = list(both.rows())
  assert both.check() == 4
  assert [row.guid for row in found] == ["0", "1", "2", "3"]
  texts = [row.cells["text"] for row in found]
  assert texts == ["good day", "bad", 'a "b", c', "x\ty"]
  assert found[1].where == f"{paths[0]}, line 3"
  assert found[3].where == f"{paths[2]}, line 1"
  (named,) = (source(paths[:1], changes=["text=n", "id=review"]).rows(),)
  assert [(row.guid, row.cells["text"]) for row in named] == [
    ("good day", "1"),
    ("bad", "2"),
  ]


def test_pipes_are_read_once(tmp_path):
  pipe = tmp_path / "pipe"
  os.mkfifo(pipe)
  with pytest.raises(
    ValueError, match="pipe is a pipe of unknown .*--input_format"
  ):
    source([pipe])
  named = source([pipe], input_format="tsv")
  assert named.check() is None
  writer = threading.Thread(
    target=pipe.write_text, args=["text\nfirst\nsecond\n"], daemon=True
  )
  writer.start()
  assert [row.cells["text"] for row in named.rows()] == ["first", "second"]
  writer.join()
  # Files beside it are not read beforehand either.
  (tmp_path / "a.tsv").write_text("text\na\n")
  assert source([tmp_path / "a.tsv"]).check() == 1
  both = source([tmp_path / "a.tsv", pipe], input_format="tsv")
  assert both.check() is None


def test_lines_of_text(tmp_path):
  (tmp_path / "a.txt").write_text("one\ttab\r\ntwo\n")
  for path, kwargs in (("a.txt", {}), ("b.log", {"input_format": "text"})):
    (tmp_path / path).write_text("one\ttab\r\ntwo\n")
    found = list(source([tmp_path / path], **kwargs).rows())
    assert [row.cells["text"] for row in found] == ["one\ttab", "two"]


def test_options(tmp_path):
  roles = ("passage", "question", "options")
  options = ["a", "b", "c", "d"]
  row = {"passage": "p", "question": "q", "options": options}
  (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
  cell = json.dumps(options)
  (tmp_path / "b.tsv").write_text(f"question\tpassage\toptions\nq\tp\t{cell}\n")
  for name in ("a.jsonl", "b.tsv"):
    (found,) = source([tmp_path / name], roles).rows()
    assert found.cells == row
  (tmp_path / "a.jsonl").write_text(json.dumps(dict(row, options=options[:3])))
  with pytest.raises(ValueError, match="line 1: 'options' must be a list of 4"):
    source([tmp_path / "a.jsonl"], roles).check()
  (tmp_path / "a.jsonl").write_text(
    json.dumps(dict(row, options=["a", "", "c", "d"]))
  )
  with pytest.raises(ValueError, match="line 1: 'options' is empty"):
    source([tmp_path / "a.jsonl"], roles).check()


@pytest.mark.parametrize(
  "kind, text, said",
  [
    (
      "tsv",
      "key\treview\n7\tgood\n",
      "None [('standard input, line 2', '7', {'text': 'good'})]\n",
    ),
    (
      "jsonl",
      '{"key": 1, "review": "a"}\n{"key": 2}\n',
      "standard input, line 2: there is no column 'review'",
    ),
    ("csv", "", "standard input is empty: rows are missing."),
  ],
)
def test_standard_input(kind, text, said):
  done = subprocess.run(
    [sys.executable, "-c", _SCRIPT, kind],
    cwd=_ROOT,
    input=text,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith(said)


def test_contradictions(tmp_path):
  cases = (
    (dict(paths=[]), "there is no input"),
    (dict(paths=["-", "a.tsv"], input_format="tsv"), "names - and files"),
    (dict(paths=["-"]), "give --input_format, one of tsv"),
    (dict(paths=["a.tsv"], changes=["text=x", "id=x"]), "'x' is named for two"),
    (dict(paths=["a.tsv"], changes=["label=x"]), "with a role of text, id"),
    (dict(paths=["a.tsv"], changes=["text"]), "takes role=column"),
    (dict(paths=["a.txt"], changes=["id=x"]), "a.txt has one text a line"),
  )
  for arguments, message in cases:
    with pytest.raises(ValueError, match=message):
      source(**arguments)
  (tmp_path / "a.tsv").write_text("text\nok\n\t\n")
  with pytest.raises(ValueError, match="a.tsv, line 3 has 2 columns"):
    source([tmp_path / "a.tsv"]).check()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
