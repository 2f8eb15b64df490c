"""Tests of the flags of reading."""

from __future__ import annotations

import pytest
from absl import flags
from absl.testing import flagsaver

from tasks.pretraining import documents
from tools import reading_flags


@pytest.fixture(autouse=True)
def _parsed():
  if not flags.FLAGS.is_parsed():
    flags.FLAGS(["test"])


def test_defaults_are_those_of_the_library():
  assert reading_flags.reader_settings() == documents.ReaderSettings()


@flagsaver.flagsaver(
  split_sentences=True, sentence_language="de", skip_bad_documents=True
)
def test_flags_reach_the_settings():
  assert reading_flags.reader_settings() == documents.ReaderSettings(
    split_sentences=True, sentence_language="de", skip_bad_documents=True
  )


@flagsaver.flagsaver(sentence_language="German")
def test_no_language():
  with pytest.raises(ValueError, match="sentence_language is 'German'"):
    reading_flags.reader_settings()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
