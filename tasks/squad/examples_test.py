"""Tests of reading both versions of SQuAD, and of invalid files."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from tasks.squad import decoding, examples

_CONTEXT = "The ferry  left at nine. It came back at nine in the evening."
_FILE = {
  "version": "1.1",
  "data": [
    {
      "title": "Ferries",
      "paragraphs": [
        {
          "context": _CONTEXT,
          "qas": [
            {
              "id": "a1",
              "question": "When did it come back?",
              "answers": [{"text": "nine", "answer_start": 41}],
            },
            {
              "id": "a2",
              "question": "What left?",
              "answers": [
                {"text": "The ferry", "answer_start": 0},
                {"text": "ferry", "answer_start": 4},
              ],
            },
          ],
        }
      ],
    },
    {
      "paragraphs": [
        {
          "context": "Tea.",
          "qas": [
            {
              "id": "b1",
              "question": "Coffee?",
              "is_impossible": True,
              "answers": [],
              "plausible_answers": [{"text": "Tea", "answer_start": 0}],
            },
            {"id": "b2", "question": "What?"},
          ],
        }
      ],
    },
  ],
}


def write(path, content) -> str:
  text = content if isinstance(content, bytes) else json.dumps(content).encode()
  path.write_bytes(text)
  return str(path)


def test_reads_every_question_in_order(tmp_path):
  found = examples.read_examples(write(tmp_path / "a.json", _FILE))
  assert [example.question_id for example in found] == ["a1", "a2", "b1", "b2"]
  assert found[0] == examples.SquadExample(
    "a1", "When did it come back?", _CONTEXT, (("nine", 41),), False
  )
  assert found[1].answers == (("The ferry", 0), ("ferry", 4))
  assert found[2].is_impossible and found[2].answers == ()
  assert not found[3].is_impossible and found[3].answers == ()
  # Questions of a paragraph share one string object.
  assert found[0].context is found[1].context


def test_reads_gzip_and_a_byte_order_mark(tmp_path):
  plain = examples.read_examples(write(tmp_path / "a.json", _FILE))
  content = b"\xef\xbb\xbf" + json.dumps(_FILE).encode()
  path = write(tmp_path / "a.json.gz", gzip.compress(content))
  assert examples.read_examples(path) == plain


def changed(change) -> dict:
  content = copy.deepcopy(_FILE)
  change(content["data"])
  return content


def question(data) -> dict:
  return data[0]["paragraphs"][0]["qas"][0]


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
      lambda data: question(data)["answers"][0].update(answer_start=40),
      r"article 0 \('Ferries'\), paragraph 0, question 0 \(id 'a1'\): the "
      "answer 'nine' is not in the context at answer_start 40: it is at 19;",
    ),
    (
      lambda data: question(data)["answers"][0].update(answer_start=-20),
      "answer_start -20: it is at 19;",
    ),
    (
      lambda data: question(data)["answers"][0].update(text="ferry left"),
      "the context has other white space",
    ),
    (
      lambda data: question(data)["answers"][0].update(text="boat"),
      "it is nowhere in the context",
    ),
    (
      lambda data: question(data)["answers"][0].update(text=" "),
      "has an empty answer",
    ),
    (
      lambda data: question(data)["answers"][0].update(answer_start="41"),
      "'answer_start' is '41', but must be an integer",
    ),
    (
      lambda data: question(data)["answers"][0].update(answer_start=True),
      "'answer_start' is True, but",
    ),
    (
      lambda data: question(data)["answers"][0].pop("text"),
      "lacks the field 'text'; it has 'answer_start'",
    ),
    (
      lambda data: question(data).update(answers={}),
      "'answers' is {}, but must be a list",
    ),
    (
      lambda data: question(data).update(id="a2"),
      "two questions have the id 'a2'",
    ),
    (
      lambda data: question(data).update(id=7),
      "question 0: 'id' is 7, but must be text",
    ),
    (lambda data: question(data).pop("id"), "lacks the field 'id'"),
    (
      lambda data: question(data).pop("question"),
      r"\(id 'a1'\) lacks the field 'question'",
    ),
    (
      lambda data: question(data).update(is_impossible=True),
      "is_impossible true and the answer 'nine'",
    ),
    (
      lambda data: question(data).update(is_impossible="no"),
      "'no', but must be true or false",
    ),
    (
      lambda data: data[1]["paragraphs"][0].update(context=" \n"),
      "article 1, paragraph 0: the context is empty",
    ),
    (
      lambda data: data[1]["paragraphs"][0].pop("qas"),
      "article 1, paragraph 0 lacks the field 'qas'; it has 'context'",
    ),
    (
      lambda data: data[1].update(paragraphs=[3]),
      "article 1, paragraph 0 is not a JSON object",
    ),
    (lambda data: data.append([]), "article 2 is not a JSON object"),
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
    ("a.json", b" \n", "is empty"),
    ("a.json.gz", gzip.compress(b""), "is empty"),
    ("a.json", b'{"data": [\n\n{]}', "line 3, is not JSON"),
    ("a.json", b'{"data": "\n\xff"}', "line 2, is not UTF-8"),
    ("a.json", b"[" * 100000, "nested too deep"),
    ("a.json", b"[]", "is not a JSON object"),
    ("a.json", b'{"version": "1.1"}', "lacks the field 'data'; it has 'vers"),
    ("a.json", b"{}", "lacks the field 'data'; it has none"),
    ("a.json.gz", b"{}", "is not a complete gzip file"),
    ("a.json.gz", gzip.compress(b"{}" * 99)[:-9], "is not a complete gzip"),
  ],
  # Gzip data contains the time, so it is not used as a test id.
  ids="empty blank gz_of_nothing json utf8 deep list no_data {} gz cut".split(),
)
def test_invalid_files(tmp_path, name, content, message):
  path = write(tmp_path / name, content)
  with pytest.raises(ValueError, match=name + ".*" + message):
    examples.read_examples(path)


def test_missing_file(tmp_path):
  with pytest.raises(FileNotFoundError):
    examples.read_examples(tmp_path / "none.json")


@pytest.mark.parametrize(
  "name, row",
  [
    # Learning rate, batch, dropouts, steps, warm-up, length.
    ("squad_v1", (5e-5, 48, 0.0, 0.1, 3649, 365, 384)),
    ("squad_v2", (3e-5, 48, 0.0, 0.1, 8144, 814, 512)),
  ],
)
def test_table_14(name, row):
  recipe = examples.RECIPES[name]
  assert row == (
    recipe.learning_rate,
    recipe.train_batch_size,
    recipe.albert_dropout,
    recipe.classifier_dropout,
    recipe.num_train_steps,
    recipe.num_warmup_steps,
    recipe.max_seq_length,
  )


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2"])
def test_windows_and_decoding(name):
  recipe = examples.RECIPES[name]
  assert (recipe.doc_stride, recipe.max_query_length) == (128, 64)
  assert (recipe.start_n_top, recipe.end_n_top) == (5, 5)
  assert recipe.n_best_size == decoding.N_BEST_SIZE == 20
  assert recipe.max_answer_length == decoding.MAX_ANSWER_LENGTH == 30


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
