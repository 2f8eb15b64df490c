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


def test_ids_default_to_file_names(tmp_path):
  without = {k: v for k, v in PASSAGE.items() if k != "id"}
  write(tmp_path, without, "high", "12.txt")
  write(tmp_path, json.dumps(without) + "\n", "middle", "all.txt")
  ids = [example.example_id for example in read(tmp_path)]
  assert ids == ["middle1#0", "middle1#1", "high12.txt#0", "high12.txt#1"]


def test_byte_order_mark(tmp_path):
  write(tmp_path, "\ufeff" + json.dumps(PASSAGE))
  assert len(read(tmp_path)) == 2


def changed(**values):
  return {**PASSAGE, **values}


@pytest.mark.parametrize(
  "passage, message",
  [
    pytest.param("{", r": not JSON \(", id="json"),
    pytest.param("[1]", r"object with .*, got \[1\]", id="list"),
    pytest.param(changed(article=" \n"), "has no article", id="article"),
    pytest.param(changed(questions=[]), "has no questions", id="questions"),
    pytest.param(changed(options=None), "has no options", id="none"),
    pytest.param(
      changed(options=PASSAGE["options"][:1]),
      "has 2 questions, but 1 options",
      id="fewer",
    ),
    pytest.param(
      changed(options=[["p", "q", "r", "s"], []]),
      ", question 2 of 2: it has 0 options",
      id="empty",
    ),
    pytest.param(
      changed(options=[["p", "q", "r"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: it has 3 options instead of 4",
      id="three",
    ),
    pytest.param(
      changed(options=[["p", "q", 7, "s"], ["t", "u", "v", "w"]]),
      ", question 1 of 2: the option 7 is not text",
      id="number",
    ),
    pytest.param(
      changed(questions=["who", None]), "2 of 2: null is not text", id="null"
    ),
    pytest.param(
      changed(answers=["A", "E"]),
      ', question 2 of 2: the answer "E" is not one of the letters A, B, C, D',
      id="letter",
    ),
    pytest.param(
      changed(answers=["A", "AB"]), '2 of 2: the answer "AB"', id="letters"
    ),
    pytest.param(
      changed(answers=[None, "A"]), "1 of 2: the answer null", id="no_answer"
    ),
    pytest.param(changed(id="a\tb"), r'id "a\\tb" is not one line', id="tab"),
    pytest.param(changed(id=5), "id 5 is not one line", id="number_as_id"),
  ],
)
def test_invalid_passages(tmp_path, passage, message):
  path = write(tmp_path, passage)
  for needs_labels in (False, True):
    with pytest.raises(ValueError, match=message) as error:
      read(tmp_path, needs_labels=needs_labels)
    assert str(error.value).startswith(path)


def test_invalid_utf8(tmp_path):
  path = write(tmp_path, "")
  with open(path, "wb") as file:
    file.write(b'{"article": "caf\xe9"}')
  with pytest.raises(ValueError, match=f"{path}: byte 16 is not UTF-8"):
    read(tmp_path)


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
def test_lengths_without_space_for_the_article(tmp_path, lengths):
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


MIDDLE, HIGH = ["middle"], ["high"]


def test_accuracy_by_level():
  result = examples_lib.accuracy_by_level(
    np.array([0, 1, 2, 3, 3, 3, 0]),
    np.array([0, 1, 0, 3, 0, 0, 1]),
    MIDDLE * 2 + HIGH * 5,
  )
  # 2 of 2, 1 of 5, and 3 of 7 overall, which is not the mean of the levels.
  assert result == {
    "accuracy": pytest.approx(3 / 7, abs=1e-15),
    "accuracy_middle": 1.0,
    "accuracy_high": pytest.approx(1 / 5, abs=1e-15),
  }


def test_levels_without_questions():
  result = examples_lib.accuracy_by_level([0, 1], [0, 2], HIGH * 2)
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
    assert articles(tmp_path / place, "dev", "high") == DEV[3:], place
    assert articles(tmp_path / place, "dev", "middle") == DEV[:3], place


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


def test_messages_name_files_inside_an_archive(tmp_path):
  archive = tmp_path / "RACE.tar.gz"
  write_archive(archive)
  with pytest.raises(ValueError, match=f"{archive}/train/middle/1.txt: not JS"):
    articles(archive, "train")


def test_missing_data(tmp_path):
  with pytest.raises(FileNotFoundError, match="no RACE in .*: name the"):
    articles(tmp_path, "dev")
  write_tree(tmp_path)
  with pytest.raises(FileNotFoundError, match=r"of test \(middle and high\)"):
    articles(tmp_path, "test")
  with pytest.raises(FileNotFoundError, match=r"of train \(high\): .*train/hi"):
    articles(tmp_path, "train", "high")
  with pytest.raises(ValueError, match="'valid'; choose one of train, dev, t"):
    articles(tmp_path, "valid")
  with pytest.raises(
    ValueError, match="'low'; choose one of all, middle, high"
  ):
    articles(tmp_path, "dev", "low")


def test_damaged_archives(tmp_path):
  whole, cut = tmp_path / "whole.tar.gz", tmp_path / "cut.tar.gz"
  write_archive(whole)
  broken = bytearray(whole.read_bytes())
  broken[-6] ^= 1  # In the checksum.
  for data in (whole.read_bytes()[:-60], broken, b"<html>not found</html>"):
    cut.write_bytes(data)
    with pytest.raises(ValueError, match="cut.tar.gz is not a complete tar"):
      articles(cut, "dev")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
