"""Tests of the helpers of the tokenizers in the graph."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf

from official_albert.tokenization.in_graph import graph_text


def test_character_class():
  pattern = graph_text.character_class(str.isspace)
  texts = ["a b", "a\u3000\u2003b", "a\x1c\x85b", "ab"]
  got = tf.strings.regex_replace(texts, pattern, "_").numpy().tolist()
  assert [text.decode() for text in got] == [
    re.sub(r"\s", "_", text) for text in texts
  ]


def test_character_class_up_to_the_last_character():
  assert graph_text.character_class("abcx\U0010ffff".__contains__) == (
    r"[\x{61}-\x{63}\x{78}-\x{78}\x{10ffff}-\x{10ffff}]"
  )


def test_check_texts():
  assert graph_text.check_texts(["a", "b"]).shape == [2]
  for wrong in ("a", [["a"]], [1]):
    with pytest.raises(ValueError, match=r"texts must be <string>\[B\]"):
      graph_text.check_texts(wrong)


def test_read_file(tmp_path):
  (tmp_path / "a").write_bytes(b"\xff\0")
  assert graph_text.read_file(str(tmp_path / "a"), "toy") == b"\xff\0"
  with pytest.raises(FileNotFoundError, match="there is no toy '.*b'"):
    graph_text.read_file(str(tmp_path / "b"), "toy")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
