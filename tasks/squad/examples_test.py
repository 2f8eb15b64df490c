"""Tests of reading both versions of SQuAD, and of invalid files."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from tasks.squad import examples

_CONTEXT = "The ferry  left at nine. It came back at nine in the evening."
_FERRY = [
  {"text": "The ferry", "answer_start": 0},
  {"text": "ferry", "answer_start": 4},
]


def article(context, *questions, **fields):
  return {**fields, "paragraphs": [{"context": context, "qas": questions}]}


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


def question(data) -> dict:
  return data[0]["paragraphs"][0]["qas"][0]


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
    with pytest.raises(
      ValueError, match=rf"a.json: question '{name}' has {count} answers"
    ):
      examples.read_examples(keep("a1", name), is_training=True)


@pytest.mark.parametrize(
  "change,message",
  [
    (
      lambda data: answer(data).update(answer_start=40),
      "question 'a1': the answer 'nine' is not in the context at answer_start "
      "40: copy",
    ),
    (lambda data: answer(data).update(text=" "), "has an empty answer"),
    (
      lambda data: answer(data).pop("text"),
      "has no 'data.0.paragraphs.0.qas.0.answers.0.text'",
    ),
    (lambda data: question(data).update(id="a2"), "question 'a2' occurs twice"),
    (
      lambda data: question(data).update(is_impossible=True),
      "is_impossible true and the answer 'nine'",
    ),
    (
      lambda data: data[1]["paragraphs"][0].update(context=" \n"),
      "article 1, paragraph 0: the context is empty",
    ),
    (lambda data: data.clear(), "has no questions"),
  ],
)
def test_invalid_questions(tmp_path, change, message):
  path = write(tmp_path / "wrong.json", changed(change))
  with pytest.raises(ValueError, match="wrong.json.*" + message) as raised:
    examples.read_examples(path)
  assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
  "name,content,message",
  [
    ("a.json", b"", "is empty"),
    ("a.json", b'{"data": [\n\n{]}', "is not valid JSON .*line 3"),
    ("a.json", b'{"data": "\n\xff"}', "line 2 is not UTF-8"),
    ("a.json", b'{"version": "1.1"}', "has no 'data'"),
    ("a.json.gz", gzip.compress(b"{}" * 99)[:-9], "is not a complete gzip"),
  ],
  # Gzip data contains the time, so it is not used as a test id.
  ids="empty json utf8 no_data cut".split(),
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
  with pytest.raises(ValueError, match="end_n_top is 0, but must be at least"):
    examples.Recipe(*row, end_n_top=0)
