"""Tests of rows of all forms of input, and of lines of predictions."""

from __future__ import annotations

import gzip
import json
import os
import pathlib

import numpy as np
import pytest

from official_albert.tasks import answer_fields
from official_albert.tools.prediction import lines as lines_lib


def columns_of(paths, roles=("text",), trained=None, changes=()):
  return lines_lib.choose_columns(paths, roles, trained or {}, changes)


def read(paths, roles=("text",), trained=None, changes=()):
  paths = [str(path) for path in paths]
  columns = columns_of(paths, roles, trained, changes)
  return list(lines_lib.read_rows(paths, columns))


def cells(rows, role="text"):
  return [row.cells[role] for row in rows]


def test_several_files_of_all_kinds(tmp_path):
  (tmp_path / "a.tsv").write_text("n\treview\n1\tgood day\n2\tbad\n")
  with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
    file.write('review\n"a ""b"", c"\n')
  (tmp_path / "c.jsonl").write_text('{"review": "x\\ty"}\n')
  paths = [tmp_path / name for name in ("a.tsv", "b.csv.gz", "c.jsonl")]
  found = read(paths, trained={"text": "review"})
  assert cells(found) == ["good day", "bad", 'a "b", c', "x\ty"]
  assert cells(found, "id") == ["0", "1", "2", "3"]
  assert found[1].where == f"{paths[0]}, line 3"
  assert found[3].where == f"{paths[2]}, line 1"
  named = read(paths[:1], changes=["text=n", "id=review"])
  assert cells(named, "id") == ["good day", "bad"]
  assert cells(named) == ["1", "2"]


def test_options(tmp_path):
  roles = ("passage", "question", "options")
  path, table = tmp_path / "a.jsonl", tmp_path / "b.tsv"
  row = {"passage": "", "question": None, "options": ["", " ", "c", None]}
  path.write_text(json.dumps(row))
  table.write_text("passage\tquestion\toptions\n\t\t")
  with table.open("a") as file:
    file.write(json.dumps(row["options"]))
  for name in (path, table):
    (found,) = read([name], roles)
    assert found.cells == {
      **{"id": "0", "passage": "", "question": ""},
      "options": ["", " ", "c", ""],
    }
  for other, message in (
    (["a", "b", "c"], "line 1: 'options' must be a list of 4"),
    (["a", 2, "c", "d"], "line 1: 'options' must be text, got 2"),
    ("", "line 1: 'options' must be a list of 4"),
  ):
    path.write_text(json.dumps({**row, "options": other}))
    with pytest.raises(ValueError, match=message):
      read([path], roles)


def test_lines_and_empty_texts(tmp_path):
  for name, content, texts in (
    ("a.txt", "one\ttab\r\ntwo\n", ["one\ttab", "two"]),
    ("b.txt", "\na\n\n", ["", "a", ""]),
    ("c.csv", 'text\n""\na\n" "\n', ["", "a", " "]),
  ):
    (tmp_path / name).write_text(content)
    assert cells(read([tmp_path / name])) == texts
  (tmp_path / "d.txt").write_text('{"text": "a"}\n')
  with pytest.raises(ValueError, match="d.txt has JSON lines"):
    read([tmp_path / "d.txt"])
  # A row without its id could not be identified.
  (tmp_path / "e.tsv").write_text("key\ttext\n\ta\n")
  with pytest.raises(ValueError, match="e.tsv, line 2: 'key' is empty"):
    read([tmp_path / "e.tsv"], changes=["id=key"])


def test_ids_of_the_training_data(tmp_path):
  trained = {"text": "review", "id": "key"}
  (tmp_path / "a.tsv").write_text("key\treview\nk7\ta day\n")
  (tmp_path / "b.txt").write_text("one\n")
  for names, changes, ids in (
    (["a.tsv"], (), ["k7"]),
    (["a.tsv"], ["id="], ["0"]),
    # Lines of text have no ids, so all rows are numbered.
    (["a.tsv", "b.txt"], (), ["0", "1"]),
  ):
    rows = read([tmp_path / x for x in names], ("text",), trained, changes)
    assert cells(rows, "id") == ids


def test_a_row_of_the_command_line():
  def row(texts, *roles):
    return lines_lib.given_row(texts, roles, "x is a toy")

  found = row({"text_b": "", "text_a": "a"}, "text_a", "text_b")
  assert found.cells == {"id": "0", "text_a": "a", "text_b": ""}
  assert found.where == "--text_a 'a'"
  exam = {"passage": "p", "question": "q", "options": list("abcd")}
  assert row(exam, *exam).cells == {"id": "0", **exam}
  for texts, roles, message in (
    ({"text": "a"}, ("text_a", "text_b"), "--text_b, but .* --text .x is a"),
    ({**exam, "options": list("abc")}, (*exam,), "a list of 4 texts: four fl"),
    ({"text": "\udcff"}, ("text",), "lone surrogate"),
  ):
    with pytest.raises(ValueError, match=message):
      row(texts, *roles)


def test_contradictions(tmp_path):
  for path, change, message in (
    ("a.tsv", "label=x", "with a role of text, id"),
    ("a.tsv", "text", "takes role=column"),
    ("a.tsv", "text=", "takes role=column"),
    ("a.tsv", "id", "takes role=column"),
    ("a.txt", "id=x", "a.txt has one text a line, but text, x are needed"),
  ):
    with pytest.raises(ValueError, match=message):
      columns_of([path], changes=[change])
  (tmp_path / "a.tsv").write_text("text\nok\n")
  with pytest.raises(ValueError, match="column 'text' is given twice"):
    read([tmp_path / "a.tsv"], changes=["id=text"])


_THIRD = np.float32(1 / 3)
_ANSWER = {
  "answer": "a\tb\nc",
  "probability": np.float32(0.75),
  "start": np.int32(2),
  "end": np.int32(7),
  "n_best_answers": ["a\tb\nc", "d", ""],
  "n_best_probabilities": np.float32([0.75, 0.25, 0]),
  "n_best_starts": np.int32([2, 9, 0]),
  "n_best_ends": np.int32([7, 10, 0]),
  "null_score_diff": np.float32(-1.5),
}
_MASK = ("position", "tokens", "token_ids", "probabilities")
_MASKS = {
  "tokens": np.array([["sun", "sea"], ["", ""], ["ly", "s"]], object),
  "token_ids": np.int32([[5, 6], [0, 0], [7, 8]]),
  "probabilities": np.float32([[0.5, 0.25], [0, 0], [1, 0]]),
  "mask_positions": np.int32([3, -1, 4]),
}
_FILLED = {
  "prediction": ["sun", "ly"],
  "masks": [
    dict(zip(_MASK, (3, ["sun", "sea"], [5, 6], [0.5, 0.25]))),
    dict(zip(_MASK, (4, ["ly", "s"], [7, 8], [1.0, 0.0]))),
  ],
}


@pytest.mark.parametrize(
  "answer, header, cells, fields",
  [
    (
      {"label": "b c", "probabilities": [_THIRD, 2 * _THIRD]},
      "prediction|a|b c",
      "b c|0.333333343|0.666666687",
      {"probabilities": {"a": 0.333333343, "b c": 0.666666687}},
    ),
    ({"score": np.float32(2.5)}, "prediction", "2.5", {"prediction": 2.5}),
    ({"swapped_probability": 0.5}, "prediction", "0.5", {"prediction": 0.5}),
    (
      {"choice": np.int32(2), "probabilities": [0, 0, 1, 0]},
      "prediction|A|B|C|D",
      "C|0|0|1|0",
      {"prediction": "C", "probabilities": {"A": 0, "B": 0, "C": 1, "D": 0}},
    ),
    (
      _ANSWER,
      "prediction|probability|start|end|null_score_diff",
      "a b c|0.75|2|7|-1.5",
      {
        "prediction": "a\tb\nc",
        "n_best": [
          {"text": "a\tb\nc", "probability": 0.75, "start": 2, "end": 7},
          {"text": "d", "probability": 0.25, "start": 9, "end": 10},
        ],
      },
    ),
    (_MASKS, "prediction|probability", "sun ly|0.5 1", _FILLED),
    (
      {name: np.array([x, x]) for name, x in _MASKS.items()},
      "prediction|layers",
      f"sun ly|{json.dumps([_FILLED, _FILLED])}",
      {"prediction": ["sun", "ly"], "layers": [_FILLED, _FILLED]},
    ),
    (
      {"pooled_output": np.float32([0.5, -0.1])},
      "embedding",
      "0.5 -0.100000001",
      {"embedding": [0.5, -0.100000001]},
    ),
  ],
)
def test_lines(tmp_path, answer, header, cells, fields):
  labels = ("a", "b c")
  table = written(tmp_path / "out", [("x\ty", answer)], labels)
  assert table == f"id|{header}\nx y|{cells}\n".replace("|", "\t")
  answers = [("x\ty", answer), ("1", answer)]
  lines = written(tmp_path / "out.jsonl", answers, labels)
  first, second = (json.loads(line) for line in lines.splitlines())
  assert {**second, "id": "x\ty"} == first == {**first, **fields}
  assert list(first)[:2] == [
    "id",
    "embedding" if "emb" in header else "prediction",
  ]


def written(path, answers, labels=()):
  """Returns the text of a file with the (id, answer) of each row."""
  with lines_lib.writer(str(path)) as write:
    for guid, answer in answers:
      write(guid, answer_fields.fields_of(answer, labels))
  return pathlib.Path(path).read_text()


def test_refused_rows(tmp_path):
  refused = {"error": "too long."}
  answers = [("0", refused), ("1", {"score": 2.5}), ("2", refused)]
  table = written(tmp_path / "out", answers)
  assert table == "id\tprediction\n0\t\n1\t2.5\n2\t\n"
  line = written(tmp_path / "out.JSONL", answers).splitlines()[2]
  expected = {"id": "2", "prediction": None, "error": "too long."}
  assert json.loads(line) == expected


def test_the_first_of_the_n_best_may_be_empty():
  """SQuAD 2.0: there is no answer; the last candidate only pads the batch."""
  answer = {**_ANSWER, "answer": "", "n_best_answers": ["", "d", ""]}
  n_best = answer_fields.fields_of(answer)["n_best"]
  assert [candidate["text"] for candidate in n_best] == ["", "d"]


def test_nothing_half_written(tmp_path, capsys):
  path = tmp_path / "out.tsv"
  path.write_text("before\n")
  with pytest.raises(ZeroDivisionError), lines_lib.writer(str(path)):
    raise ZeroDivisionError
  assert path.read_text() == "before\n" and os.listdir(tmp_path) == ["out.tsv"]
  with lines_lib.writer("-") as write:
    write("ä", {"prediction": 1.0})
  assert capsys.readouterr().out == '{"id": "ä", "prediction": 1.0}\n'
  for where, message in ((tmp_path, "is a folder"), (tmp_path / "a/b", "make")):
    with pytest.raises(OSError, match=message):
      lines_lib.writer(str(where)).__enter__()
