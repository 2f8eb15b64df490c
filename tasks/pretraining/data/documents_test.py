"""Tests of finding and reading documents in all forms, and of bad input."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sys

import pyarrow
import pytest
import zstandard
from pyarrow import ipc, parquet

from official_albert import text_files
from official_albert.tasks.pretraining.data import documents

_TEXT = "One.\n  Two. \r\n\n\n \nThree.\n\u3000\nFour."
_TEXT_DOCUMENTS = [["One.", "Two."], ["Three."], ["Four."]]
_LINES = "\n".join(
  json.dumps(line)
  for line in (
    {"title": "a", "text": "It is so. Is it?\n\nYes. "},
    {"text": " \n"},
    {"text": "Löwen brüllen."},
  )
)
_LINES_DOCUMENTS = [["It is so.", "Is it?", "Yes."], ["Löwen brüllen."]]


def _gzip(data: bytes) -> bytes:
  # Without the time: the bytes are in the names of test cases.
  return gzip.compress(data, mtime=0)


def _zstd(data: bytes) -> bytes:
  return zstandard.ZstdCompressor().compress(data)


# Files of both formats may be concatenated.
_PACKERS = {
  "": bytes,
  ".gz": _gzip,
  ".GZ": lambda data: _gzip(data[:5]) + _gzip(data[5:]),
  ".bz2": bz2.compress,
  ".xz": lzma.compress,
  "_of_any_name": lzma.compress,
  ".zst": _zstd,
  ".zstd": lambda data: _zstd(data[:5]) + _zstd(b"") + _zstd(data[5:]),
}


@pytest.fixture(params=[(1, 1), (17, 3), (1 << 18, 1 << 20)])
def block_bytes(request, monkeypatch):
  """Sizes of blocks, which must not change the documents and the errors."""
  block, part = request.param
  monkeypatch.setattr(documents, "BLOCK_BYTES", block)
  monkeypatch.setattr(text_files, "_READ_BYTES", part)


def _open(path, **settings):
  return documents.DocumentReader(
    {str(path): 1.0}, documents.ReaderSettings(**settings)
  )


def _read(path, **settings):
  return list(_open(path, **settings))


@pytest.mark.parametrize(
  ("name", "text", "expected"),
  [
    ("a", _TEXT, _TEXT_DOCUMENTS),
    ("a.txt", "\ufeffOne.\n\nTwo.", [["One."], ["Two."]]),
    ("a.jsonl", _LINES, _LINES_DOCUMENTS),
    ("wiki_00", "\ufeff\n" + _LINES, _LINES_DOCUMENTS),
    ("a.ndjson", _LINES + "\n\n", _LINES_DOCUMENTS),
    ("a.txt", '{x} is.\n{"a": 1\n[1]', [["{x} is.", '{"a": 1', "[1]"]]),
  ],
)
@pytest.mark.parametrize("ending", _PACKERS)
def test_documents(tmp_path, block_bytes, name, text, expected, ending):
  path = tmp_path / (name + ending)
  path.write_bytes(_PACKERS[ending](text.encode()))
  assert _read(path) == expected
  assert _read(f"file://{path}") == expected  # By TensorFlow.


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("a.txt", b"", "a.txt holds no document"),
    ("a.txt", b" \n\n", "a.txt holds no document"),
    ("a.txt", b"fine\n\xe9t\xe9\n", "a.txt, line 2, is not UTF-8: convert"),
    ("a.jsonl", b'{"text": "x"}\n\n{"te', "a.jsonl, line 3, must be a JSON"),
    ("a.jsonl", b'["x"]\n', 'line 1, must be .*"text".*text_column'),
    ("a.jsonl", b'{"text": 5}\n', "line 1, must be a JSON"),
    ("a.jsonl", b'{"text": "x", "text": "y"}', "has the key 'text' twice"),
    ("a.jsonl", b'{"text": "\xff"}\n', "line 1, is not UTF-8"),
    # The end of a line that was cut, as by `split`.
    ("xab", b'ds."}\n' + 2 * b'{"text": "x"}\n', "xab, line 1, must be a JSON"),
    # Damaged files.
    ("a.bz2", bz2.compress(b"x\n" * 9)[:-3], "complete compressed file"),
    ("a", lzma.compress(b"x\n" * 9)[:-3], "complete compressed file"),
    ("a.gz", _gzip(b"x\n") + b"rest", "compressed file .Not a gzipped"),
    ("a.zst", _zstd(b"x\n" * 9)[:-3], "complete .* in the middle of a frame"),
    ("a.zst", _zstd(b"x\n") + b"rest", "complete compressed file"),
  ],
)
def test_bad_documents_and_damage_are_named_with_their_line(
  tmp_path, block_bytes, name, content, message
):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    _read(path)


def test_long_text_without_blank_lines_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(documents, "BLOCK_BYTES", 1)
  monkeypatch.setattr(documents, "_MAX_DOCUMENT_BYTES", 10)
  path = tmp_path / "a.txt"
  path.write_text("One.\n\n" * 9 + "One.\nTwo.")
  assert len(_read(path)) == 10
  path.write_text("One.\n\nOne.\nTwo.\nSix.\n\n")
  with pytest.raises(ValueError, match="a.txt, from line 3 on.*blank line"):
    _read(path)
  path = tmp_path / "a.jsonl"
  path.write_text(_LINES)
  assert _read(path) == _LINES_DOCUMENTS


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("a", b"Obj\x01abc", "a is no UTF-8 text"),
    ("a.txt", "so".encode("utf-16"), "a.txt is no UTF-8 text .* iconv"),
    ("a.txt", "It is so. ".encode("utf-16-le"), "a.txt is no UTF-8"),
    ("a.txt", _gzip(b"PK\3\4x"), r"no UTF-8 .*PK\\x03\\x04x.*: unpack"),
    ("a", _gzip(b"WARC/1.0\r\nWARC-Type: "), r"no UTF-8 .*WARC/1.0.*extract"),
    ("a.txt", b"It is.\rIt was.\r", r"a.txt ends .* carriage returns .*tr"),
    ("a.txt", b"It is.\rIt was.\rAnd.\r\n", "a.txt ends .* carriage returns"),
    (
      "a.txt",
      b"It is.\n<|endoftext|>\nIt was.",
      r"a.txt has <.endoftext.> bet",
    ),
    ("a.txt", b"1\tIt is.\n2\tIt was.\n", "a.txt is a table with num.*cut"),
    ("a", b"<mediawiki xmlns=", "a is XML .* --wikipedia_dump"),
    ("wiki_00", b'<doc id="1" url="x">\nx\n', "wiki_00 is XML .*WikiExtractor"),
    ("a", b"\n<!DOCTYPE html>", "a is XML or HTML"),
    ("a.txt", b"<DOC>\n<DOCNO> 1 </DOCNO>\n", "a.txt is XML"),  # Of TREC.
    ("a.vrt", b'<text id="1">\n<s>\na DT a\n', "a.vrt is XML"),
    ("a.json", b'[{"text": "x"},\n{"text": "y"}]', "not in lines: .*jq -c"),
    ("a", b'[\n {"text": "x"}]', "not in lines"),
    ("a.json", b'{\n  "text": "x"\n}', "not in lines"),
  ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path, name, content, message):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    _open(path)


def _write_table(path, kind, texts):
  column = pyarrow.array(texts, pyarrow.string())
  numbers = pyarrow.array(range(len(texts)))
  table = pyarrow.table({"number": numbers, "content": column})
  if kind == "parquet":
    parquet.write_table(table, path, row_group_size=2)
    return
  make = ipc.new_stream if kind == "stream" else ipc.new_file
  with make(str(path), table.schema) as writer:
    writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_rows_of_tables_are_documents(tmp_path, monkeypatch, block_bytes, kind):
  texts = ["It is so. Is it?\n\nYes. ", " \n", "Löwen brüllen.", "Five.", None]
  path = tmp_path / "a"
  _write_table(path, kind, texts[:-1])
  settings = {"text_column": "content"}
  assert _read(path, **settings) == [*_LINES_DOCUMENTS, ["Five."]]
  with pytest.raises(
    ValueError, match="a has no column 'text', the columns are .*: name another"
  ):
    _open(path)  # Before any work.
  with pytest.raises(ValueError, match='a, row 1, must be .*"number"'):
    _read(path, text_column="number")
  with monkeypatch.context() as patch:
    patch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="python -m pip install pyarrow"):
      _open(path)
  path.write_bytes(path.read_bytes()[:-7])
  with pytest.raises(ValueError, match="a is not a complete table"):
    _read(path, **settings)
  _write_table(path, kind, texts)
  with pytest.raises(ValueError, match="a, row 5, must be .*content"):
    _read(path, **settings)


def test_find_files(tmp_path):
  (tmp_path / "sub").mkdir()
  for name in ("b.txt", "a.txt", "c.jsonl", "odd[1].txt", "sub/d.md"):
    (tmp_path / name).write_text("x")

  def find(*patterns):
    found = documents.find_files(", ".join(f"{tmp_path}/{p}" for p in patterns))
    return [os.path.basename(path) for path in found]

  texts = ["a.txt", "b.txt", "odd[1].txt"]
  assert find("c.jsonl", "*.txt", "a.txt") == ["c.jsonl", *texts]
  assert find("odd[1].txt") == ["odd[1].txt"]
  assert find("*") == ["a.txt", "b.txt", "c.jsonl", "odd[1].txt"]
  with pytest.raises(FileNotFoundError, match=r"no input file matches .*\.md"):
    find("a.txt", "*.md")
  with pytest.raises(FileNotFoundError, match=r"by FOLDER/\*"):
    find("sub")
  with pytest.raises(ValueError, match="input_files is empty"):
    documents.find_files(" , ")
  with pytest.raises(ValueError, match="nonsense://bucket.*neither a local"):
    documents.find_files("nonsense://bucket/*.txt")
  for name in ("a.csv", "B.TSV", "c.csv.gz", "d.conllu"):
    (tmp_path / name).write_text("text,label\nIt rains.,1\n")
    with pytest.raises(ValueError, match=f"{name} is a table, whose separat"):
      find(name)


@pytest.mark.parametrize(
  ("language", "text", "sentences"),
  [
    ("en", "Dr. Gray left. It was 5 p.m. on Monday.", 2),
    ("zh", "他来了。约2.15亿！", 2),
    ("xx", '("x.") y. “”。。『』 a.b.c...', 2),
  ],
)
def test_paragraphs_of_plain_text_are_split_if_asked_for(
  tmp_path, language, text, sentences
):
  path = tmp_path / "a.txt"
  path.write_text(f"{text}\n\nx.", "utf-8")
  assert _read(path) == [[text], ["x."]]
  found, _ = _read(path, split_sentences=True, sentence_language=language)
  assert len(found) == sentences
  assert "".join(found).replace(" ", "") == text.replace(" ", "")
  with pytest.raises(ValueError, match="must be an ISO code such as en"):
    _open(path, sentence_language="English")
  # Half surrogate pairs are removed.
  assert documents.split_sentences(f"\ud800{text}", language) == found
