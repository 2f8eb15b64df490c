"""Flags of all programs that read raw text."""

from __future__ import annotations

from absl import flags

from tasks.pretraining import data

_SPLIT_SENTENCES = flags.DEFINE_bool(
  "split_sentences",
  False,
  "Split the lines of plain text, which are paragraphs, into sentences; the "
  "texts of JSON lines are always split.",
)
_SENTENCE_LANGUAGE = flags.DEFINE_string(
  "sentence_language",
  "en",
  "ISO code of the text that is split into sentences, such as de or zh.",
)
_SKIP_BAD_DOCUMENTS = flags.DEFINE_bool(
  "skip_bad_documents",
  False,
  "Skip documents that are not UTF-8 or not JSON with a text, and empty files; "
  "they are counted and named at the end.",
)


def reader_settings() -> data.ReaderSettings:
  """Returns the flags as checked settings."""
  return data.ReaderSettings(
    split_sentences=_SPLIT_SENTENCES.value,
    sentence_language=_SENTENCE_LANGUAGE.value,
    skip_bad_documents=_SKIP_BAD_DOCUMENTS.value,
  )
