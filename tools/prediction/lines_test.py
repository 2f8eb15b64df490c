"""Tests of rows of all forms of input, and of lines of predictions."""

from __future__ import annotations

import gzip
import json
import os
import pathlib

import numpy as np
import pytest

from official_albert.tasks import answer_fields
from official_albert.tools.prediction import input as prediction_input
from official_albert.tools.prediction import output


def source(paths, roles=("text",), trained=None, changes=()):
  return prediction_input.Source(
    [str(path) for path in paths], roles, trained or {}, changes
  )


def texts_of(rows):
  return [row.cells["text"] for row in rows.rows()]


def test_several_files_of_all_kinds(tmp_path):
  (tmp_path / "a.tsv").write_text("n\treview\n1\tgood day\n2\tbad\n")
  with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
    file.write('review\n"a ""b"", c"\n')
  (tmp_path / "c.jsonl").write_text('{"review": "x\\ty"}\n')
  paths = [tmp_path / name for name in ("a.tsv", "b.csv.gz", "c.jsonl")]
  both = source(paths, trained={"text": "review"})
  assert both.check() == 4
  assert texts_of(both) == ["good day", "bad", 'a "b", c', "x\ty"]
  found = list(both.rows())
  assert [row.cells["id"] for row in found] == ["0", "1", "2", "3"]
  assert found[1].where == f"{paths[0]}, line 3"
  assert found[3].where == f"{paths[2]}, line 1"
  named = source(paths[:1], changes=["text=n", "id=review"])
  assert [row.cells["id"] for row in named.rows()] == ["good day", "bad"]
  assert texts_of(named) == ["1", "2"]


def test_options(tmp_path):
  roles = ("passage", "question", "options")
  path, table = tmp_path / "a.jsonl", tmp_path / "b.tsv"
  row = {"passage": "", "question": None, "options": ["", " ", "c", None]}
  path.write_text(json.dumps(row))
  table.write_text("passage\tquestion\toptions\n\t\t")
  with table.open("a") as file:
    file.write(json.dumps(row["options"]))
  for name in (path, table):
    (found,) = source([name], roles).rows()
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
      source([path], roles).check()


def test_lines_and_empty_texts(tmp_path):
  for name, content, texts in (
    ("a.txt", "one\ttab\r\ntwo\n", ["one\ttab", "two"]),
    ("b.txt", "\na\n\n", ["", "a", ""]),
    ("c.csv", 'text\n""\na\n" "\n', ["", "a", " "]),
  ):
    (tmp_path / name).write_text(content)
    assert texts_of(source([tmp_path / name])) == texts
  (tmp_path / "d.txt").write_text('{"text": "a"}\n')
  with pytest.raises(ValueError, match="d.txt has JSON lines"):
    source([tmp_path / "d.txt"]).check()
  # A row without its id could not be identified.
  (tmp_path / "e.tsv").write_text("key\ttext\n\ta\n")
  with pytest.raises(ValueError, match="e.tsv, line 2: 'key' is empty"):
    source([tmp_path / "e.tsv"], changes=["id=key"]).check()


def test_ids_of_the_training_data(tmp_path):
  trained = {"text": "review", "id": "key"}
  (tmp_path / "a.tsv").write_text("key\treview\nk7\ta day\n")
  (tmp_path / "b.txt").write_text("one\n")
  for names, changes, ids, repeated in (
    (["a.tsv"], (), ["k7"], ()),
    (["a.tsv"], ["id="], ["0"], ("text",)),
    # Lines of text have no ids, so all rows are numbered.
    (["a.tsv", "b.txt"], (), ["0", "1"], ("text",)),
  ):
    rows = source([tmp_path / x for x in names], ("text",), trained, changes)
    assert [row.cells["id"] for row in rows.rows()] == ids
    assert rows.repeated == repeated
  exam = source([tmp_path / "c.tsv"], ("passage", "question", "options"))
  assert exam.repeated == ("question", "options")


def test_rows_of_the_command_line():
  def rows(texts, *roles):
    return prediction_input.given_rows(texts, roles, "x is a toy")

  found = rows({"text_b": ["c", ""], "text_a": ["a", "b"]}, "text_a", "text_b")
  assert [row.cells for row in found] == [
    {"id": "0", "text_a": "a", "text_b": "c"},
    {"id": "1", "text_a": "b", "text_b": ""},
  ]
  assert found[1].where == "--text_a 'b'"
  exam = {"passage": ["p", "q"], "options": list("abcdefgh")}
  options = [row.cells["options"] for row in rows(exam, *exam)]
  assert options == [list("abcd"), list("efgh")]
  for texts, roles, message in (
    ({"text": ["a"]}, ("text_a", "text_b"), "--text_b, but .* --text .x is a"),
    ({"text_a": ["a", "b"], "text_b": ["c"]}, ("text_a", "text_b"), "1 --text"),
    ({**exam, "options": list("abcd")}, (*exam,), "4 --options: .* four --op"),
    ({**exam, "options": list("abcdefg")}, (*exam,), "must be a list of 4"),
    ({"text": ["\udcff"]}, ("text",), "lone surrogate"),
  ):
    with pytest.raises(ValueError, match=message):
      rows(texts, *roles)


def test_contradictions(tmp_path):
  for paths, changes, message in (
    (["a.tsv"], ["label=x"], "with a role of text, id"),
    (["a.tsv"], ["text"], "takes role=column"),
    (["a.tsv"], ["text="], "takes role=column"),
    (["a.tsv"], ["id"], "takes role=column"),
    (["a.txt"], ["id=x"], "a.txt has one text a line, but text, x are needed"),
  ):
    with pytest.raises(ValueError, match=message):
      source(paths, changes=changes)
  (tmp_path / "a.tsv").write_text("text\nok\n")
  with pytest.raises(ValueError, match="column 'text' is given twice"):
    source([tmp_path / "a.tsv"], changes=["id=text"]).check()


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
    (
      _MASKS,
      "prediction|probability",
      "sun ly|0.5 1",
      {
        "prediction": ["sun", "ly"],
        "masks": [
          dict(zip(_MASK, (3, ["sun", "sea"], [5, 6], [0.5, 0.25]))),
          dict(zip(_MASK, (4, ["ly", "s"], [7, 8], [1, 0]))),
        ],
      },
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
  """Returns the text of a file with (id, answer, texts) of each row."""
  with output.writer(str(path)) as write:
    for guid, answer, *texts in answers:
      write(guid, answer_fields.fields_of(answer, labels), *(texts or [{}]))
  return pathlib.Path(path).read_text()


def test_texts_of_rows_without_ids(tmp_path):
  path, options = tmp_path / "out", ["a", 'b "c"', "", "d\te"]
  choice = {"choice": np.int32(1), "probabilities": [0, 1, 0, 0]}
  answers = [("0", choice, {"question": "a\tb\nc", "options": options})]
  header, row = written(path, answers).splitlines()
  assert header == "id\tprediction\tA\tB\tC\tD\tinput_question\tinput_options"
  cells = row.split("\t")
  assert (cells[:2], cells[6]) == (["0", "B"], "a b c")
  assert json.loads(cells[7]) == options
  line = json.loads(written(f"{path}.jsonl", answers))
  assert list(line)[-2:] == ["input_question", "input_options"]
  assert line["input_question"] == "a\tb\nc"
  assert line["input_options"] == options
  # A label may have the name of a role.
  labels, chances = ("text", "x"), {"label": "x", "probabilities": [0.25, 0.75]}
  answers = [("0", chances, {"text": "day"})]
  assert written(path, answers, labels) == (
    "id\tprediction\ttext\tx\tinput_text\n0\tx\t0.25\t0.75\tday\n"
  )


def test_refused_rows(tmp_path):
  refused = {"error": "too long."}
  answers = [
    *(("0", refused, {"text": "a"}), ("1", {"score": 2.5}, {"text": "b"})),
    ("2", refused, {"text": "c"}),
  ]
  assert written(tmp_path / "out", answers) == (
    "id\tprediction\tinput_text\n0\t\ta\n1\t2.5\tb\n2\t\tc\n"
  )
  lines = written(tmp_path / "out.jsonl", answers).splitlines()
  assert [json.loads(line) for line in lines[1:]] == [
    {"id": "1", "prediction": 2.5, "input_text": "b"},
    {"id": "2", "prediction": None, "error": "too long.", "input_text": "c"},
  ]


def test_the_first_of_the_n_best_may_be_empty():
  """SQuAD 2.0: there is no answer; the last candidate only pads the batch."""
  answer = {**_ANSWER, "answer": "", "n_best_answers": ["", "d", ""]}
  n_best = answer_fields.fields_of(answer)["n_best"]
  assert [candidate["text"] for candidate in n_best] == ["", "d"]


def test_nothing_half_written(tmp_path, capsys):
  path = tmp_path / "out.tsv"
  path.write_text("before\n")
  with pytest.raises(ZeroDivisionError), output.writer(str(path)):
    raise ZeroDivisionError
  assert path.read_text() == "before\n" and os.listdir(tmp_path) == ["out.tsv"]
  with output.writer("-") as write:
    write("ä", {"prediction": 1.0}, {})
  assert capsys.readouterr().out == '{"id": "ä", "prediction": 1.0}\n'
  for where, message in ((tmp_path, "is a folder"), (tmp_path / "a/b", "make")):
    with pytest.raises(OSError, match=message):
      output.writer(str(where)).__enter__()
