"""Tests of files, questions, sequences, recipes and accuracy."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile

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
  """A tokenizer with an id for each word, which records its calls."""

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


def test_questions_have_ids_of_their_own(tmp_path):
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


def test_prediction_needs_no_answers_and_no_ids(tmp_path):
  plain = {k: v for k, v in PASSAGE.items() if k not in ("answers", "id")}
  write(tmp_path, "\ufeff" + json.dumps(plain), "high", "12.txt")
  write(tmp_path, json.dumps(plain) + "\n", "middle", "all.txt")
  found = read(tmp_path)
  assert [example.label for example in found] == [None] * 4
  ids = [example.example_id for example in found]
  assert ids == ["middle1#0", "middle1#1", "high12.txt#0", "high12.txt#1"]
  path = write(tmp_path, {**PASSAGE, "answers": []}, "middle", "all.txt")
  assert [example.label for example in read(tmp_path)] == [None] * 4
  with pytest.raises(ValueError, match=f"{path} line 1: .* has no answers, or"):
    read(tmp_path, needs_labels=True)


def changed(**values):
  return {**PASSAGE, **values}


@pytest.mark.parametrize(
  "passage, message",
  [
    ("{", r": not JSON in UTF-8 \("),
    ("[1]", r"object with .*, got \[1\]"),
    (changed(article=" \n"), "has no article"),
    (changed(questions=[]), "has no questions"),
    (changed(options=None), "has no options, or not one"),
    (
      changed(options=PASSAGE["options"][:1]),
      "one for each of its 2 questions",
    ),
    (
      changed(options=[["p", "q", "r"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: it has 3 options instead of 4",
    ),
    (
      changed(options=[["p", "q", 7, "s"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: 7 is not text",
    ),
    (changed(questions=["who", None]), "2 of 2: None is not text"),
    (
      changed(answers=["A", "AB"]),
      ", question 2 of 2: the answer 'AB' is not one of the letters A, B, C, D",
    ),
    (changed(answers=[None, "A"]), "1 of 2: the answer None"),
    (changed(id="a\tb"), r"id 'a\\tb' is not one line"),
    (changed(id=5), "id 5 is not one line"),
  ],
)
def test_invalid_passages(tmp_path, passage, message):
  path = write(tmp_path, passage)
  for needs_labels in (False, True):
    with pytest.raises(ValueError, match=message) as error:
      read(tmp_path, needs_labels=needs_labels)
    assert str(error.value).startswith(path)


def test_duplicate_ids(tmp_path):
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


def test_option_replaces_the_blank_or_follows_the_question(tmp_path):
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


def test_truncation(tmp_path):
  write(tmp_path, PASSAGE)
  _, second = read(tmp_path)
  rows = make(second, 9, 3)
  assert rows[0] == ("[CLS] a b c [SEP] why t u [SEP]", [0] * 5 + [1] * 4)
  assert rows[1] == ("[CLS] a b c [SEP] and why v [SEP]", [0] * 5 + [1] * 4)
  # The article is truncated even if the question with its option is longer.
  assert make(second, 7, 3)[0][0] == "[CLS] a [SEP] why t u [SEP]"
  for lengths in ((6, 3), (9, 0)):
    with pytest.raises(ValueError, match=f"length is {lengths[0]} and max_qa_"):
      make(second, *lengths)


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


def test_recipes():
  """Table 14 of the paper; v2 differs in rate and dropout only."""
  row = (2e-5, 32, 12000, 1000, 0.1, 0.1, 512)
  first, second = (examples_lib.RECIPES[name] for name in ("race", "race_v2"))
  assert first == examples_lib.Recipe(*row, max_qa_length=128)
  assert second == dataclasses.replace(
    first, learning_rate=1e-5, albert_dropout=0.0
  )


def test_accuracy_by_level():
  result = examples_lib.accuracy_by_level(
    np.array([0, 1, 2, 3, 3, 3, 0]),
    [0, 1, 0, 3, 0, 0, 1],
    ["middle"] * 2 + ["high"] * 5,
  )
  # 2 of 2, 1 of 5, and 3 of 7 overall, which is not the mean of the levels.
  assert result == {
    "accuracy": pytest.approx(3 / 7, abs=1e-15),
    "accuracy_middle": 1.0,
    "accuracy_high": pytest.approx(1 / 5, abs=1e-15),
  }
  result = examples_lib.accuracy_by_level([0, 1], [0, 2], ["high"] * 2)
  assert result == {"accuracy": 0.5, "accuracy_high": 0.5}


def passage(article):
  values = {**PASSAGE, "article": article, "questions": ["who"]}
  del values["id"]
  values["options"], values["answers"] = [list("pqrs")], ["A"]
  return json.dumps(values).encode()


FILES = {
  "train/middle/1.txt": b"not JSON",
  "dev/middle/10.txt": passage("ten"),
  "dev/middle/9.txt": passage("nine"),
  "dev/middle/extra.txt": passage("extra"),
  "dev/middle/._9.txt": b"a resource fork",
  "dev/middle/notes.md": b"not a passage",
  "dev/high/3.txt": passage("three"),
}
DEV = [
  ("middle9.txt#0", "nine"),
  ("middle10.txt#0", "ten"),
  ("middleextra.txt#0", "extra"),
  ("high3.txt#0", "three"),
]


def write_tree(folder, files=None):
  for name, data in (files or FILES).items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_archive(path, prefix="RACE/", files=None):
  with tarfile.open(path, "w:gz") as archive:
    for name, data in (files or FILES).items():
      member = tarfile.TarInfo(prefix + name)
      member.size = len(data)
      archive.addfile(member, io.BytesIO(data))


def articles(*arguments):
  found = examples_lib.read_examples(*map(str, arguments))
  return [(example.example_id, example.article) for example in found]


def test_folder_parent_and_archive_have_the_same_passages(tmp_path):
  write_tree(tmp_path / "a" / "RACE")
  (tmp_path / "b").mkdir()
  write_archive(tmp_path / "b" / "RACE.tar.gz")
  write_archive(tmp_path / "bare.tgz", prefix="./")
  for place in ("a", "a/RACE", "b", "b/RACE.tar.gz", "bare.tgz"):
    assert articles(tmp_path / place, "dev") == DEV, place


def test_all_txt_replaces_the_files_beside_it(tmp_path):
  lines = b"\n".join([passage("one"), b"", b" " + passage("two") + b"\r"])
  files = {"dev/high/all.txt": lines, "dev/high/7.txt": passage("seven")}
  write_tree(tmp_path, files)
  write_archive(tmp_path / "RACE.tar.gz", files=files)
  for place in (tmp_path, tmp_path / "RACE.tar.gz"):
    assert articles(place, "dev") == [("high1#0", "one"), ("high3#0", "two")]
  write_tree(tmp_path, {"dev/high/all.txt": lines + b"\n{"})
  with pytest.raises(ValueError, match=f"{tmp_path}/dev/high/all.txt line 4: "):
    articles(tmp_path, "dev")


def test_missing_data(tmp_path):
  with pytest.raises(FileNotFoundError, match="no RACE in .*: name the"):
    articles(tmp_path, "dev")
  write_tree(tmp_path)
  with pytest.raises(
    FileNotFoundError, match=r"has no passage of test: .*test/"
  ):
    articles(tmp_path, "test")


def test_damaged_archives(tmp_path):
  whole, cut = tmp_path / "whole.tar.gz", tmp_path / "cut.tar.gz"
  write_archive(whole)
  with pytest.raises(ValueError, match=f"{whole}/train/middle/1.txt: not JS"):
    articles(whole, "train")
  broken = bytearray(whole.read_bytes())
  broken[-6] ^= 1  # In the checksum.
  for data in (whole.read_bytes()[:-60], broken, b"<html>not found</html>"):
    cut.write_bytes(data)
    with pytest.raises(ValueError, match="cut.tar.gz is not a complete tar"):
      articles(cut, "dev")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
