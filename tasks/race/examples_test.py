"""Tests of files, questions, sequences, recipes and accuracy."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert.tasks.race import examples as examples_lib
from official_albert.testing import toy_models

PASSAGE = {
  "id": "high7.txt",
  "article": "a b c d e f g h",
  "questions": ["who is _ ?", "and why"],
  "options": [["p", "q", "r", "s"], ["t u", "v", "w", "x"]],
  "answers": ["D", "A"],
}


def changed(**values):
  """Returns the JSON of the passage, without what is changed to ..."""
  passage = {**PASSAGE, **values}
  return json.dumps({k: v for k, v in passage.items() if v is not ...})


def write(folder, name, text):
  path = folder / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding="utf-8")
  return str(path)


def read(folder, split="dev", needs_labels=False):
  return examples_lib.read_examples(str(folder), split, needs_labels)


def test_questions_have_ids_of_their_own(tmp_path):
  write(tmp_path, "dev/high/7.txt", changed())
  first, second = read(tmp_path, needs_labels=True)
  assert first == dataclasses.replace(FIRST, guid="high7.txt#0", label="D")
  assert (second.guid, second.label) == ("high7.txt#1", "A")


def test_prediction_needs_no_answers_and_no_ids(tmp_path):
  plain = changed(answers=..., id=...)
  write(tmp_path, "dev/high/12.txt", "\ufeff" + plain)
  path = write(tmp_path, "dev/middle/all.txt", plain + "\n")
  found = read(tmp_path)
  assert [example.label for example in found] == [None] * 4
  ids = [example.guid for example in found]
  assert ids == ["middle1#0", "middle1#1", "high12.txt#0", "high12.txt#1"]
  for text in (plain, changed(answers=[])):
    write(tmp_path, "dev/middle/all.txt", text)
    with pytest.raises(ValueError, match=f"{path} line 1: .* has no answers"):
      read(tmp_path, needs_labels=True)


@pytest.mark.parametrize(
  "passage, message",
  [
    ("{", r" is not valid JSON \("),
    ("[]", r" is \[\], but must be an object"),
    (changed(article=" \n"), "has no article"),
    (changed(questions=[]), "no questions"),
    (changed(answers=["A"]), "one of A, B, C, D as answer"),
    (changed(options=[["p"] * 4, ["p"] * 3]), "have not 4 options"),
    (changed(answers=["A", 7]), "'answers.1' is 7, but must be a valid string"),
    (changed(answers=["A", "AB"]), "one of A, B, C, D as answer"),
  ],
)
def test_invalid_passages(tmp_path, passage, message):
  path = write(tmp_path, "dev/high/7.txt", passage)
  for needs_labels in (False, True):
    with pytest.raises(ValueError, match=message) as error:
      read(tmp_path, needs_labels=needs_labels)
    assert str(error.value).startswith(path)


def passage(article):
  return changed(
    article=article, questions=["_"], options=[["p"] * 4], answers=["A"], id=...
  )


FILES = {
  "train/middle/1.txt": "not JSON",
  "dev/middle/10.txt": passage("ten"),
  "dev/middle/9.txt": passage("nine"),
  "dev/middle/extra.txt": passage("extra"),
  "dev/middle/._9.txt": "a resource fork",
  "dev/middle/notes.md": "not a passage",
  "dev/college/1.txt": passage("college"),
  "dev/high/3.txt": "ignored because of all.txt",
  "dev/high/all.txt": f"{passage('one')}\n\n {passage('three')}\r",
}


def test_a_folder_and_its_parent_have_the_same_passages(tmp_path):
  for name, text in FILES.items():
    write(tmp_path / "a" / "RACE", name, text)
  for place in ("a", "a/RACE"):
    found = [(e.guid, e.article) for e in read(tmp_path / place)]
    assert found == [
      ("middle9.txt#0", "nine"),
      ("middle10.txt#0", "ten"),
      ("middleextra.txt#0", "extra"),
      ("high1#0", "one"),
      ("high3#0", "three"),
      ("college1.txt#0", "college"),
    ], place
    with pytest.raises(ValueError, match="/train/middle/1.txt is not valid"):
      read(tmp_path / place, "train")
    with pytest.raises(FileNotFoundError, match="RACE's test: .*test/middle"):
      read(tmp_path / place, "test")


FIRST, SECOND = (
  examples_lib.RaceExample(
    f"x#{i}",
    PASSAGE["article"],
    PASSAGE["questions"][i],
    tuple(PASSAGE["options"][i]),
    None,
    "high",
  )
  for i in range(2)
)


@pytest.fixture
def make(tmp_path, monkeypatch):
  """Returns a function from a question to pieces and segments of options."""
  tokenizer = toy_models.wordpiece(
    tmp_path, *"a b c d e f g h p q r s t u v w x who is ? and why".split()
  )
  # Only texts for SentencePiece have wide blanks.
  monkeypatch.setattr(tokenizer, "kind", "sentencepiece")

  def made(example, max_seq_length, max_qa_length):
    (inputs,) = examples_lib.make_all_inputs(
      [example], tokenizer, max_seq_length, max_qa_length
    )
    return [
      (" ".join(map(tokenizer.id_to_piece, ids)), segments)
      for ids, segments in inputs
    ]

  return made


def test_option_replaces_the_blank_or_follows_the_question(make):
  texts = make(FIRST, 30, 20)
  assert [text for text, _ in texts] == [
    f"[CLS] a b c d e f g h [SEP] who is {option} ? [SEP]" for option in "pqrs"
  ]
  assert texts[0][1] == [0] * 10 + [1] * 5
  text, segments = make(SECOND, 30, 20)[0]
  assert text == "[CLS] a b c d e f g h [SEP] and why t u [SEP]"
  assert segments == [0] * 10 + [1] * 5
  twice = dataclasses.replace(FIRST, question="_ is \uff3f", options=(" P ",))
  assert make(twice, 30, 20)[0][0].endswith("[SEP] p is p [SEP]")


def test_truncation(make):
  rows = make(SECOND, 9, 3)
  assert rows[0] == ("[CLS] a b c [SEP] why t u [SEP]", [0] * 5 + [1] * 4)
  assert rows[1] == ("[CLS] a b c [SEP] and why v [SEP]", [0] * 5 + [1] * 4)
  # The article is truncated even if the question with its option is longer.
  assert make(SECOND, 7, 3)[0][0] == "[CLS] a [SEP] why t u [SEP]"
  for lengths in ((6, 3), (9, 0)):
    with pytest.raises(ValueError, match=f"length is {lengths[0]} and max_qa_"):
      make(SECOND, *lengths)
