"""Formats a pretraining record as text that a person can check.

    A: [CLS] in mathematics , {[MASK]:especially} order theory , ...

`{shown:label}` is a token to predict; the input shows [MASK], a random piece
or, as `{=label}`, the piece itself. Pieces are joined to words as the tokenizer
does.
"""

from __future__ import annotations

import textwrap
from typing import Mapping, Optional

import numpy as np

from official_albert import tokenization

LEGEND = "To predict: {[MASK]:masked}, {random:replaced}, {=kept}"
_WORD_START = tokenization.WORD_START


def describe(record: Mapping[str, np.ndarray], tokenizer) -> str:
  """Returns several lines: the record with marks, then its text.

  Masks may be missing. An unknown id is a ValueError.
  """
  length = int(record["input_mask"].sum())
  labels, masks = {}, " (not masked)"
  if "masked_lm_weights" in record:
    used = record["masked_lm_weights"] > 0
    positions = record["masked_lm_positions"][used].tolist()
    labels = dict(zip(positions, record["masked_lm_ids"][used].tolist()))
    masks = ""
  order = int(record["next_sentence_labels"][0])
  lines = [
    f"{length} of {len(record['input_ids'])} tokens, {len(labels)} to predict"
    f"{masks}, next_sentence_labels {order} "
    f"({'swapped or random' if order else 'in order'})"
  ]
  ids = record["input_ids"][:length].tolist()
  texts = []
  for name, segment in (("A", 0), ("B", 1)):
    places = np.flatnonzero(record["segment_ids"][:length] == segment).tolist()
    pieces = [_piece(ids[at], labels.get(at), tokenizer) for at in places]
    lines += _wrap(f"{name}: {' '.join(''.join(pieces).split())}")
    original = [labels.get(at, ids[at]) for at in places]
    texts += _wrap(f"text {name}: {tokenizer.decode(original)}")
  return "\n".join(lines + texts)


def _wrap(text: str) -> list[str]:
  return textwrap.wrap(
    text,
    width=78,
    subsequent_indent="   ",
    break_long_words=False,
    break_on_hyphens=False,
  )


def _piece(shown_id: int, label_id: Optional[int], tokenizer) -> str:
  shown = tokenizer.marked_piece(shown_id)
  if label_id is None:
    space = " " if shown_id in tokenizer.special_ids else ""
    return f"{space}{shown.replace(_WORD_START, ' ')}{space}"
  label = tokenizer.marked_piece(label_id)
  space = " " if label.startswith(_WORD_START) else ""
  # A piece may consist of the word mark alone.
  label = label.lstrip(_WORD_START) or label
  shown = shown.lstrip(_WORD_START) or shown
  mark = f"={label}" if shown_id == label_id else f"{shown}:{label}"
  return f"{space}{{{mark}}}"
