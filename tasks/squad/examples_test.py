"""Tests of reading both versions of SQuAD, invalid files, and windows."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from official_albert import tokenization
from official_albert.tasks import common
from official_albert.tasks.squad import examples
from official_albert.testing import toy_models

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
  by_number = json.dumps(_FILE).replace('"b2"', "7").encode()  # GermanQuAD.
  again = examples.read_examples(write(tmp_path / "c.json", by_number))
  assert [x.question_id for x in again] == ["a1", "a2", "b1", "7"]
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


@pytest.mark.parametrize(
  "find, change, message",
  [
    (answer, {"answer_start": 40}, "'a1' .* answer_start 40 of .*, 'nine'"),
    (answer, {"text": " "}, "'a1' has an answer without"),
    (answer, {"answer_start": True}, "'a1' has an answer"),
    (question, {"answers": {}}, "'a1' has an answer without"),
    (question, {"is_impossible": "no"}, "'a1' has an \"is_"),
    (question, {"id": 7.0}, 'article 0, paragraph 0, question 0 has .*"id", b'),
    (question, {"id": "a2"}, "question 'a2' occurs twice"),
    (question, {"question": " "}, "'a1' has no text as \"question"),
    (question, {"is_impossible": True}, "'a1' has is_impossible and"),
    (paragraph, {"context": " \n"}, "'a1' has no text as \"context"),
  ],
)
def test_invalid_questions(tmp_path, find, change, message):
  content = changed(lambda data: find(data).update(change))
  path = write(tmp_path / "wrong.json", content)
  with pytest.raises(ValueError, match=f"^{path}, .*{message}") as raised:
    examples.read_examples(path)
  assert "--skip_invalid" in str(raised.value)
  assert "\n" not in str(raised.value)
  invalid = common.InvalidRows(may_skip=True)
  found = examples.read_examples(path, invalid=invalid)
  assert {e.question_id for e in found} >= {"b1", "b2"}
  assert len(found) + invalid.count == 4 and "wrong.json, " in invalid.first


def test_answers_that_a_version_needs(tmp_path):
  path = write(tmp_path / "a.json", _FILE)
  with pytest.raises(ValueError, match="'b2' has 0 answers, but needs one"):
    examples.read_examples(path, needs_answers=True)
  with pytest.raises(ValueError, match="'a2' has 2 answers, but needs exactly"):
    examples.read_examples(path, is_training=True)
  # As in the official program, no answers mean that there is none.
  content = changed(lambda data: data[1]["paragraphs"][0]["qas"].pop())
  question(content["data"]).update(answers=[])
  path = write(tmp_path / "a.json", content)
  assert len(examples.read_examples(path, needs_answers=True)) == 3
  with pytest.raises(ValueError, match="'b1' has 0 answers.*--task=squad_v2"):
    examples.read_examples(path, may_be_impossible=False)


_FLAT = {"id": "1", "title": "T", "context": "On a hot day.", "question": "?"}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_of_hugging_face(tmp_path, kind):
  """As `datasets` has squad_v2, where empty answers say that there is none."""
  table = [
    {**_FLAT, "answers": {"text": ["hot day"], "answer_start": [5]}},
    {**_FLAT, "id": "2", "answers": {"text": [], "answer_start": []}},
  ]

  def save(name):
    path = tmp_path / f"{name}.{kind}"
    if kind == "parquet":
      pyarrow = pytest.importorskip("pyarrow")
      parquet = pytest.importorskip("pyarrow.parquet")
      parquet.write_table(pyarrow.Table.from_pylist(table), path)
    else:
      path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return str(path)

  context, question = _FLAT["context"], _FLAT["question"]
  expected = [
    examples.SquadExample("1", question, context, (("hot day", 5),)),
    examples.SquadExample("2", question, context, (), True),
  ]
  path = save("a")
  assert examples.read_examples(path, True) == expected
  with pytest.raises(ValueError, match="question '2' has 0 answers, but"):
    examples.read_examples(path, True, may_be_impossible=False)
  table[0]["answers"]["answer_start"] = [4]
  with pytest.raises(ValueError, match="'1' has an answer that is not at its"):
    examples.read_examples(save("b"))
  table[0]["answers"]["answer_start"] = []
  with pytest.raises(ValueError, match="'1' has an answer without"):
    examples.read_examples(save("c"))
  for row in table:
    del row["answers"]
  assert [x.answers for x in examples.read_examples(save("d"))] == [(), ()]
  table[1]["question"] = "\ud800?"
  if kind == "jsonl":  # Parquet has no such text.
    with pytest.raises(ValueError, match="'2': 'question' contains the lone"):
      examples.read_examples(save("f"))
  table[1]["question"] = "?"
  del table[0]["context"]
  with pytest.raises(ValueError, match="'context'"):
    examples.read_examples(save("e"))


_Q = b'{"data": [{"paragraphs": [{"context": "Tea.", "qas": [%s]}]}]}'


@pytest.mark.parametrize(
  "name,content,message",
  [
    ("a.json", b'{"data": [\n\n{]}', "is not valid JSON .*line 3"),
    ("a.json", b'{"version": "1.1"}', "has no 'data'.*paragraphs.*qas"),
    ("a.json", b'{"data": []}', "has no questions"),
    ("a.json", _Q % b"7", r"qas.0' is 7, but must be .*object"),
    ("a.json.gz", gzip.compress(b"{}" * 99)[:-9], "is not a complete"),
  ],
  # Gzip data contains the time, so it is not used as a test id.
  ids="json no_data no_questions question cut".split(),
)
def test_invalid_files(tmp_path, name, content, message):
  path = write(tmp_path / name, content)
  with pytest.raises(ValueError, match=name + ".*" + message):
    examples.read_examples(path)


_WORDS = "a b c d e f g h i j k l m n o p q".split()


@pytest.fixture
def tokenizer(tmp_path):
  return toy_models.wordpiece(tmp_path, *_WORDS, "##x", "$")


def windows_of(tokenizer, context, answers, *lengths, question="q p o"):
  one = examples.SquadExample("id7", question, context, answers)
  return list(examples.make_windows([one], tokenizer, *lengths))


def positions(window):
  return window.start_position, window.end_position


def test_layout(tokenizer):
  (window,) = windows_of(tokenizer, "A b  Cx.", [("b  C", 2)], 13)
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  query, context = tokenizer.encode("q p o"), tokenizer.encode("a b cx.")
  assert len(query) == 3 and len(context) == 5
  assert window == examples.Window(
    question_id="id7",
    context=tokenization.EncodedText(context, [0, 2, 5, 6, 7], [1, 3, 6, 7, 8]),
    input_ids=[cls, *query, sep, *context, sep],
    context_start=5,
    first_token=0,
    start_position=6,
    end_position=7,
  )
  assert window.segment_ids() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_overlapping_windows(tokenizer):
  # 17 tokens in windows of 8.
  found = windows_of(tokenizer, " ".join(_WORDS), [("h i", 14)], 14, 3)
  assert [window.first_token for window in found] == [0, 3, 6, 9]
  assert [window.length for window in found] == [8, 8, 8, 8]
  assert len({id(window.context) for window in found}) == 1
  # "h i", tokens 7 and 8, are not both in the first or in the last window.
  assert [*map(positions, found)] == [(0, 0), (9, 10), (6, 7), (0, 0)]


@pytest.mark.parametrize("space,stride", [(8, 3), (8, 8), (5, 70), (1, 1)])
def test_windows_cover_every_token(tokenizer, space, stride):
  for count in (1, 7, 8, 9, 23, 100):
    text = " ".join(["a"] * count)
    found = windows_of(tokenizer, text, (), space + 4, stride, question="q")
    parts = [(w.first_token, w.first_token + w.length) for w in found]
    assert parts[0][0] == 0 and parts[-1][1] == count
    assert all(0 < end - begin <= space for begin, end in parts)
    for (begin, end), (next_begin, _) in zip(parts, parts[1:]):
      assert next_begin == begin + min(space, stride) <= end < count


def test_answer_tokens():
  # Tokens: "a", a space, and "½" in two parts.
  context = tokenization.EncodedText([5, 6, 7, 8], [0, 4, 4, 4], [1, 4, 5, 5])
  for text, start, tokens in (
    ("a", 0, (0, 0)),
    ("½", 4, (2, 3)),
    ("a   ½", 0, (0, 3)),
    (" ½ ", 3, (2, 3)),
    # Between tokens and after the last one, the nearest token.
    ("\u200b", 2, (1, 1)),
    ("\u200b", 9, (3, 3)),
  ):
    assert examples.answer_tokens(context, text, start) == tokens


def test_questions_without_an_answer(tokenizer):
  (window,) = windows_of(tokenizer, "a b", (), 16)
  assert positions(window) == (0, 0)
  # Of several answers the first counts.
  several = ("b c", 2), ("b", 2)
  (window,) = windows_of(tokenizer, "a b c", several, 16)
  assert positions(window) == (6, 7)
  # A context without tokens.
  (window,) = windows_of(tokenizer, "\u200b", [("\u200b", 0)], 9)
  assert window.input_ids[-2:] == [tokenizer.sep_id] * 2
  assert window.length == 0 and positions(window) == (0, 0)


def test_long_question(tokenizer):
  asked = "a b c d e f g"
  (window,) = windows_of(tokenizer, "a", (), 8, 128, 4, question=asked)
  assert window.input_ids == [2, 5, 6, 7, 8, 3, 5, 3]
  with pytest.raises(ValueError, match="max_seq_length 7 leaves no .* 4 token"):
    windows_of(tokenizer, "a", (), 7, 128, 4, question=asked)
