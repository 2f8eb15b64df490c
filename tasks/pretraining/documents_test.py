"""Tests of reading documents in all forms, and of what is no document."""

from __future__ import annotations

import gzip
import json

import pytest

from tasks.pretraining import documents

_TEXT = "One.\n  Two. \r\n\n\n \nThree.\n"
_TEXT_DOCUMENTS = [["One.", "Two."], ["Three."]]
_LINES = [
  {"title": "a", "text": "It is so. Is it?\n\nYes. "},
  {"text": " \n"},
  {"text": "Löwen brüllen."},
]
_LINES_DOCUMENTS = [["It is so.", "Is it?", "Yes."], ["Löwen brüllen."]]


def _read(*paths):
  return list(documents.DocumentReader([str(path) for path in paths]))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz", "a.GZ"])
def test_text(tmp_path, name):
  path = tmp_path / name
  data = _TEXT.encode()
  path.write_bytes(gzip.compress(data) if "g" in name.lower() else data)
  assert _read(path) == _TEXT_DOCUMENTS


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_json_lines(tmp_path, name):
  path = tmp_path / name
  text = "\n".join(json.dumps(line) for line in _LINES) + "\n\n"
  data = text.encode()
  path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
  assert _read(path) == _LINES_DOCUMENTS


def test_byte_order_mark_and_missing_last_newline(tmp_path):
  path = tmp_path / "a.txt"
  path.write_bytes(b"\xef\xbb\xbfOne.\n\nTwo.")
  assert _read(path) == [["One."], ["Two."]]


def test_files_are_read_in_turn_and_end_their_last_document(tmp_path):
  first, second, empty = (tmp_path / name for name in ("b", "a", "c"))
  first.write_text("One.")
  second.write_text("Two.\n")
  empty.write_text("\n")
  reader = documents.DocumentReader([str(first), str(empty), str(second)])
  assert reader.total_bytes == 4 + 1 + 5
  assert reader.bytes_read == 0
  assert list(reader) == [["One."], ["Two."]]
  assert reader.bytes_read == reader.total_bytes
  assert list(reader) == [["One."], ["Two."]]  # Again from the start.


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("a.txt", b"fine\n\xe9t\xe9\n", "a.txt, line 2, is not UTF-8"),
    ("a.jsonl", b'{"text": "x"}\n\n{"te', "a.jsonl, line 3, is not JSON"),
    ("a.jsonl", b'["x"]\n', 'line 1, is no JSON object with .* "text"'),
    ("a.jsonl", b'{"text": 5}\n', "line 1, is no JSON object"),
    ("a.jsonl", b'{"body": "x"}\n', "line 1, is no JSON object"),
    ("a.jsonl", b'{"text": "\xff"}\n', "line 1, is not UTF-8"),
    ("a.gz", b"not compressed\n", "a.gz is not a whole gzip file"),
    ("a.gz", gzip.compress(b"x\n" * 99)[:-9], "is not a whole gzip file"),
    ("a.gz", gzip.compress(b"x\n")[:12] + b"\xff" * 9, "not a whole gzip"),
  ],
)
def test_wrong_files_are_named_with_their_line(
  tmp_path, name, content, message
):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    _read(path)


def test_find_files(tmp_path):
  for name in ("b.txt", "a.txt", "c.jsonl", "odd[1].txt"):
    (tmp_path / name).write_text("x")
  (tmp_path / "sub").mkdir()

  def find(*patterns):
    found = documents.find_files(",".join(f"{tmp_path}/{p}" for p in patterns))
    return [path[len(str(tmp_path)) + 1 :] for path in found]

  assert find("c.jsonl", "*.txt", "a.txt") == [
    "c.jsonl",
    "a.txt",
    "b.txt",
    "odd[1].txt",
  ]
  assert find("odd[1].txt") == ["odd[1].txt"]
  assert find("*") == ["a.txt", "b.txt", "c.jsonl", "odd[1].txt"]
  with pytest.raises(FileNotFoundError, match=r"no input file matches .*\.md"):
    find("a.txt", "*.md")
  with pytest.raises(FileNotFoundError, match="which is a folder"):
    find("sub")
  for empty in ("", " , "):
    with pytest.raises(ValueError, match="input_files is empty"):
      documents.find_files(empty)


@pytest.mark.parametrize(
  ("paragraph", "sentences"),
  [
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    ("He said: “No.” She left.", ["He said: “No.”", "She left."]),
    ('Is it ("it")? (Yes.) "No."', ['Is it ("it")?', "(Yes.)", '"No."']),
    ("In 3.5 cases. 12 more.", ["In 3.5 cases.", "12 more."]),
    ("See e.g. Smith et al. The end.", ["See e.g. Smith et al. The end."]),
    ("Mr. Jones and J. S. Bach. Yes.", ["Mr. Jones and J. S. Bach.", "Yes."]),
    ("The U.S. Army won. It did.", ["The U.S. Army won.", "It did."]),
    ("St. John, vol. 3, No. 4 of it", ["St. John, vol. 3, No. 4 of it"]),
    (
      "Is it? No. It was 4. Fig. B.",
      ["Is it?", "No.", "It was 4.", "Fig.", "B."],
    ),
    ("Run with --x. then stop", ["Run with --x. then stop"]),
    ("What?! No... Maybe… Well.", ["What?!", "No...", "Maybe…", "Well."]),
    ("Это так. Да.", ["Это так.", "Да."]),
    ("今日は。明日！「はい。」と", ["今日は。", "明日！", "「はい。」", "と"]),
    ("  ", []),
    ("", []),
  ],
)
def test_split_sentences(paragraph, sentences):
  assert documents.split_sentences(paragraph) == sentences


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
