"""Tests of files, questions, sequences, recipes and accuracy."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile

import pytest

from official_albert import tokenization
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


def write_archive(path, prefix, files):
  with tarfile.open(path, "w:gz") as archive:
    for name, text in files.items():
      member = tarfile.TarInfo(prefix + name)
      member.size = len(text)
      archive.addfile(member, io.BytesIO(text.encode()))


def read(folder, split="dev", needs_labels=False):
  return examples_lib.read_examples(str(folder), split, needs_labels)


def test_questions_have_ids_of_their_own(tmp_path):
  write(tmp_path, "dev/high/7.txt", changed())
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


def test_prediction_needs_no_answers_and_no_ids(tmp_path):
  plain = changed(answers=..., id=...)
  write(tmp_path, "dev/high/12.txt", "\ufeff" + plain)
  path = write(tmp_path, "dev/middle/all.txt", plain + "\n")
  found = read(tmp_path)
  assert [example.label for example in found] == [None] * 4
  ids = [example.example_id for example in found]
  assert ids == ["middle1#0", "middle1#1", "high12.txt#0", "high12.txt#1"]
  for text in (plain, changed(answers=[])):
    write(tmp_path, "dev/middle/all.txt", text)
    with pytest.raises(ValueError, match=f"{path} line 1: .* has no answers"):
      read(tmp_path, needs_labels=True)


@pytest.mark.parametrize(
  "passage, message",
  [
    ("{", r" is not valid JSON \("),
    ("[" * 10**5, r" is not valid JSON \(recursion limit exceeded"),
    (changed(article="\ud800"), r" is not valid JSON \(.*hex escape"),
    ("[]", r" is \[\], but must be an object"),
    (changed(article=" \n"), "has no article"),
    (changed(questions=[]), "has no questions"),
    (changed(options=[["p"] * 4]), "has no options, or not one for each"),
    (
      changed(options=[["t", "u", "v", "w"], ["p", "q", 7, "s"]]),
      ", question 2 of 2: it must be a text with 4 texts as options",
    ),
    (
      changed(answers=["A", "AB"]),
      ", question 2 of 2: the answer 'AB' is not one of the letters A, B, C, D",
    ),
  ],
)
def test_invalid_passages(tmp_path, passage, message):
  path = write(tmp_path, "dev/high/7.txt", passage)
  for needs_labels in (False, True):
    with pytest.raises(ValueError, match=message) as error:
      read(tmp_path, needs_labels=needs_labels)
    assert str(error.value).startswith(path)


def test_all_faults_are_counted_and_the_first_named(tmp_path):
  write(tmp_path, "dev/high/1.txt", changed(answers=["E", "F"]))
  write(tmp_path, "dev/high/2.txt", "{")
  write(tmp_path, "dev/high/3.txt", changed(article=""))
  write(tmp_path, "dev/high/4.txt", changed())
  with pytest.raises(ValueError) as error:
    read(tmp_path)
  message = str(error.value)
  assert "has 4 faults in dev: " in message and "; and 1 more. " in message
  for part in (
    "high/1.txt, question 1 of 2: the answer 'E'",
    "high/1.txt, question 2 of 2: the answer 'F'",
    "high/2.txt is not valid JSON",
  ):
    assert part in message


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
  "dev/high/3.txt": "ignored because of all.txt",
  "dev/high/all.txt": f"{passage('one')}\n\n {passage('three')}\r",
}


def test_folder_parent_and_archive_have_the_same_passages(tmp_path):
  for name, text in FILES.items():
    write(tmp_path / "a" / "RACE", name, text)
  (tmp_path / "b").mkdir()
  write_archive(tmp_path / "b" / "RACE.tar.gz", "RACE/", FILES)
  write_archive(tmp_path / "bare.tgz", "./", FILES)
  for place in ("a", "a/RACE", "b", "b/RACE.tar.gz", "bare.tgz"):
    found = [(e.example_id, e.article) for e in read(tmp_path / place)]
    assert found == [
      ("middle9.txt#0", "nine"),
      ("middle10.txt#0", "ten"),
      ("middleextra.txt#0", "extra"),
      ("high1#0", "one"),
      ("high3#0", "three"),
    ], place
    with pytest.raises(ValueError, match="/train/middle/1.txt is not valid"):
      read(tmp_path / place, "train")
    with pytest.raises(
      FileNotFoundError, match="no passage of test: .*test/mi"
    ):
      read(tmp_path / place, "test")
  with pytest.raises(FileNotFoundError, match="no RACE in .*: name the"):
    read(tmp_path)


def test_damaged_archives(tmp_path, monkeypatch):
  """The limits of archives_test.py hold here, with other numbers."""
  whole, cut = tmp_path / "whole.tar.gz", tmp_path / "cut.tar.gz"
  write_archive(whole, "RACE/", FILES)
  broken = bytearray(whole.read_bytes())
  broken[-6] ^= 1  # In the checksum.
  for data in (whole.read_bytes()[:-60], broken, b"<html>not found</html>"):
    cut.write_bytes(data)
    with pytest.raises(ValueError, match="cut.tar.gz is not a complete .tar"):
      read(cut)
  # Members that are not read count, too.
  num_bytes = sum(map(len, FILES.values()))
  for name, most in (("_MAX_BYTES", num_bytes), ("_MAX_FILES", len(FILES))):
    with monkeypatch.context() as patch:
      patch.setattr(examples_lib, name, most - 1)
      with pytest.raises(ValueError, match=r"more than .* bytes or .* files\)"):
        read(whole)
  read(whole)


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
  monkeypatch.setattr(
    tokenizer,
    "normalize",
    lambda text: tokenization.normalize_text(text, tokenizer.lower_case),
    raising=False,
  )

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


def test_recipes():
  """Table 14 of the paper; v2 differs in rate and dropout only."""
  row = (2e-5, 32, 12000, 1000, 0.1, 0.1, 512)
  first, second = (examples_lib.RECIPES[name] for name in ("race", "race_v2"))
  assert first == examples_lib.Recipe(*row, max_qa_length=128)
  assert second == dataclasses.replace(
    first, learning_rate=1e-5, albert_dropout=0.0
  )


def test_no_questions_have_no_accuracy():
  with pytest.raises(ValueError, match="there are no questions"):
    examples_lib.accuracy_by_level([], [], [])
