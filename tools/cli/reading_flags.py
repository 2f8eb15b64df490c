"""The flags of all tools that read raw text."""

from __future__ import annotations

from absl import flags

from tasks.pretraining import data

_SPLIT_SENTENCES = flags.DEFINE_bool(
  "split_sentences",
  False,
  "The lines of plain text are paragraphs, to be split into sentences; those "
  "of JSON lines always are.",
)
_SENTENCE_LANGUAGE = flags.DEFINE_string(
  "sentence_language",
  "en",
  "ISO code of the text that is split into sentences, such as de or zh.",
)
_SKIP_BAD_DOCUMENTS = flags.DEFINE_bool(
  "skip_bad_documents",
  False,
  "Pass over documents that are not UTF-8 or not JSON with a text, and over "
  "empty files; they are counted and named at the end.",
)


def reader_settings() -> data.ReaderSettings:
  """The flags as checked settings.

  Raises:
    ValueError: the language is none.
  """
  return data.ReaderSettings(
    split_sentences=_SPLIT_SENTENCES.value,
    sentence_language=_SENTENCE_LANGUAGE.value,
    skip_bad_documents=_SKIP_BAD_DOCUMENTS.value,
  )
