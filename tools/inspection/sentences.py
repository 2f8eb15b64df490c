"""Sentences to batches: each one is [CLS] sentence [SEP], with its padding."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from official_albert import tokenization
from tasks.pretraining import data

_BATCH_SIZE = 16


class Sentences(NamedTuple):
  """What a model is looked into with.

  Attributes:
    batches: `input_ids`, `input_mask` and `segment_ids`, <int32>[B, S] each;
      sentences of similar length are in one batch.
    first: the same of the first sentence alone, [1, S].
    pieces: of the first sentence, for labels.
    count: sentences.
    tokens: of all of them, [CLS] and [SEP] too.
    cut: sentences that lost their end.
  """

  batches: list[dict[str, np.ndarray]]
  first: dict[str, np.ndarray]
  pieces: list[str]
  count: int
  tokens: int
  cut: int


def read(texts: Sequence[str], input_files: str) -> list[str]:
  """The sentences of the flags, those of the command line first.

  Args:
    texts: given one by one.
    input_files: names and globs, comma-separated, in the formats of
      tools.create_pretraining_data: text with a sentence a line, or JSON
      lines. "": none.

  Raises:
    OSError: a file cannot be read.
    ValueError: a text is empty, or a file holds none or is damaged.
  """
  for text in texts:
    if not text.strip():
      raise ValueError("--text is empty: give a sentence.")
  found = list(texts)
  if input_files:
    paths = data.find_files(input_files)
    settings = data.ReaderSettings()
    for document in data.DocumentReader(paths, settings):
      found += document
  return found


def batch(
  sentences: Sequence[str],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
) -> Sentences:
  """Tokenizes and packs.

  Args:
    sentences: at least one.
    tokenizer: the model's.
    max_seq_length: what is longer loses its end.

  Raises:
    ValueError: `max_seq_length` has no room for a token.
  """
  encoded = [tokenizer.encode(text) for text in sentences]
  rows = [
    tokenization.pack_pair(
      ids, None, max_seq_length, tokenizer.cls_id, tokenizer.sep_id
    )[0]
    for ids in encoded
  ]
  in_order = sorted(rows, key=len)
  return Sentences(
    batches=[
      _padded(in_order[start : start + _BATCH_SIZE], tokenizer.pad_id)
      for start in range(0, len(in_order), _BATCH_SIZE)
    ],
    first=_padded(rows[:1], tokenizer.pad_id),
    pieces=[tokenizer.marked_piece(id) for id in rows[0]],
    count=len(rows),
    tokens=sum(map(len, rows)),
    cut=sum(len(row) < len(ids) + 2 for row, ids in zip(rows, encoded)),
  )


def _padded(rows: Sequence[list[int]], pad_id: int) -> dict[str, np.ndarray]:
  shape = [len(rows), max(map(len, rows))]
  ids, mask = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
  for index, row in enumerate(rows):
    ids[index, : len(row)] = row
    mask[index, : len(row)] = 1
  return {
    "input_ids": ids,
    "input_mask": mask,
    "segment_ids": np.zeros(shape, np.int32),
  }
