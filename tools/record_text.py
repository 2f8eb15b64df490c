"""A pretraining record as text that a person can check.

    A: [CLS] in mathematics , {[MASK]:especially} order theory , ...

`{shown:label}` is a token to predict: [MASK], another piece, or, as `{=label}`,
the piece itself. Pieces are joined to words as the tokenizer would.
"""

from __future__ import annotations

import textwrap
from typing import Mapping

import numpy as np

from official_albert import tokenization

_WIDTH = 78


def describe(
  record: Mapping[str, np.ndarray],
  tokenizer: tokenization.Tokenizer,
) -> str:
  """Several lines about one record.

  Args:
    record: its features, as in `schemas.pretraining_schema`.
    tokenizer: the one it was made with.

  Raises:
    ValueError: an id is outside the tokenizer's vocabulary.
  """
  length = int(record["input_mask"].sum())
  used = record["masked_lm_weights"] > 0
  labels = dict(
    zip(
      record["masked_lm_positions"][used].tolist(),
      record["masked_lm_ids"][used].tolist(),
    )
  )
  label = int(record["next_sentence_labels"][0])
  ids = record["input_ids"][:length].tolist()
  segments = record["segment_ids"][:length]
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {len(labels)} to predict, "
    f"next_sentence_labels {label} "
    f"({'swapped or random' if label else 'in order'})"
  ]
  for name, segment in (("A", 0), ("B", 1)):
    positions = np.flatnonzero(segments == segment).tolist()
    pieces = (_piece(ids[p], labels.get(p), tokenizer) for p in positions)
    text = " ".join("".join(pieces).split())
    lines += textwrap.wrap(
      f"{name}: {text}",
      _WIDTH,
      subsequent_indent="   ",
      break_long_words=False,
      break_on_hyphens=False,
    )
  return "\n".join(lines)


def _piece(shown_id, label_id, tokenizer) -> str:
  shown = tokenizer.marked_piece(shown_id)
  if label_id is None:
    space = " " if shown_id in tokenizer.special_ids else ""
    return space + shown.replace(tokenization.WORD_START, " ") + space
  label = tokenizer.marked_piece(label_id)
  space = " " if label.startswith(tokenization.WORD_START) else ""
  # A word mark alone is a piece too.
  label = label.lstrip(tokenization.WORD_START) or label
  shown = shown.lstrip(tokenization.WORD_START) or shown
  shown = "=" if shown_id == label_id else f"{shown}:"
  return f"{space}{{{shown}{label}}}"
