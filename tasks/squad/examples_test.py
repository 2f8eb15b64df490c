"""Tests of reading both versions of SQuAD, and of invalid files."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from official_albert.tasks.squad import examples

_CONTEXT = "The ferry  left at nine. It came back at nine in the evening."
_FERRY = [
  {"text": "The ferry", "answer_start": 0},
  {"text": "ferry", "answer_start": 4},
]


def article(context, *questions, **fields):
  return {**fields, "paragraphs": [{"context": context, "qas": [*questions]}]}


_FILE = {
  "version": "1.1",
  "data": [
    article(
      _CONTEXT,
      {
        "id": "a1",
        "question": "When did it come back?",
        "answers": [{"text": "nine", "answer_start": 41}],
      },
      {"id": "a2", "question": "What left?", "answers": _FERRY},
      title="Ferries",
    ),
    article(
      "Tea.",
      {
        "id": "b1",
        "question": "Coffee?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": [{"text": "Tea", "answer_start": 0}],
      },
      {"id": "b2", "question": "What?"},
    ),
  ],
}


def write(path, content) -> str:
  text = content if isinstance(content, bytes) else json.dumps(content).encode()
  path.write_bytes(text)
  return str(path)


def test_reads_every_question_in_order(tmp_path):
  found = examples.read_examples(write(tmp_path / "a.json", _FILE))
  assert found == [
    examples.SquadExample(
      "a1", "When did it come back?", _CONTEXT, (("nine", 41),), False
    ),
    examples.SquadExample(
      "a2", "What left?", _CONTEXT, (("The ferry", 0), ("ferry", 4)), False
    ),
    examples.SquadExample("b1", "Coffee?", "Tea.", (), True),
    examples.SquadExample("b2", "What?", "Tea.", (), False),
  ]
  # Questions of a paragraph share one string object.
  assert found[0].context is found[1].context
  content = b"\xef\xbb\xbf" + json.dumps(_FILE).encode()
  path = write(tmp_path / "a.json.gz", gzip.compress(content))
  assert examples.read_examples(path) == found


def changed(change) -> dict:
  content = copy.deepcopy(_FILE)
  change(content["data"])
  return content


def paragraph(data) -> dict:
  return data[0]["paragraphs"][0]


def question(data) -> dict:
  return paragraph(data)["qas"][0]


def answer(data) -> dict:
  return question(data)["answers"][0]


def test_training_questions(tmp_path):
  def keep(*names):
    def change(data):
      for article in data:
        for paragraph in article["paragraphs"]:
          paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in names]

    return write(tmp_path / "a.json", changed(change))

  assert len(examples.read_examples(keep("a1", "b1"), is_training=True)) == 2
  for name, count in (("a2", 2), ("b2", 0)):
    with pytest.raises(ValueError, match=f"question '{name}' has {count} answ"):
      path = keep("a1", name)
      if name == "b2":  # Without a list, nothing is known about answers.
        content = json.loads(open(path, encoding="utf-8").read())
        content["data"][1]["paragraphs"][0]["qas"][0]["answers"] = []
        write(tmp_path / "a.json", content)
      examples.read_examples(path, is_training=True)


@pytest.mark.parametrize(
  "find, change, message",
  [
    (
      answer,
      {"answer_start": 40},
      "answer 'nine', .*at answer_start 40 .* at 41",
    ),
    (answer, {"text": "ten"}, "nor elsewhere"),
    (answer, {"text": " "}, "'a1' has an empty answer"),
    (answer, {"text": None}, "'a1' has an answer without"),
    (answer, {"answer_start": True}, "'a1' has an answer"),
    (question, {"answers": {}}, "'a1' has an answer without"),
    (question, {"answers": 3}, "'a1' has an answer without"),
    (question, {"is_impossible": "no"}, "'a1' has an \"is_"),
    (question, {"id": 7}, 'article 0, paragraph 0, question 0 has 7 as "id"'),
    (question, {"id": None}, 'paragraph 0, question 0 has no text in "id"'),
    (question, {"id": "a2"}, "question 'a2' occurs twice"),
    (question, {"question": " "}, "'a1' has no text in"),
    (question, {"is_impossible": True}, "'a1' has is_impossible true and"),
    (paragraph, {"context": " \n"}, '2 of 4 questions: .* no text in "context'),
  ],
)
def test_invalid_questions(tmp_path, find, change, message):
  content = changed(lambda data: find(data).update(change))
  path = write(tmp_path / "wrong.json", content)
  with pytest.raises(ValueError, match=message) as raised:
    examples.read_examples(path)
  assert "wrong.json has faults in " in str(raised.value)
  assert "--skip_invalid_questions" in str(raised.value)
  assert "\n" not in str(raised.value)
  notes = []
  found = examples.read_examples(path, skip_invalid=True, note=notes.append)
  assert {e.question_id for e in found} >= {"b1", "b2"} and len(found) < 4
  assert len(notes) == 1 and "left out" in notes[0]


def test_all_faults_are_in_one_message(tmp_path):
  def change(data):
    answer(data).update(answer_start=0)
    for fields in ({"id": ""}, {"id": "x"}, {"id": "y"}):
      data[1]["paragraphs"][0]["qas"].append({"question": "?", **fields})

  path = write(tmp_path / "a.json", changed(change))
  arguments = dict(is_training=True, skip_invalid=True)
  with pytest.raises(ValueError) as raised:
    examples.read_examples(path, is_training=True)
  # Of a2, there are two answers, and of b2, x and y none.
  assert "has faults in 6 of 7 questions" in str(raised.value)
  assert "; and 3 more" in str(raised.value)
  notes = []
  found = examples.read_examples(path, **arguments, note=notes.append)
  assert [e.question_id for e in found] == ["b1"]
  assert "left out 6 of 7" in notes[0]
  # Nothing is left.
  with pytest.raises(ValueError, match="No question is valid") as raised:
    examples.read_examples(path, **arguments, may_be_impossible=False)
  assert "in 7 of 7" in str(raised.value)


def test_answers_that_a_version_needs(tmp_path):
  path = write(tmp_path / "a.json", _FILE)
  with pytest.raises(ValueError, match="'b2' has neither"):
    examples.read_examples(path, needs_answers=True)
  content = changed(lambda data: data[1]["paragraphs"][0]["qas"].pop())
  path = write(tmp_path / "a.json", content)
  assert len(examples.read_examples(path, needs_answers=True)) == 3
  with pytest.raises(ValueError, match="'b1' has no answer.*--task=squad_v2"):
    examples.read_examples(path, may_be_impossible=False)
  # As in the official program, no answers mean that there is none.
  question(content["data"]).update(answers=[])
  path = write(tmp_path / "a.json", content)
  assert len(examples.read_examples(path, needs_answers=True)) == 3


_Q = b'{"data": [{"paragraphs": [{"context": "Tea.", "qas": [%s]}]}]}'


@pytest.mark.parametrize(
  "name,content,message",
  [
    ("a.json", b"", "is empty"),
    ("a.json", b'{"data": [\n\n{]}', "is not valid JSON .*line 3"),
    ("a.json", b'{"data": "\n\xff"}', "line 2 is not UTF-8"),
    ("a.json", b'{"version": "1.1"}', "has no 'data'.*paragraphs.*qas"),
    ("a.json", b'{"data": []}', "has no questions"),
    ("a.json", b'{"data": []}\n{}', "is not valid JSON .*trailing.*qas"),
    ("a.json", b"[1]", "must be an object: SQuAD's format"),
    ("a.json", _Q % b"7", r"qas.0' is 7, but must be .*object"),
    ("a.json.gz", gzip.compress(b"{}" * 99)[:-9], "is not a complete gzip"),
  ],
  # Gzip data contains the time, so it is not used as a test id.
  ids="empty json utf8 no_data no_questions lines list question cut".split(),
)
def test_invalid_files(tmp_path, name, content, message):
  path = write(tmp_path / name, content)
  with pytest.raises(ValueError, match=name + ".*" + message):
    examples.read_examples(path)


@pytest.mark.parametrize(
  "name, row",
  [
    # Learning rate, batch, steps, warm-up, dropouts, length.
    ("squad_v1", (5e-5, 48, 3649, 365, 0.0, 0.1, 384)),
    ("squad_v2", (3e-5, 48, 8144, 814, 0.0, 0.1, 512)),
  ],
)
def test_recipes(name, row):
  """Table 14 of the paper, windows and decoding as in the original."""
  recipe = examples.RECIPES[name]
  assert recipe == examples.Recipe(
    *row,
    doc_stride=128,
    max_query_length=64,
    n_best_size=20,
    max_answer_length=30,
    start_n_top=5,
    end_n_top=5,
  )
  with pytest.raises(ValueError, match="end_n_top is 0, but must be from 1"):
    examples.Recipe(*row, end_n_top=0)
