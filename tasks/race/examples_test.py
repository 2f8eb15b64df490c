"""Tests of reading questions, of what is refused, and of the sequences."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tasks.race import examples as examples_lib

PASSAGE = {
  "id": "high7.txt",
  "article": "a b c d e f g h",
  "questions": ["who is _ ?", "and why"],
  "options": [["p", "q", "r", "s"], ["t u", "v", "w", "x"]],
  "answers": ["D", "A"],
}


def write(folder, passage, level="high", name="7.txt", split="dev"):
  path = folder / split / level / name
  path.parent.mkdir(parents=True, exist_ok=True)
  text = passage if isinstance(passage, str) else json.dumps(passage)
  path.write_text(text, encoding="utf-8")
  return str(path)


def read(folder, **kwargs):
  return examples_lib.read_examples(str(folder), "dev", **kwargs)


class Words:
  """A tokenizer: each word has an id, and calls are counted."""

  kind = "sentencepiece"
  lower_case = True
  cls_id, sep_id = 2, 3

  def __init__(self):
    self.words = ["<pad>", "<unk>", "[CLS]", "[SEP]"]
    self.encoded = []

  def encode(self, text):
    return self.encode_batch([text])[0]

  def encode_batch(self, texts):
    self.encoded += texts
    for word in " ".join(texts).split():
      if word not in self.words:
        self.words.append(word)
    return [[self.words.index(w) for w in text.split()] for text in texts]

  def text(self, ids):
    return " ".join(self.words[i] for i in ids)


def test_each_question_is_an_example_with_an_id_of_its_own(tmp_path):
  write(tmp_path, PASSAGE)
  first, second = read(tmp_path, needs_labels=True)
  assert first == examples_lib.RaceExample(
    example_id="high7.txt#0",
    article="a b c d e f g h",
    question="who is _ ?",
    options=("p", "q", "r", "s"),
    label=3,
    level="high",
  )
  assert (second.example_id, second.label) == ("high7.txt#1", 0)


def test_prediction_needs_no_answers(tmp_path):
  path = write(tmp_path, {**PASSAGE, "answers": []})
  assert [example.label for example in read(tmp_path)] == [None, None]
  with pytest.raises(ValueError, match=f"{path}: .* 2 questions, but 0 answ"):
    read(tmp_path, needs_labels=True)
  without = {k: v for k, v in PASSAGE.items() if k != "answers"}
  write(tmp_path, without)
  assert [example.label for example in read(tmp_path)] == [None, None]
  with pytest.raises(ValueError, match=f"{path}: the passage has no answers"):
    read(tmp_path, needs_labels=True)


def test_a_passage_without_an_id_is_named_after_its_file(tmp_path):
  without = {k: v for k, v in PASSAGE.items() if k != "id"}
  write(tmp_path, without, "high", "12.txt")
  write(tmp_path, json.dumps(without) + "\n", "middle", "all.txt")
  ids = [example.example_id for example in read(tmp_path)]
  assert ids == ["middle1#0", "middle1#1", "high12.txt#0", "high12.txt#1"]


def test_a_byte_order_mark_is_no_text(tmp_path):
  write(tmp_path, "\ufeff" + json.dumps(PASSAGE))
  assert len(read(tmp_path)) == 2


def changed(**values):
  return {**PASSAGE, **values}


@pytest.mark.parametrize(
  "passage, message",
  [
    pytest.param("{", r": not JSON \(", id="json"),
    pytest.param("[1]", r"object with .*, and this is \[1\]", id="list"),
    pytest.param(changed(article=" \n"), "has no article", id="article"),
    pytest.param(changed(questions=[]), "has no questions", id="questions"),
    pytest.param(changed(options=None), "has no options", id="none"),
    pytest.param(
      changed(options=PASSAGE["options"][:1]),
      "has 2 questions, but 1 options: question 2 has",
      id="fewer",
    ),
    pytest.param(
      changed(options=[["p", "q", "r", "s"], []]),
      ", question 2 of 2: it has no options",
      id="empty",
    ),
    pytest.param(
      changed(options=[["p", "q", "r"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: it has 3 options instead of 4",
      id="three",
    ),
    pytest.param(
      changed(options=[["p", "q", 7, "s"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: the option 7 is no text",
      id="number",
    ),
    pytest.param(
      changed(questions=["who", None]), "2 of 2: null is no text", id="null"
    ),
    pytest.param(
      changed(answers=["A", "E"]),
      ', question 2 of 2: the answer "E" is none of the letters A, B, C, D',
      id="letter",
    ),
    pytest.param(
      changed(answers=["A", "AB"]), '2 of 2: the answer "AB"', id="letters"
    ),
    pytest.param(
      changed(answers=[None, "A"]), "1 of 2: the answer null", id="no_answer"
    ),
    pytest.param(changed(id="a\tb"), r'id "a\\tb" is no line', id="tab"),
    pytest.param(changed(id=5), "id 5 is no line", id="number_as_id"),
  ],
)
def test_bad_passages_are_refused_with_file_and_question(
  tmp_path, passage, message
):
  path = write(tmp_path, passage)
  for needs_labels in (False, True):
    with pytest.raises(ValueError, match=message) as error:
      read(tmp_path, needs_labels=needs_labels)
    assert str(error.value).startswith(path)


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
  path = write(tmp_path, "")
  with open(path, "wb") as file:
    file.write(b'{"article": "caf\xe9"}')
  with pytest.raises(ValueError, match=f"{path}: byte 16 is not UTF-8"):
    read(tmp_path)


def test_two_passages_with_one_id_are_refused(tmp_path):
  first = write(tmp_path, PASSAGE, name="7.txt")
  second = write(tmp_path, PASSAGE, name="8.txt")
  with pytest.raises(ValueError) as error:
    read(tmp_path)
  assert str(error.value).startswith(f"{second}: the passage id 'high7.txt'")
  assert first in str(error.value)


def make(example, max_seq_length, max_qa_length):
  tokenizer = Words()
  inputs = examples_lib.make_inputs(
    example, tokenizer, max_seq_length, max_qa_length
  )
  return [(tokenizer.text(ids), segments) for ids, segments in inputs]


def test_the_option_fills_the_blank_or_follows_the_question(tmp_path):
  write(tmp_path, PASSAGE)
  first, second = read(tmp_path)
  texts = make(first, 30, 20)
  assert [text for text, _ in texts] == [
    f"[CLS] a b c d e f g h [SEP] who is {option} ? [SEP]" for option in "pqrs"
  ]
  assert texts[0][1] == [0] * 10 + [1] * 5
  text, segments = make(second, 30, 20)[0]
  assert text == "[CLS] a b c d e f g h [SEP] and why t u [SEP]"
  assert segments == [0] * 10 + [1] * 5
  twice = dataclasses.replace(first, question="_ is \uff3f", options=(" P ",))
  assert make(twice, 30, 20)[0][0].endswith("[SEP] p is p [SEP]")


def test_the_question_keeps_its_end_and_the_article_its_beginning(tmp_path):
  write(tmp_path, PASSAGE)
  _, second = read(tmp_path)
  rows = make(second, 9, 3)
  assert rows[0] == ("[CLS] a b c [SEP] why t u [SEP]", [0] * 5 + [1] * 4)
  assert rows[1] == ("[CLS] a b c [SEP] and why v [SEP]", [0] * 5 + [1] * 4)
  # The article is cut even where the question with its option is longer.
  assert make(second, 7, 3)[0][0] == "[CLS] a [SEP] why t u [SEP]"


def test_an_article_is_tokenized_once_for_its_questions(tmp_path):
  write(tmp_path, PASSAGE, "middle", "1.txt")
  write(tmp_path, {**PASSAGE, "id": "8", "article": "z"}, "high", "8.txt")
  tokenizer = Words()
  examples = read(tmp_path)
  inputs = list(examples_lib.make_all_inputs(examples, tokenizer, 30, 20))
  assert [len(rows) for rows in inputs] == [4, 4, 4, 4]
  assert tokenizer.encoded.count("a b c d e f g h") == 1
  assert tokenizer.encoded.count("z") == 1
  alone = [
    examples_lib.make_inputs(example, tokenizer, 30, 20) for example in examples
  ]
  assert inputs == alone


@pytest.mark.parametrize("lengths", [(6, 3), (9, 0)], ids=["short", "zero"])
def test_lengths_without_room_are_refused(tmp_path, lengths):
  write(tmp_path, PASSAGE)
  with pytest.raises(ValueError, match=f"length is {lengths[0]} and max_qa_le"):
    make(read(tmp_path)[0], *lengths)


# Paper, Table 14: rate, batch, steps, warm-up, both dropouts, length.
TABLE_14 = (2e-5, 32, 12000, 1000, 0.1, 0.1, 512)


def test_race_is_table_14():
  assert dataclasses.astuple(examples_lib.RECIPES["race"]) == (*TABLE_14, 128)


def test_v2_differs_in_rate_and_dropout_only():
  first, second = (
    dataclasses.asdict(examples_lib.RECIPES[name])
    for name in ("race", "race_v2")
  )
  changes = {key: second[key] for key in first if first[key] != second[key]}
  assert changes == {"learning_rate": 1e-5, "albert_dropout": 0.0}


def test_recipes_cannot_be_changed_by_accident():
  with pytest.raises(dataclasses.FrozenInstanceError):
    examples_lib.RECIPES["race"].learning_rate = 1.0
  with pytest.raises(TypeError):
    examples_lib.RECIPES["other"] = examples_lib.RECIPES["race"]


MIDDLE, HIGH = ["middle"], ["high"]


def test_levels_are_counted_apart_and_together():
  result = examples_lib.accuracy_by_level(
    np.array([0, 1, 2, 3, 3, 3, 0]),
    np.array([0, 1, 0, 3, 0, 0, 1]),
    MIDDLE * 2 + HIGH * 5,
  )
  # 2 of 2, 1 of 5, 3 of 7: not the mean of the levels.
  assert result == {
    "accuracy": pytest.approx(3 / 7, abs=1e-15),
    "accuracy_middle": 1.0,
    "accuracy_high": pytest.approx(1 / 5, abs=1e-15),
  }


def test_a_level_without_questions_has_no_accuracy():
  result = examples_lib.accuracy_by_level([0, 1], [0, 2], HIGH * 2)
  assert result == {"accuracy": 0.5, "accuracy_high": 0.5}


@pytest.mark.parametrize(
  "predictions, labels, levels, message",
  [
    pytest.param([], [], [], "no questions", id="nothing"),
    pytest.param([0, 1], [0], MIDDLE * 2, "equally many", id="labels"),
    pytest.param([0, 1], [0, 1], MIDDLE, "equally many", id="levels"),
    pytest.param([[0.5, 0.5]], [[0, 1]], ["high"], "one dimension", id="rank"),
    pytest.param([0], [0], ["low"], "'low' is none of", id="unknown"),
  ],
)
def test_what_cannot_be_counted_is_refused(
  predictions, labels, levels, message
):
  with pytest.raises(ValueError, match=message):
    examples_lib.accuracy_by_level(predictions, labels, levels)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
