"""Tests of reading documents in all forms, and of what is no document."""

from __future__ import annotations

import dataclasses
import gzip
import json

import pytest
import zstandard

from tasks.pretraining.data import documents

_TEXT = "One.\n  Two. \r\n\n\n \nThree.\n"
_TEXT_DOCUMENTS = [["One.", "Two."], ["Three."]]
_LINES = [
  {"title": "a", "text": "It is so. Is it?\n\nYes. "},
  {"text": " \n"},
  {"text": "Löwen brüllen."},
]
_LINES_DOCUMENTS = [["It is so.", "Is it?", "Yes."], ["Löwen brüllen."]]


@pytest.fixture(autouse=True, params=[1, 17, 1 << 18])
def block_bytes(request, monkeypatch):
  """However files are cut, the documents and the complaints are the same."""
  monkeypatch.setattr(documents, "_BLOCK_BYTES", request.param)
  return request.param


def _read(*paths):
  return list(documents.DocumentReader([str(path) for path in paths]))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz", "a.GZ"])
def test_text(tmp_path, name):
  path = tmp_path / name
  data = _TEXT.encode()
  path.write_bytes(gzip.compress(data) if "g" in name.lower() else data)
  assert _read(path) == _TEXT_DOCUMENTS


@pytest.mark.parametrize(
  "name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.json.zst"]
)
def test_json_lines(tmp_path, name):
  path = tmp_path / name
  text = "\n".join(json.dumps(line) for line in _LINES) + "\n\n"
  data = text.encode()
  if name.endswith(".gz"):
    data = gzip.compress(data)
  elif name.endswith(".zst"):
    data = zstandard.ZstdCompressor().compress(data)
  path.write_bytes(data)
  assert _read(path) == _LINES_DOCUMENTS


def test_byte_order_mark_and_missing_last_newline(tmp_path):
  path = tmp_path / "a.txt"
  path.write_bytes(b"\xef\xbb\xbfOne.\n\nTwo.")
  assert _read(path) == [["One."], ["Two."]]


def test_files_are_read_in_turn_and_end_their_last_document(tmp_path):
  first, second = (tmp_path / name for name in ("b", "a"))
  first.write_text("One.")
  second.write_text("Two.\n")
  reader = documents.DocumentReader([str(first), str(second)])
  assert reader.total_bytes == 4 + 5
  assert reader.bytes_read == 0
  assert list(reader) == [["One."], ["Two."]]
  assert reader.bytes_read == reader.total_bytes
  assert list(reader) == [["One."], ["Two."]]  # Again from the start.


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("a.txt", b"", r"a.txt holds no document: .* --skip_bad_documents"),
    ("a.txt", b" \n\n", r"a.txt holds no document"),
    ("a.jsonl", b'{"text": " "}\n', r"a.jsonl holds no document"),
    ("a.txt", b"fine\n\xe9t\xe9\n", "a.txt, line 2, is not UTF-8"),
    ("a.jsonl", b'{"text": "x"}\n\n{"te', "a.jsonl, line 3, is not JSON"),
    ("a.jsonl", b'["x"]\n', 'line 1, is no JSON object with .* "text"'),
    ("a.jsonl", b'{"text": 5}\n', "line 1, is no JSON object"),
    ("a.jsonl", b'{"body": "x"}\n', "line 1, is no JSON object"),
    ("a.jsonl", b'{"text": "\xff"}\n', "line 1, is not UTF-8"),
    ("a.gz", b"not compressed\n", "a.gz is not a complete gzip file"),
    ("a.zst", b"not compressed\n", "a.zst is not a complete zstd file"),
  ],
)
def test_wrong_files_are_named_with_their_line(
  tmp_path, name, content, message
):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    _read(path)


def test_bad_documents_are_skipped_counted_and_named(tmp_path):
  text, lines, empty = (tmp_path / name for name in ("a.txt", "b.jsonl", "c"))
  # A bad line takes the sentences around it along, and a file's last document
  # may be bad.
  text.write_bytes(b"a\n\nb\n\xff\nc\n\xff\n\nd\n\n\xff")
  lines.write_bytes(b'{"text": "e."}\n["x"]\n{\n\xff\n{"text": 5}\n')
  empty.write_bytes(b"")
  reader = documents.DocumentReader(
    [str(path) for path in (text, lines, empty)],
    documents.ReaderSettings(skip_bad_documents=True),
  )
  for _ in range(2):  # Counted anew each time.
    assert list(reader) == [["a"], ["d"], ["e."]]
    assert reader.bytes_read == reader.total_bytes
    assert reader.skipped.count == 7
    named = [name[len(str(tmp_path)) + 1 :] for name in reader.skipped.named]
    assert named == [
      "a.txt, line 4, is not UTF-8 (byte 1 of the line)",
      "a.txt, line 10, is not UTF-8 (byte 1 of the line)",
      'b.jsonl, line 2, is no JSON object with a string in its field "text"',
      "b.jsonl, line 3, is not JSON (Expecting property name enclosed in "
      "double quotes: line 2 column 1 (char 2))",
      "b.jsonl, line 4, is not UTF-8 (byte 1 of the line)",
      'b.jsonl, line 5, is no JSON object with a string in its field "text"',
      "c holds no document",
    ]
  described = reader.skipped.describe(max_named=2).splitlines()
  assert described[0] == "Skipped 7 bad documents:"
  assert described[-1].strip() == "and 5 more" and len(described) == 4


def test_blocks_are_whole_documents(tmp_path, monkeypatch):
  monkeypatch.setattr(documents, "_BLOCK_BYTES", 4)
  text, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
  text.write_bytes(b"a\nb\n \t\r\n\nc\n\n\nd")
  lines.write_bytes(b"{}\n{}\n\n{}\n")
  reader = documents.DocumentReader([str(text), str(lines)])
  blocks = list(reader.blocks())
  assert [block[1:] for block in blocks] == [
    (1, b"a\nb\n \t\r\n", False),
    (4, b"\nc\n\n\n", False),
    (8, b"d", True),
    (1, b"{}\n{}\n", False),
    (3, b"\n{}\n", False),
    (5, b"", True),
  ]
  assert {block.path for block in blocks} == {str(text), str(lines)}
  assert list(reader.blocks()) == blocks
  with pytest.raises(ValueError, match="b.jsonl, line 4, is no JSON object"):
    documents.parse(blocks[4], documents.ReaderSettings())


def test_tally_comes_back_from_json():
  settings = documents.ReaderSettings(skip_bad_documents=True)
  nothing = documents.Skipped()
  outcomes = [
    documents.Outcome(0, nothing, None),
    documents.Outcome(2, nothing, None),
    documents.Outcome(0, nothing, "a"),  # Its text came before.
    documents.Outcome(0, nothing, None),
    documents.Outcome(0, documents.Skipped(1, ["b, line 3"]), "b"),
    documents.Outcome(0, nothing, None),
    documents.Outcome(0, nothing, "c"),
  ]
  tally = documents.Tally()
  for outcome in outcomes:
    tally = documents.Tally.from_json(
      json.loads(json.dumps(dataclasses.asdict(tally)))
    )
    tally.add(outcome, settings)
  assert tally == documents.Tally(
    3, documents.Skipped(2, ["b, line 3", "c holds no document"]), True
  )
  tally = documents.Tally()
  with pytest.raises(ValueError, match="c holds no document: use a file"):
    for outcome in outcomes:
      tally.add(outcome, documents.ReaderSettings())
  assert tally.finished_files == 3


def test_a_bad_line_is_named_before_damage_that_comes_later(tmp_path):
  path = tmp_path / "a.jsonl.gz"
  path.write_bytes(gzip.compress(b"[]\n" + b"\n" * 9)[:-9])
  with pytest.raises(ValueError, match="line 1, is no JSON object"):
    _read(path)


def test_a_cut_file_is_not_skipped(tmp_path):
  path = tmp_path / "a.gz"
  path.write_bytes(gzip.compress(b"x\n" * 99)[:-9])
  settings = documents.ReaderSettings(skip_bad_documents=True)
  with pytest.raises(ValueError, match="a.gz is not a complete gzip file"):
    list(documents.DocumentReader([str(path)], settings))


def test_only_a_hundred_are_named():
  skipped = documents.Skipped()
  assert skipped.describe() == ""
  for number in range(123):
    skipped.add(str(number))
  assert (skipped.count, len(skipped.named)) == (123, 100)
  assert skipped.describe().endswith("and 113 more")


def test_paragraphs_of_plain_text_are_split_if_asked_for(tmp_path):
  path = tmp_path / "a.txt"
  path.write_text("他来了。她走了！\n你呢？\n\n一。", "utf-8")
  settings = documents.ReaderSettings(
    split_sentences=True, sentence_language="zh"
  )
  assert list(documents.DocumentReader([str(path)], settings)) == [
    ["他来了。", "她走了！", "你呢？"],
    ["一。"],
  ]
  assert _read(path) == [["他来了。她走了！", "你呢？"], ["一。"]]


def test_content_names_the_splitter_where_it_matters():
  settings = documents.ReaderSettings()
  assert "sentence_splitter" not in settings.content(["a.txt", "b.gz"])
  found = settings.content(["a.txt", "b.jsonl.zst"])
  assert found["sentence_splitter"].startswith("sentencex ")
  assert found["sentence_language"] == "en" and not found["split_sentences"]
  with pytest.raises(ValueError, match="sentence_language is 'Deutsch'"):
    documents.ReaderSettings(sentence_language="Deutsch")


@pytest.mark.parametrize(
  ("language", "sentences"),
  [
    ("en", ["One.", "Two!", "Three?", "Four"]),
    ("en", ["Dr. Gray went to Leeds.", "He arrived at 5 p.m. on Monday."]),
    ("en", ["It rose 3.5 percent to $4.25.", "Shares fell."]),
    ("en", ["Acme Inc. and Foo Corp. merged in Jan. 1999.", "Both failed."]),
    ("en", ["Version 2.0.1 is at example.com now.", "It works."]),
    ("en", ["Mr. Jones lives in St. Louis.", "He is old."]),
    ("en", ["The U.S. Army came.", "It left in 1945."]),
    ("es", ["¿Quién es?", "¡Hola!", "No."]),
    ("de", ["Das ist Dr. Müller.", "Er wohnt hier."]),
    ("de", ["Am 3. Oktober kam er z. B. nach Berlin.", "Dort blieb er."]),
    ("ru", ["Он писал стихи.", "Да?"]),
    ("ru", ["А. С. Пушкин родился в Москве.", "Он писал стихи."]),
    ("hi", ["यह एक वाक्य है।", "क्या यह सच है?"]),
    ("zh", ["北京是中国的首都。", "人口约2.15亿。"]),
    ("zh", ["你呢？", "“好的。”", "他说。"]),
    ("ja", ["彼は来た。", "彼女は行った！"]),
  ],
)
def test_sentences(language, sentences):
  space = "" if language in ("zh", "ja") else " "
  paragraph = space.join(sentences)
  assert documents.split_sentences(paragraph, language) == sentences


@pytest.mark.parametrize("language", ["en", "zh", "xx"])
def test_nothing_is_lost_but_space(language):
  for paragraph in (
    "",
    " ",
    "...",
    "a.b.c",
    '("x.") y.',
    "“”。。『』",
    "\t1. 2.",
  ):
    found = documents.split_sentences(paragraph, language)
    assert "".join("".join(found).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


def test_half_a_surrogate_pair_is_dropped():
  assert documents.split_sentences("A\ud800 tea. Two.") == [
    "A tea.",
    "Two.",
  ]


def test_language_codes():
  for code in ("en", "zh", "pt-BR", "yue", "zh_Hant"):
    documents.check_language(code)
  for code in ("", "English", "EN", "e"):
    with pytest.raises(ValueError, match="must be an ISO code such as en"):
      documents.check_language(code)


def test_the_name_has_the_version():
  name, version = documents.splitter_name().split()
  assert name == "sentencex" and version[0].isdigit()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
